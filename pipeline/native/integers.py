"""Rows of numbers as int16 or int8, so that sums of their products are exact.

Each row has a factor; a sum of integer products times both rows' factors is the product again. By Cauchy and
Schwarz |x . w| <= |x| |w|, so a sum, with what rounding adds to it, stays below 2^31 whatever the number of
columns: in int16, rows of tokens' vectors, queries and shares have the Euclidean length 32,767, and what they
are multiplied with at most 65,000.

Linear layers are summed in blocks of 128 columns: the fewer columns share a length, the more finely they are
rounded. Each block of a row of activations has a factor of its own. A row of weights has one for all, that of
its longest block, so that the sum of a block is added by one multiplication. Weights get more of the 31 bits
than activations: their errors are the same for all tokens of a text, and do not average out.

Finer rounding was measured and is too slow. With blocks of 64 columns, a factor for each block of weights,
and columns of normalized activations scaled to the size of their weights (SmoothQuant), the median difference
of MiniLM's scores from fp32's falls from 1.9e-5 to 1.2e-5, and to 1.0e-5 where attention is summed in blocks
of 64 keys. Blocks of 64 columns take 17% more time with AMX, which computes a block as fast as its sums are
scaled, and 2 to 8% more with VNNI. Scaled columns alone give 1.6e-5.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pipeline.core.records import Array, Float32, Int32, UInt8

ROW_LENGTH = 32_767  # Euclidean length of a row of activations, so each of its numbers is an int16
WEIGHT_LENGTH = 65_000  # largest length of a row of weights; the product of both is below 2^31
BLOCK = 128  # columns whose sum is exact in a linear layer; two steps of AMX
BLOCK_LENGTH, BLOCK_WEIGHT_LENGTH = 38_600, 55_600  # largest of a block of activations, and of weights
INT8_LIMIT = 127  # largest number of a row in int8
PANEL = 64  # rows stored side by side
TILE_ROWS, TILE_BYTES = 16, 64  # of a tile of AMX


def aligned_bytes(size: int) -> UInt8:
    """Zeros, uint8 [size], that begin at a cache line: a tile whose rows cross two takes twice as long."""
    memory = np.zeros(size + TILE_BYTES, np.uint8)
    start = TILE_BYTES - memory.ctypes.data % TILE_BYTES
    return memory[start : start + size]


def aligned_memory(kind: DTypeLike, *shape: int) -> Any:
    """An array whose numbers are not set, which begins at a cache line."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    memory = np.empty(size + TILE_BYTES, np.uint8)
    start = -memory.ctypes.data % TILE_BYTES
    return memory[start : start + size].view(kind).reshape(shape)


def pack_rows(matrix: Float32) -> tuple[Int32, Float32]:
    """Rows float32 [n, k] as int16 in panels, and the factor that each row was divided by, float32 [n]."""
    return _pack(matrix, np.linalg.norm(matrix, axis=1) / WEIGHT_LENGTH)


def pack_blocks(matrix: Float32) -> tuple[Int32, Float32]:
    """As `pack_rows`, for a linear layer: no block is longer than BLOCK_WEIGHT_LENGTH."""
    n, k = matrix.shape
    blocks = np.pad(matrix, ((0, 0), (0, -k % BLOCK))).reshape(n, -1, BLOCK)
    return _pack(matrix, np.linalg.norm(blocks, axis=2).max(axis=1) / BLOCK_WEIGHT_LENGTH)


def _pack(matrix: Float32, factors: Float32) -> tuple[Int32, Float32]:
    """Rows divided by these factors, or by larger ones where a number would pass an int16."""
    factors = np.maximum(np.maximum(factors, np.abs(matrix).max(axis=1) / 32_767), np.float32(1e-30))
    whole = np.rint(matrix / factors[:, None]).astype(np.int16)
    return _in_panels(whole), factors.astype(np.float32)


def pack_bytes(matrix: Float32) -> tuple[Int32, Float32]:
    """As `pack_rows`, in int8; each row is scaled so that its largest number is 127."""
    factors = np.maximum(np.abs(matrix).max(axis=1) / INT8_LIMIT, np.float32(1e-30)).astype(np.float32)
    return _in_panels(np.rint(matrix / factors[:, None]).astype(np.int8)), factors


def _in_panels(whole: Array) -> Int32:
    """Integers [n, k] in the order in which a tile reads them, flat.

    A panel is 64 rows. The two int16, or four int8, that one lane of an instruction multiplies lie in one
    int32. A panel holds the first int32 of its 64 rows, then their second ones, and so on, so a tile, which
    goes through k and needs an int32 of each row, reads memory in one stretch: [n / 64, k / 2 or 4, 64].
    """
    n, k = whole.shape
    per_word = 4 // whole.itemsize
    panels = whole.reshape(n // PANEL, PANEL, k // per_word, per_word).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels).view(np.int32).reshape(-1)
