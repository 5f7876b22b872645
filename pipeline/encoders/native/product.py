"""A matrix product alone, computed as the native backend computes those of a network."""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float32, Int32
from pipeline.encoders.native import kernels
from pipeline.encoders.native.kernels import (
    BLOCK,
    INT16_WIDTH,
    PANEL,
    TALL,
    Workspace,
    compiled,
    int16_tile,
    pack_rows,
    round_rows,
)

packed = pack_rows


def _product(x: Float32, pairs: Int32, factors: Float32) -> Float32:
    """The product of x float32 [n, k] and weights [m, k] that `packed` packed: float32 [n, m]."""
    n, k = x.shape
    m = factors.shape[0]
    out = np.empty((n, m), np.float32)
    space = Workspace(
        np.empty(BLOCK * k, np.int16), np.empty(BLOCK, np.float32), np.empty(BLOCK * m, np.int32)
    )
    rows = space.rows.view(np.int32)
    for start in range(0, n, BLOCK):
        count = min(BLOCK, n - start)
        round_rows(x[start : start + count], space)
        for panel in range(0, m, PANEL):
            for i in range(0, count, TALL):
                for j in range(0, PANEL, INT16_WIDTH):
                    int16_tile(
                        space.sums, i * m + panel + j, m, rows, i * (k // 2), k // 2,
                        pairs, panel * (k // 2) + j, PANEL, k // 2,
                    )  # fmt: skip
        for i in range(count):
            for j in range(m):
                out[start + i, j] = np.float32(space.sums[i * m + j]) * (space.factors[i] * factors[j])
    return out


product = compiled(_product, kernels.__file__)
