"""Rows of numbers as bytes, so that sums of their products are exact.

`vpdpbusd` multiplies numbers from 0 to 255 with numbers from -128 to 127. Weights are the latter, each row
scaled so that its largest is 127. Activations are the former, each row with two numbers of its own: x is
about (byte - zero) * factor. `zero` is the byte of the number 0, so that bytes reach from a row's least
number to its largest: what comes out of GELU is hardly below 0 and far above it, and would use half of a
range with 0 in its middle. The sum of byte * weight, less `zero` times the sum of the weights, is the product
in whole numbers.

No sum passes an int32: of k numbers it is at most 255 * 127 * k, and so is the product. That is below 2^31
for any k up to `LONGEST`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32

from pipeline.core.records import Float32, Int32
from pipeline.kernels.compiling import merged
from pipeline.kernels.functions import larger
from pipeline.kernels.int16 import PANEL

INT8_LIMIT = 127  # of the size of a weight
LONGEST = (2**31 - 1) // (255 * INT8_LIMIT)  # numbers of a row
STEPS = 254  # from a row's least number to its largest; with 255 a number may be rounded to 256


def in_panels(whole: Any) -> Int32:
    """Weights int8 [n, k] in the order in which a tile reads them.

    As `pack_rows` of int16, with four neighbouring numbers of a row in each int32: [n / 64, k / 4, 64], laid
    flat.
    """
    n, k = whole.shape
    panels = whole.reshape(n // PANEL, PANEL, k // 4, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels).view(np.int32).reshape(-1)


def row_factors(matrix: Float32) -> Float32:
    """For each row of weights what its numbers are divided by before they are rounded, float32 [n]."""
    factors: Float32 = np.maximum(np.abs(matrix).max(axis=1) / INT8_LIMIT, np.float32(1e-30))
    return factors.astype(np.float32)


@merged
def round_to_bytes(x: Float32, scale: Float32, row: Any) -> Any:
    """Write x * scale, float32 [k] each, to `row` uint8 [k] as the module says.

    Returns:
        The factor of the row, and the byte that stands for 0.
    """
    highest, lowest = float32(1e-30), float32(0)  # the second times -1
    for j in range(len(x)):
        value = x[j] * scale[j]
        highest = larger(highest, value)
        lowest = larger(lowest, -value)
    per_step = float32(STEPS) / (highest + lowest)
    zero = np.floor(lowest * per_step + float32(0.5))
    for j in range(len(x)):
        row[j] = int32(x[j] * scale[j] * per_step + zero + float32(0.5))
    return float32(1) / per_step, int32(zero)
