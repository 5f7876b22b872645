"""Steps of a layer that go through the rows of some tokens: sums, normalization, gates, rotary positions.

Integer sums of a linear layer become floats here too. Rows have whole panels of columns; see
`pipeline.kernels.registers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from pipeline.core.records import Float32, Int32, Int64
from pipeline.kernels.compiling import merged
from pipeline.kernels.functions import exp, gelu
from pipeline.kernels.int16 import PANEL
from pipeline.kernels.registers import gelu_panel, load_panel, load_sums_panel, spread_panel, store, total

GELU, SILU = 0, 1  # activations


@merged
def scale_sums(sums: Int32, factor: Any, factors: Float32, bias: Float32, gelu: bool, out: Float32) -> None:
    """Set a row of a linear layer's outputs, float32 [m], to its integer sums times both factors, plus bias.

    `factor` is that of the layer's input, and `factors` are those of the rows of weights.
    """
    scale = spread_panel(factor)
    for j in range(0, len(out), PANEL):
        numbers = load_sums_panel(sums, j) * (scale * load_panel(factors, j)) + load_panel(bias, j)
        if gelu:
            numbers = gelu_panel(numbers)
        store(out, j, numbers)


@merged
def copy_rows(rows: Float32, numbers: Int64, out: Float32) -> None:
    """Set out [n, width] to rows[numbers]; `out` may be `rows` itself if numbers[i] >= i."""
    for i in range(len(numbers)):
        row, copy = rows[numbers[i]], out[i]
        for j in range(len(copy)):
            copy[j] = row[j]


@merged
def add(x: Float32, more: Float32) -> None:
    """Add `more` to x [n, width] in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += more[i, j]


@merged
def _normalize_row(
    x: Float32, sums: Any, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32
) -> None:
    """Normalize a row, of which `sums` is the sum of all panels; columns from `width` on hold zeros."""
    mean = total(sums) / float32(width)
    means, squares = spread_panel(mean), spread_panel(float32(0))
    for j in range(0, len(x), PANEL):
        apart = load_panel(x, j) - means
        squares = squares + apart * apart
    square = total(squares) - float32(len(x) - width) * (mean * mean)
    factor = float32(1) / np.sqrt(square / float32(width) + epsilon)
    scale = spread_panel(factor)
    for j in range(0, len(x), PANEL):
        scaled = (load_panel(x, j) - means) * scale
        store(out, j, scaled * load_panel(weight, j) + load_panel(bias, j))


@merged
def normalize(x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32) -> None:
    """Set `out` to x [n, columns] with the first `width` numbers of each row normalized; it may be x."""
    for i in range(x.shape[0]):
        row, sums = x[i], spread_panel(float32(0))
        for j in range(0, len(row), PANEL):
            sums = sums + load_panel(row, j)
        _normalize_row(row, sums, weight, bias, width, epsilon, out[i])


@merged
def add_and_normalize(
    x: Float32, more: Float32, weight: Float32, bias: Float32, width: int, epsilon: float
) -> None:
    """Add `more` to x in place, then normalize it; see `normalize`."""
    for i in range(x.shape[0]):
        row, added, sums = x[i], more[i], spread_panel(float32(0))
        for j in range(0, len(row), PANEL):
            numbers = load_panel(row, j) + load_panel(added, j)
            sums = sums + numbers
            store(row, j, numbers)
        _normalize_row(row, sums, weight, bias, width, epsilon, row)


@merged
def gate(made: Float32, activation: int, out: Float32) -> None:
    """Set out [n, inner] to the left half of `made` [n, 2 inner], activated, times its right half.

    SiLU is x / (1 + e^-x); with e^-|x|, which `exp` gives, that is x / (1 + e) or x e / (1 + e).
    """
    inner = out.shape[1]
    for i in range(out.shape[0]):
        left, right = made[i, :inner], made[i, inner:]
        if activation == GELU:
            for j in range(inner):
                out[i, j] = gelu(left[j]) * right[j]
        else:
            for j in range(inner):
                small = exp(-abs(left[j]))
                share = (float32(1) if left[j] >= float32(0) else small) / (float32(1) + small)
                out[i, j] = left[j] * share * right[j]


@merged
def rotate(x: Float32, places: Int64, turns: Float32, heads: int, size: int) -> None:
    """Turn the heads of x [n, columns] in place, by angles of each row's place in its text (RoPE).

    Numbers j and j + half of a head are a point in the plane, turned by the angle number j of the place: so
    the product of a query and a key depends on how far apart they are, and not on where.

    Args:
        x: float32, with heads of `size` columns, one beside the other.
        places: int64 [n].
        turns: float32 [positions, width of a head]: cosines of the angles, then their sines.
        heads: Number of heads.
        size: Columns of a head.
    """
    half = turns.shape[1] // 2
    for i in range(x.shape[0]):
        cosines, sines = turns[places[i], :half], turns[places[i], half:]
        for head in range(0, heads * size, size):
            left, right = x[i, head : head + half], x[i, head + half : head + 2 * half]
            for j in range(half):
                across, up = left[j], right[j]
                left[j] = across * cosines[j] - up * sines[j]
                right[j] = up * cosines[j] + across * sines[j]
