#!/usr/bin/env python3
"""Fits the polynomials of `pipeline/native/registers.py` again, and prints how near those in use are.

    .venv/bin/python scripts/fit_kernels.py

For each function the largest error of the best polynomial of that degree (minimax, by the exchange of Remez),
of its coefficients rounded to float32, and of the coefficients in use, all computed in float64. Those in use
stay even where another fit rounds to other last digits: the bits of all vectors depend on them. The script
fails if their error is above what the module says.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, log
from pathlib import Path
from sys import path

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ndtr

path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.core.records import Float64
from pipeline.native import registers

POINTS = 200_001
ROUNDS = 50
Function = Callable[[Float64], Float64]


def minimax(function: Function, weight: Function, degree: int, low: float, high: float) -> Float64:
    """The polynomial with the smallest largest error, weight(x) |p(t) - function(x)|.

    Args:
        function: Of x from `low` to `high`.
        weight: Of x; 0 at no more than an end.
        degree: Of p, a polynomial in t, which is -1 at `low` and 1 at `high`.
        low: The lowest x.
        high: The highest.

    Returns:
        Coefficients, the highest power first.
    """
    t = -np.cos(np.pi * np.arange(POINTS) / (POINTS - 1))
    x = low + (t + 1) * (high - low) / 2
    values, weights = function(x), np.maximum(weight(x), 1e-9)
    basis, n = chebyshev.chebvander(t, degree), degree + 2
    extrema = np.linspace(POINTS // 400, POINTS - 1, n).astype(
        int
    )  # places of the polynomial's largest errors
    signs = (-1.0) ** np.arange(n)
    for _ in range(ROUNDS):
        # the polynomial whose errors at these places are equal, with alternating signs
        system = np.column_stack([basis[extrema], signs / weights[extrema]])
        coefficients = np.linalg.solve(system, values[extrema])[:-1]
        errors = weights * (basis @ coefficients - values)
        changes = np.flatnonzero(np.diff(np.sign(errors))) + 1
        pieces = np.split(np.arange(POINTS), changes)
        found = [int(piece[np.abs(errors[piece]).argmax()]) for piece in pieces]
        while len(found) > n:
            found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
        if len(found) < n or found == extrema.tolist():
            break
        extrema = np.array(found)
    return np.asarray(chebyshev.cheb2poly(coefficients)[::-1])


def report(
    name: str, used: Float64, function: Function, weight: Function, ends: tuple[float, float], bound: float
) -> None:
    """Print the errors of the best polynomial and of that in use, whose argument is -1 … 1, or x itself."""
    low, high = ends
    t = np.linspace(-1, 1, POINTS)
    x = low + (t + 1) * (high - low) / 2

    def error(coefficients: Float64) -> float:
        return float(np.abs(weight(x) * (np.polyval(coefficients, t) - function(x))).max())

    best = minimax(function, weight, len(used) - 1, low, high)
    print(f"{name}, degree {len(used) - 1}: largest error")
    for what, coefficients in (
        ("best", best),
        ("rounded", best.astype(np.float32).astype(np.float64)),
        ("in use", used),
    ):
        print(f"  {what:8} {error(coefficients):.3e}   {' '.join(f'{c:.9g}' for c in coefficients)}")
    if error(used) > bound:
        raise SystemExit(f"{name}: the error of the coefficients in use is above {bound}")


def main() -> None:
    """Print both fits, and compare the series of `exp`."""
    power = np.array(registers._POWER)
    halves = power * 0.5 ** np.arange(len(power))[::-1]  # in t = 2 x
    report("2^x, relative", halves, np.exp2, lambda x: 1 / np.exp2(x), (-0.5, 0.5), 2e-7)
    tail = np.array(registers._TAIL)
    report("z P(X > z)", tail, lambda z: ndtr(-z), lambda z: z, (0.0, registers._FAR), 2e-7)
    taylor = [log(2) ** k / factorial(k) for k in range(6, -1, -1)]
    used = [float(np.float32(c)) for c in registers._SERIES]
    wrong = [c for c, exact in zip(used, taylor, strict=True) if c != float(np.float32(exact))]
    print(f"terms of e^x that are not Taylor's: {len(wrong)}")
    f = np.linspace(-0.5, 0.5, POINTS)
    print(f"  their error {np.abs(np.polyval(used, f) / np.exp2(f) - 1).max():.3e}, relative")
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
