"""Rows of activations rounded to int16: for VNNI as they are, for AMX as planes of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32

from pipeline.core.records import Float32, UInt8
from pipeline.native.compiling import merged
from pipeline.native.integers import ROW_LENGTH, TILE_BYTES, TILE_ROWS, Workspace
from pipeline.native.registers import STRETCH, load_stretch, spread_stretch, total_of_stretch


@merged
def _row_factor(row: Float32) -> Any:
    """What a row is multiplied with to have the length ROW_LENGTH.

    Written in registers: LLVM would add the squares of a plain loop in one order for VNNI's kernel and in
    another for AMX's, and the last bits of both must be the same.
    """
    squares, whole = spread_stretch(float32(0)), len(row) // STRETCH * STRETCH
    for start in range(0, whole, STRETCH):
        numbers = load_stretch(row, start)
        squares = squares + numbers * numbers
    # a row of zeros has a length as well, so nothing is divided by 0
    square = float32(1e-30) + total_of_stretch(squares)
    for j in range(whole, len(row)):
        square += row[j] * row[j]
    return float32(ROW_LENGTH) / np.sqrt(square)


@merged
def round_rows(x: Float32, space: Workspace) -> None:
    """Write x float32 [n, k] to `space.rows` as int16, each row scaled to ROW_LENGTH and rounded."""
    n, k = x.shape
    for i in range(n):
        factor = _row_factor(x[i])
        space.factors[i] = float32(1) / factor
        row = space.rows[i * k : (i + 1) * k]
        for j in range(k):
            row[j] = int32(np.rint(x[i, j] * factor))


@merged
def round_planes(x: Float32, space: Workspace, high: UInt8, low: UInt8) -> None:
    """As `round_rows`, to the left side of a product on AMX; see `amx.Planes`."""
    n, k = x.shape
    for i in range(n):
        factor = _row_factor(x[i])
        space.factors[i] = float32(1) / factor
        for start in range(0, k, TILE_BYTES):
            to = (i // TILE_ROWS * k + start) * TILE_ROWS + i % TILE_ROWS * TILE_BYTES
            part = x[i, start : start + TILE_BYTES]
            high_row, low_row = high[to : to + TILE_BYTES], low[to : to + TILE_BYTES]
            for j in range(TILE_BYTES):
                whole = int32(np.rint(part[j] * factor))
                high_row[j], low_row[j] = whole >> int32(8), whole
