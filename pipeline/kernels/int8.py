"""Rows of numbers as int8, so that sums of their products are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.records import Float32, Int32
from pipeline.kernels.int16 import PANEL

INT8_LIMIT = 127  # of the size of a number


def in_panels(whole: Any) -> Int32:
    """Rows int8 [n, k] in the order in which a tile reads them.

    As `pack_rows` of int16, with four neighbouring numbers of a row in each int32: [n / 64, k / 4, 64], laid
    flat.
    """
    n, k = whole.shape
    panels = whole.reshape(n // PANEL, PANEL, k // 4, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels).view(np.int32).reshape(-1)


def row_factors(matrix: Float32) -> Float32:
    """What the numbers of each row are divided by before they are rounded, float32 [n]."""
    factors: Float32 = np.maximum(np.abs(matrix).max(axis=1) / INT8_LIMIT, np.float32(1e-30))
    return factors.astype(np.float32)
