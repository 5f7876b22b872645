"""Forms of vectors: what is made of the vectors of a model, which are stored whole and as it gives them.

A float form (`VectorForm`) keeps the first dimensions, scales to length 1 and rounds to float16, whenever
vectors are read. So all float forms share one file, and no vector is stored twice. Each row is computed by
itself and in one order: it is the same, bit by bit, whichever rows are read with it.

A quantized form is stored, as it is smaller: `quantize_int8` and `quantize_binary` are those of the function
`quantize_embeddings` of sentence-transformers.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Float32, Float64, VectorForm

PIECE = 256  # rows computed at once: they stay in the processor's cache
LENGTH_TOLERANCE = 1e-3  # by which a length may differ from 1; rounding to bf16 or fp16 moves it less
HALVES_LIMIT = float(np.finfo(np.float16).max)
LEVELS = 255  # steps between the least and the largest number of a dimension in int8
OFFSET = 128  # subtracted from unsigned bytes


def unit_vectors(rows: Float32) -> Float32:
    """float32 [n, dimension]: the rows scaled to length 1; rows of zeros stay as they are."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    np.divide(wide, lengths, out=wide, where=lengths > 0)
    return wide.astype(np.float32)


def cosines(a: Float32, b: Float32) -> Float64:
    """float64 [n]: the cosine of each row of two matrices; NaN where a row is all zeros."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Float64 = (left * right).sum(axis=1) / (
            np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        )
    return found


def check_dimensions(kept: int, dimension: int) -> None:
    """Refuse to keep more dimensions of a vector than it has."""
    if kept > dimension:
        raise InputError(
            f"model.truncate_dim: {kept}, but the model makes vectors of {dimension} dimensions",
            allowed=f"1 to {dimension}",
            fix="lower it, or set it to null",
        )


def apply_form(stored: Array, form: VectorForm, out: Float32, first_row: int) -> None:
    """Bring stored vectors into a form.

    Args:
        stored: float32, float16 or int8 [n, stored dimension].
        form: The form.
        out: float32 [n, dimension], which is filled.
        first_row: The number of the first of these rows, for messages.

    Raises:
        InputError: A vector cannot be scaled to length 1, or has a number that float16 does not hold.
    """
    dimension = stored.shape[1]
    if form.dimensions:
        check_dimensions(form.dimensions, dimension)
    cut = form.dimensions not in (None, dimension)
    if not (cut or form.halves or form.normalize):
        out[:] = stored
        return
    for start in range(0, len(stored), PIECE):
        rows = np.asarray(stored[start : start + PIECE])
        if form.given_at_length_1:
            _refuse_other_lengths(rows, first_row + start)
        if cut:
            rows = rows[:, : form.dimensions]
        if form.normalize and (cut or not form.given_at_length_1):
            rows = unit_vectors(rows)
            zero = ~rows.any(axis=1)
            if zero.any():
                raise _wrong_length(first_row + start + int(np.argmax(zero)), 0.0)
        if form.halves:
            rows = to_halves(rows, first_row + start)
        out[start : start + PIECE] = rows


def to_halves(rows: Array, first_row: int) -> Array:
    """float16 [n, dimension] of float32 rows; a number that is too large is refused."""
    largest = float(np.abs(rows).max(initial=0))
    if largest > HALVES_LIMIT:
        raise InputError(
            f"model.vector_precision: a vector from row {first_row} on has a component of {largest:.4g}",
            allowed=f"up to {HALVES_LIMIT:,.0f} in fp16",
            fix="set model.vector_precision: fp32",
        )
    return rows.astype(np.float16)


def _refuse_other_lengths(rows: Array, first_row: int) -> None:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    wrong = np.abs(lengths - 1) > LENGTH_TOLERANCE
    if wrong.any():
        first = int(np.argmax(wrong))
        raise _wrong_length(first_row + first, float(lengths[first]))


def _wrong_length(row: int, length: float) -> InputError:
    return InputError(
        f"the vector in row {row:,} has length {length:.4g}, and with model.normalize it should be 1",
        fix="check the model's weights; for vectors from a file, scale them or set model.normalize to false",
    )


def quantize_int8(rows: Float32, ranges: Float32) -> Array:
    """int8 [n, dimension]: the number of the step between the ends of its dimension's range, minus 128.

    As `quantize_embeddings(rows, "int8", ranges)` of sentence-transformers computes it, in float32. `ranges`
    are float32 [2, dimension], the least and the largest number of each dimension.
    """
    starts, steps = _steps(ranges)
    levels = np.clip(np.floor((rows - starts) / steps), 0, LEVELS)
    quantized: Array = (levels - OFFSET).astype(np.int8)
    return quantized


def dequantize_int8(rows: Array, ranges: Float32) -> Array:
    """float64 [n, dimension]: where each number's step begins, as sentence-transformers rescores with it."""
    starts, steps = _steps(ranges)
    return (rows.astype(np.float64) + OFFSET) * steps + starts


def _steps(ranges: Float32) -> tuple[Float32, Float32]:
    """The start and the size of the steps of each dimension; a constant dimension has steps of 1."""
    starts = ranges[0]
    steps: Float32 = (ranges[1] - starts) / LEVELS
    return starts, np.where(steps == 0, np.float32(1), steps)


def quantize_binary(rows: Float32) -> Array:
    """int8 [n, ceil(dimension / 8)]: a bit for each number, set if it is above 0, as bytes minus 128.

    As `quantize_embeddings(rows, "binary")` of sentence-transformers computes it.
    """
    return (np.packbits(rows > 0, axis=-1) - OFFSET).astype(np.int8)


def unpack_binary(rows: Array, dimension: int) -> Array:
    """uint8 [n, dimension], 0 or 1: the bits of rows of `quantize_binary`."""
    packed = np.asarray(rows).view(np.uint8) ^ np.uint8(OFFSET)
    return np.unpackbits(packed, axis=-1, count=dimension)
