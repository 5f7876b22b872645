"""Shards of vectors on disk, `.npy` files of consecutive rows, and the forms that vectors are read in.

Vectors are stored whole and as a model gives them, and a killed run loses one shard at most. A float form
(`VectorForm`) keeps the first dimensions, scales to length 1 and rounds to float16 whenever vectors are read:
all float forms share one file, and no vector is stored twice. Each row is computed by itself and in one
order: it is the same, bit by bit, whichever rows are read with it.

A quantized form is stored, as it is smaller: `quantize_int8` and `quantize_binary` are those of the function
`quantize_embeddings` of sentence-transformers.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import AS_STORED, Array, BoolArray, Embeddings, Float32, Float64, Int64, VectorForm
from pipeline.storage.artifacts import Artifact

_NAME = re.compile(r"rows-(\d{10})-(\d{10})\.(npy|ragged)")
PIECE = 256  # rows computed at once: they stay in the processor's cache
LENGTH_TOLERANCE = 1e-3  # by which a length may differ from 1; rounding to bf16 or fp16 moves it less
HALVES_LIMIT = float(np.finfo(np.float16).max)
LEVELS = 255  # steps between the least and the largest number of a dimension in int8
OFFSET = 128  # subtracted from unsigned bytes
MAX_LENGTH = 2.0**62  # squared distances of vectors up to this length do not overflow in float32


def missing_ranges(rows: int, shard_rows: int, whole: Iterable[str]) -> list[tuple[int, int]]:
    """Row ranges [start, stop) that no existing shard holds, of at most `shard_rows` rows, out of `rows`.

    The shards named in `whole` may have any length: an earlier run may have used another `shard_rows`.
    """
    ranges, start = [], 0
    for _, first, last in [*shards_of(whole), ("", rows, rows)]:
        ranges += [(at, min(at + shard_rows, first)) for at in range(start, first, shard_rows)]
        start = max(start, last)
    return ranges


def split_evenly(rows: int, parts: int) -> list[tuple[int, int]]:
    """Row ranges [start, stop) of nearly equal length, none of them empty."""
    return list(itertools.pairwise(np.linspace(0, rows, min(parts, rows) + 1).astype(int).tolist()))


def shard_name(start: int, stop: int, ragged: bool = False) -> str:
    """Name of the file that holds rows [start, stop): of one array, or of `ragged_shards`."""
    return f"rows-{start:010d}-{stop:010d}.{'ragged' if ragged else 'npy'}"


def shards_of(names: Iterable[str]) -> list[tuple[str, int, int]]:
    """The files among some that have a `shard_name`, in order, each with the rows [start, stop) in it."""
    matches = filter(None, map(_NAME.fullmatch, sorted(names)))
    return [(match[0], int(match[1]), int(match[2])) for match in matches]


def open_embeddings(artifact: Artifact, form: VectorForm = AS_STORED) -> Embeddings:
    """All shards of a finished artifact, memory-mapped, to be read in a form."""
    shards = tuple(artifact.array(name) for name, _, _ in shards_of(artifact.files))
    check_widths(shards)
    return Embeddings(shards, form)


def check_widths(parts: Sequence[Array]) -> None:
    """Refuse vectors of several dimensions, as those of a server whose model has changed."""
    dimensions = sorted({part.shape[1] for part in parts})
    if len(dimensions) > 1:
        raise InputError(
            f"stored vectors have {' and '.join(map(str, dimensions))} dimensions",
            allowed="the same number for all",
            fix="check the model; if it has changed, set model.revision, or run again with --fresh",
        )


def rows_of(embeddings: Embeddings, start: int, stop: int) -> Embeddings:
    """Rows [start, stop), without a copy."""
    pieces = (embeddings.shards[number][a:b] for number, a, b in spans(embeddings.ends, start, stop))
    return Embeddings(tuple(pieces), embeddings.form)


def check_counts(count: int, dimension: int, passages: int, queries: Float32) -> None:
    """Refuse `count` vectors that fit neither the number of passages nor the queries, float32 [n, d]."""
    if count != passages:
        raise InputError(
            f"the index holds {count:,} vectors, and the collection {passages:,} passages",
            allowed="a vector for each passage",
            fix="run again with --fresh",
        )
    if queries.shape[1] != dimension:
        raise InputError(
            f"the queries' vectors have {queries.shape[1]} dimensions and the index {dimension}",
            fix="use the same model for both",
        )


def read_rows(embeddings: Embeddings, start: int, stop: int) -> Float32:
    """float32 [stop - start, dimension]: consecutive rows in the embeddings' form.

    They are not copied if one float32 shard holds them all and they are read as stored.
    """
    rows = np.empty((stop - start, embeddings.dimension), np.float32)
    done = 0
    for number, a, b in spans(embeddings.ends, start, stop):
        part = embeddings.shards[number][a:b]
        if len(part) == len(rows) and part.dtype == np.float32 and embeddings.form == AS_STORED:
            return np.asanyarray(part)
        apply_form(part, embeddings.form, rows[done : done + len(part)], start + done)
        done += len(part)
    return rows


def gather_rows(embeddings: Embeddings, rows: Int64) -> Float32:
    """float32 [n, dimension]: rows in ascending order, repeats allowed; releases the memory of each shard."""
    picked = np.empty((len(rows), embeddings.dimension), np.float32)
    starts = np.array([0, *embeddings.ends])
    for number in np.unique(np.searchsorted(starts, rows, side="right") - 1):
        first, last = np.searchsorted(rows, starts[number : number + 2])
        shard = embeddings.shards[number]
        stored = shard[rows[first:last] - starts[number]]
        apply_form(stored, embeddings.form, picked[first:last], int(rows[first]))
        machine.release_pages(shard)  # the system reads megabytes around each row
    return picked


def read_some_rows(artifact: Artifact, rows: Int64) -> Float32:
    """float32 [n, dimension]: rows of a finished artifact as they are stored, in any order."""
    order = np.argsort(rows, kind="stable")
    ascending = gather_rows(open_embeddings(artifact), rows[order])
    picked = np.empty_like(ascending)
    picked[order] = ascending
    return picked


def join_rows(parts: Sequence[Float32], order: Int64) -> Float32:
    """float32 [rows, dimension]: the rows of several parts, one after the other, taken in an order."""
    check_widths(parts)
    return np.concatenate(parts)[order]


def release_memory(embeddings: Embeddings, start: int, stop: int) -> None:
    """Release the memory that rows of memory-mapped shards occupy; the system may keep them in its cache."""
    for number, a, b in spans(embeddings.ends, start, stop):
        machine.release_pages(embeddings.shards[number][a:b])


def spans(ends: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The number of each shard with some of rows [start, stop), its own rows [a, b); `Embeddings.ends`."""
    for number in range(bisect_right(ends, start), len(ends)):
        before = ends[number - 1] if number else 0
        if before >= stop:
            return
        yield number, max(start - before, 0), min(stop, ends[number]) - before


