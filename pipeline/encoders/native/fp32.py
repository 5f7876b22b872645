"""Linear layers in fp32, for scores that are compared with each other to the last digit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32
from pipeline.kernels import functions
from pipeline.kernels.compiling import merged
from pipeline.kernels.int16 import PANEL, Workspace
from pipeline.kernels.tiles import TALL, WIDE, wide_float_tile


class FloatLinear(NamedTuple):
    """One kind of linear layer with n outputs and k inputs, of all layers of a network."""

    numbers: Any  # float32 [layers, n * k], see `in_panels`
    bias: Any  # float32 [layers, n]


def in_panels(matrix: Float32) -> Float32:
    """Weights float32 [n, k] in the order in which a tile reads them: [n / 64, k, 64], laid flat."""
    n, k = matrix.shape
    return np.ascontiguousarray(matrix.reshape(n // PANEL, PANEL, k).transpose(0, 2, 1)).reshape(-1)


@merged
def float_linear(
    x: Float32, layers: FloatLinear, layer: int, gelu: bool, space: Workspace, out: Float32
) -> None:
    """Set out [n, m] to x [n, k] times a layer's weights, plus its bias, as `layers.linear` does in int16.

    The products of a row are added one after another, so it does not matter which rows are beside it.
    """
    (n, k), m = x.shape, out.shape[1]
    rows, totals = space.rows.view(np.float32), space.sums.view(np.float32)
    for i in range(n):
        row = rows[i * k : (i + 1) * k]
        for j in range(k):
            row[j] = x[i, j]
    numbers, bias = layers.numbers[layer], layers.bias[layer]
    for panel in range(0, m, PANEL):
        for i in range(0, n, TALL):
            for j in range(0, PANEL, WIDE):
                wide_float_tile(
                    totals, i * m + panel + j, m, rows, i * k, k,
                    numbers, panel * k + j, PANEL, k,
                )  # fmt: skip
    for i in range(n):
        sums = totals[i * m : (i + 1) * m]
        if gelu:
            for j in range(m):
                out[i, j] = functions.gelu(sums[j] + bias[j])
        else:
            for j in range(m):
                out[i, j] = sums[j] + bias[j]
