"""Steps of a layer that go through the rows of some tokens: sums, normalization, gates, rotary positions.

Integer sums of a linear layer become floats here too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from pipeline.core.records import Float32, Int32, Int64
from pipeline.kernels import functions
from pipeline.kernels.compiling import inlined, merged
from pipeline.kernels.functions import exp, gelu

GELU, SILU = 0, 1  # activations


@merged
def scale_sums(sums: Int32, factor: Any, factors: Float32, bias: Float32, gelu: bool, out: Float32) -> None:
    """Set a row of a linear layer's outputs, float32 [m], to its integer sums times both factors, plus bias.

    `factor` is that of the layer's input, and `factors` are those of the rows of weights.
    """
    if gelu:
        for j in range(len(out)):
            out[j] = functions.gelu(float32(sums[j]) * (factor * factors[j]) + bias[j])
    else:
        for j in range(len(out)):
            out[j] = float32(sums[j]) * (factor * factors[j]) + bias[j]


@merged
def copy_rows(rows: Float32, numbers: Int64, out: Float32) -> None:
    """Set out [n, width] to rows[numbers]; `out` may be `rows` itself if numbers[i] >= i."""
    for i in range(len(numbers)):
        for j in range(rows.shape[1]):
            out[i, j] = rows[numbers[i], j]


@merged
def add(x: Float32, more: Float32) -> None:
    """Add `more` to x [n, width] in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += more[i, j]


@inlined
def _normalize_row(
    x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32
) -> None:
    total = float32(0)
    for j in range(width):
        total += x[j]
    mean, square = total / float32(width), float32(0)
    for j in range(width):
        out[j] = x[j] - mean
        square += out[j] * out[j]
    factor = float32(1) / np.sqrt(square / float32(width) + epsilon)
    for j in range(width):
        out[j] = out[j] * factor * weight[j] + bias[j]


@merged
def normalize(x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32) -> None:
    """Set `out` to x [n, columns] with the first `width` numbers of each row normalized; it may be x."""
    for i in range(x.shape[0]):
        _normalize_row(x[i], weight, bias, width, epsilon, out[i])


@merged
def add_and_normalize(
    x: Float32, more: Float32, weight: Float32, bias: Float32, width: int, epsilon: float
) -> None:
    """Add `more` to x in place, then normalize it; see `normalize`."""
    for i in range(x.shape[0]):
        row = x[i]
        for j in range(width):
            row[j] += more[i, j]
        _normalize_row(row, weight, bias, width, epsilon, row)


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
