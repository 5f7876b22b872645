"""Rows of numbers as int16, so that sums of their products are exact.

Scaling: numbers become int16 row by row, each row with a factor of its own, and a sum times both rows'
factors is the product again. No sum may pass an int32, and by Cauchy and Schwarz |x . w| <= |x| |w|. So rows
of activations are scaled to the length 32,767 and rows of weights to at most 65,000: the product of the two,
and what rounding adds to it, is below 2^31. The root mean square of a row of 768 activations
then is 32,767 / sqrt(768) = 1,182, so a number of that size has 10 bits before the point; bfloat16 has 8 for
any number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32, int32

from pipeline.core.records import Float32, Int32
from pipeline.kernels.compiling import merged

ROW_LENGTH = 32_767  # Euclidean length of a row of activations, so each of its numbers is an int16
WEIGHT_LENGTH = 65_000  # largest length of a row of weights; the product of both is below 2^31
PANEL = 64  # rows of weights stored side by side


class Workspace(NamedTuple):
    """Memory for the product of some rows: the rows as int16, each row's factor, int32 sums."""

    rows: Any
    factors: Any
    sums: Any


def pack_rows(matrix: Float32) -> tuple[Int32, Float32]:
    """Weights float [n, k] as int16, and the factor that each row was divided by, float32 [n].

    The int16 are in the order in which a tile reads them. A panel is 64 rows of the matrix, and the two
    neighbouring numbers of a row that one lane of `vpdpwssd` multiplies are a pair, seen as one int32. A
    panel holds the first pair of its 64 rows, then their second pairs, and so on, so a tile, which goes
    through k and needs a pair of each row, reads memory in one stretch: int32 [n / 64, k / 2, 64], laid
    flat.
    """
    n, k = matrix.shape
    length, largest = np.linalg.norm(matrix, axis=1), np.abs(matrix).max(axis=1)
    factors = np.maximum(np.maximum(length / WEIGHT_LENGTH, largest / 32_767), np.float32(1e-30))
    whole = np.rint(matrix / factors[:, None]).astype(np.int16)
    panels = whole.reshape(n // PANEL, PANEL, k // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels).view(np.int32).reshape(-1), factors.astype(np.float32)


@merged
def round_rows(x: Float32, space: Workspace) -> None:
    """Write x float32 [n, k] to `space.rows` as int16, each row scaled to ROW_LENGTH and rounded."""
    n, k = x.shape
    for i in range(n):
        square = float32(1e-30)
        for j in range(k):
            square += x[i, j] * x[i, j]
        factor = float32(ROW_LENGTH) / np.sqrt(square)
        space.factors[i] = float32(1) / factor
        row = space.rows[i * k : (i + 1) * k]
        for j in range(k):
            row[j] = int32(np.rint(x[i, j] * factor))