def check_vectors(vectors: Float32, ids: Iterable[str], normalized: bool) -> None:
    """Refuse vectors with NaN or infinity, too long, or, if `normalized`, not of length 1.

    `vectors` are float32 [n, dimension]; the message names the first refused one by its text's id.
    """
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), PIECE):
        piece = slice(start, start + PIECE)
        lengths[piece] = np.linalg.norm(vectors[piece].astype(np.float64), axis=1)
    fits = np.abs(lengths - 1) <= LENGTH_TOLERANCE if normalized else lengths <= MAX_LENGTH
    if not fits.all():  # NaN and infinity do not fit either
        raise _unfit_vector(lengths, fits, list(ids), normalized)


def _unfit_vector(lengths: Float64, fits: BoolArray, ids: list[str], normalized: bool) -> InputError:
    """What is wrong with the first vector that does not fit, by the lengths of all, float64 [n]."""
    finite = np.isfinite(lengths)
    wrong = ~fits if finite.all() else ~finite
    first = int(np.argmax(wrong))
    if not finite.all():
        what = "holds NaN or infinity, or a number that float32 cannot hold"
        fix = "check the model's weights, or try model.precision: fp32; make vectors from a file again"
    elif normalized:
        what = f"has length {lengths[first]:.4g}, and with model.normalize it should be 1"
        fix = "check the model's weights; for vectors from a file, scale them or set model.normalize to false"
    else:
        what = f"is longer than {MAX_LENGTH:.2g}, so that scores would overflow"
        fix = "set model.normalize to true; or scale the vectors"
    affected = f"{int(wrong.sum())} of {len(wrong)} vectors affected"
    return InputError(f"the vector of '{ids[first]}' {what}; {affected}", fix=fix)


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
        found: Float64 = (left * right).sum(axis=1)
        found /= np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
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
    """Fill `out`, float32 [n, dimension], with stored vectors in a form.

    `stored` are float32, float16 or int8 [n, stored dimension]; messages number them from `first_row` on.

    Raises:
        InputError: A vector cannot be scaled to length 1, or has a number that float16 does not hold.
    """
    if form.dimensions:
        check_dimensions(form.dimensions, stored.shape[1])
    cut = form.dimensions not in (None, stored.shape[1])
    for start in range(0, len(stored), PIECE):
        rows = np.asarray(stored[start : start + PIECE])
        if form.given_at_length_1:
            _refuse_other_lengths(rows, first_row + start)
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
