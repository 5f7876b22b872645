"""Shards of vectors on disk: `.npy` files of consecutive rows; a killed run loses one shard at most."""

from __future__ import annotations

import itertools
import mmap
import re
from collections.abc import Iterable, Iterator, Sequence, Sized

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import AS_STORED, Array, Embeddings, Float32, Int64, VectorForm
from pipeline.storage.artifacts import Artifact
from pipeline.storage.vector_forms import LENGTH_TOLERANCE, apply_form

_NAME = re.compile(r"rows-(\d{10})-(\d{10})\.(npy|ragged)")
CHECKED_ROWS = 256  # rows of which the lengths are computed at once
MAX_LENGTH = 2.0**62  # squared distances of vectors up to this length do not overflow in float32


def missing_ranges(rows: int, shard_rows: int, whole: Iterable[str]) -> list[tuple[int, int]]:
    """Row ranges [start, stop) that no existing shard holds, of at most `shard_rows` rows, out of `rows`.

    The shards named in `whole` may have any length: an earlier run may have used another `shard_rows`.
    """
    ranges = []
    start = 0
    for _, first, last in [*shards_of(whole), ("", rows, rows)]:
        ranges += [(at, min(at + shard_rows, first)) for at in range(start, first, shard_rows)]
        start = max(start, last)
    return ranges


def split_evenly(rows: int, parts: int) -> list[tuple[int, int]]:
    """Row ranges [start, stop) of nearly equal length, none of them empty."""
    bounds = np.linspace(0, rows, min(parts, rows) + 1).astype(int).tolist()
    return list(itertools.pairwise(bounds))


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
    pieces = (embeddings.shards[number][a:b] for number, a, b in spans(embeddings.shards, start, stop))
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
    for number, a, b in spans(embeddings.shards, start, stop):
        part = embeddings.shards[number][a:b]
        if len(part) == len(rows) and part.dtype == np.float32 and embeddings.form == AS_STORED:
            return np.asanyarray(part)
        apply_form(part, embeddings.form, rows[done : done + len(part)], start + done)
        done += len(part)
    return rows


def gather_rows(embeddings: Embeddings, rows: Int64) -> Float32:
    """float32 [n, dimension]: rows in ascending order, repeats allowed; releases the memory of each shard."""
    picked = np.empty((len(rows), embeddings.dimension), np.float32)
    starts = np.cumsum([0, *map(len, embeddings.shards)])
    for number in np.unique(np.searchsorted(starts, rows, side="right") - 1):
        first, last = np.searchsorted(rows, starts[number : number + 2])
        shard = embeddings.shards[number]
        stored = shard[rows[first:last] - starts[number]]
        apply_form(stored, embeddings.form, picked[first:last], int(rows[first]))
        release_memory(Embeddings((shard,)), 0, len(shard))  # the system reads megabytes around each row
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
    for number, a, b in spans(embeddings.shards, start, stop):
        shard = embeddings.shards[number]
        mapped = getattr(shard, "_mmap", None)  # private: numpy.memmap has no public name for it
        if mapped is None:
            continue
        offset = shard.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
        row_bytes = shard.strides[0]
        first = (offset + a * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        machine.release_pages(shard, first, offset + b * row_bytes - first)


def spans(shards: Iterable[Sized], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """The number of each shard that holds some of rows [start, stop), and its own rows [a, b) of them."""
    before = 0
    for number, shard in enumerate(shards):
        if start < before + len(shard) and before < stop:
            yield number, max(start - before, 0), min(stop - before, len(shard))
        before += len(shard)


def check_vectors(vectors: Float32, ids: Iterable[str], normalized: bool) -> None:
    """Refuse vectors with NaN or infinity, too long, or, if `normalized`, not of length 1.

    `vectors` are float32 [n, dimension]; the message names the first refused one by its text's id.
    """
    lengths = np.empty(len(vectors))
    for start in range(0, len(vectors), CHECKED_ROWS):  # float64 copies stay in the processor's cache
        piece = slice(start, start + CHECKED_ROWS)
        lengths[piece] = np.linalg.norm(vectors[piece].astype(np.float64), axis=1)
    wrong = ~np.isfinite(lengths)
    what = "holds NaN or infinity, or a number that float32 cannot hold"
    fix = "check the model's weights, or try model.precision: fp32; make vectors from a file again"
    if not wrong.any() and normalized:
        wrong = np.abs(lengths - 1) > LENGTH_TOLERANCE
        what = f"has length {lengths[np.argmax(wrong)]:.4g}, and with model.normalize it should be 1"
        fix = "check the model's weights; for vectors from a file, scale them or set model.normalize to false"
    elif not wrong.any():
        wrong = lengths > MAX_LENGTH
        what = f"is longer than {MAX_LENGTH:.2g}, so that scores would overflow"
        fix = "set model.normalize to true; or scale the vectors"
    if wrong.any():
        first = list(ids)[int(np.argmax(wrong))]
        affected = f"{int(wrong.sum())} of {len(wrong)} vectors affected"
        raise InputError(f"the vector of '{first}' {what}; {affected}", fix=fix)
