"""How are vectors kept? In shards of consecutive rows, each a `.npy` file: the unit of work and of loss."""

from __future__ import annotations

import itertools
import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Embeddings, Float32, Int64
from pipeline.storage.artifacts import Artifact

Precision = Literal["fp32", "fp16"]
_NAME = re.compile(r"rows-(\d{10})-(\d{10})\.npy")
LONGEST = 2.0**62  # squared distances of vectors up to this length do not overflow in float32
TOLERANCE = 1e-3  # of a length that should be 1; bf16 and fp16 keep within it


def missing(rows: int, shard_rows: int, whole: Iterable[str]) -> list[tuple[int, int]]:
    """The row ranges [start, stop) still to make, at most `shard_rows` long.

    Args:
        rows: Of all vectors.
        shard_rows: Longest shard.
        whole: Names of the shards that are there, of any length: an earlier run may have cut otherwise.
    """
    ranges, start = [], 0
    for first, last in [*sorted(_span(name) for name in whole if _NAME.fullmatch(name)), (rows, rows)]:
        while start < first:
            stop = min(start + shard_rows, first)
            ranges.append((start, stop))
            start = stop
        start = max(start, last)
    return ranges


def split(rows: int, parts: int) -> list[tuple[int, int]]:
    """Row ranges [start, stop) of nearly equal length, none of them empty."""
    bounds = np.linspace(0, rows, min(parts, rows) + 1).astype(int).tolist()
    return list(itertools.pairwise(bounds))


def shard_name(start: int, stop: int) -> str:
    """What the file of the rows [start, stop) is called."""
    return f"rows-{start:010d}-{stop:010d}.npy"


def stored(vectors: Float32, start: int, precision: Precision) -> Array:
    """Vectors, from row `start` on, as their shard keeps them.

    Raises:
        InputError: A component is too large for fp16.
    """
    if precision == "fp32":
        return vectors
    largest = float(np.abs(vectors).max(initial=0))
    most = float(np.finfo(np.float16).max)
    if largest > most:
        raise InputError(
            f"model.vector_precision: a vector from row {start} on has a component of {largest:.4g}",
            allowed=f"up to {most:,.0f} in fp16",
            fix="set model.vector_precision: fp32",
        )
    return vectors.astype(np.float16)


def save(path: Path, array: Array) -> None:
    """Write an array to a `.npy` file of just this name."""
    with open(path, "wb") as file:
        np.save(file, array, allow_pickle=False)


def open_embeddings(artifact: Artifact) -> Embeddings:
    """All shards of a finished artifact, memory-mapped.

    Raises:
        InputError: Their dimensions differ.
    """
    names = sorted(name for name in artifact.files if _NAME.fullmatch(name))
    shards = [np.load(artifact.path(name), mmap_mode="r", allow_pickle=False) for name in names]
    for name, shard in zip(names, shards, strict=True):
        if shard.shape[1] != shards[0].shape[1]:
            raise InputError(
                f"{artifact.folder}: from row {_span(name)[0]} on vectors have {shard.shape[1]} dimensions, "
                f"before {shards[0].shape[1]}",
                allowed="one dimension for all",
                fix="check the model, and run again with --fresh",
            )
    return Embeddings(tuple(shards))


def open_rows(artifact: Artifact, start: int, stop: int) -> Embeddings:
    """Rows [start, stop) of a finished artifact, memory-mapped; shards that hold none are not opened."""
    spans = {name: _span(name) for name in artifact.files if _NAME.fullmatch(name)}
    names = [name for name, (first, last) in spans.items() if first < stop and start < last]
    before = spans[names[0]][0]
    return _among(open_embeddings(artifact.only(*names)), start - before, stop - before)


def match(count: int, dimension: int, passages: int, queries: Float32) -> None:
    """Refuse vectors that are not of the passages, or not for the queries, that they are to serve.

    Args:
        count: How many vectors there are, or are in an index.
        dimension: Theirs.
        passages: How many the collection has.
        queries: float32 [queries, dimension].

    Raises:
        InputError: The counts or the dimensions differ.
    """
    if count != passages:
        raise InputError(
            f"the index holds {count:,} vectors, and the collection {passages:,} passages",
            allowed="a vector for each passage",
            fix="run again with --fresh",
        )
    if queries.shape[1] != dimension:
        raise InputError(
            f"the queries' vectors have {queries.shape[1]} dimensions and the index {dimension}",
            fix="give both the same model",
        )


def _among(embeddings: Embeddings, start: int, stop: int) -> Embeddings:
    """Rows [start, stop) of them, as memory-mapped as they are."""
    return Embeddings(tuple(shard[a:b] for shard, a, b in _within(embeddings, start, stop)))


def read(embeddings: Embeddings, start: int, stop: int) -> Float32:
    """float32 [stop - start, dimension]: consecutive rows; still mapped if one float32 shard has them all."""
    parts = [shard[a:b] for shard, a, b in _within(embeddings, start, stop)]
    if len(parts) == 1:
        return np.asanyarray(parts[0], np.float32)
    block, filled = np.empty((stop - start, embeddings.dimension), np.float32), 0
    for part in parts:
        block[filled : filled + len(part)] = part
        filled += len(part)
    return block


def read_all(artifact: Artifact) -> Float32:
    """float32 [rows, dimension]: all vectors of a finished artifact, as the few of the queries are read."""
    embeddings = open_embeddings(artifact)
    return read(embeddings, 0, len(embeddings))


def pick(embeddings: Embeddings, rows: Int64) -> Float32:
    """float32 [n, dimension]: rows, rising or equal, from anywhere; what was read for it is let go."""
    picked = np.empty((len(rows), embeddings.dimension), np.float32)
    starts = np.cumsum([0, *map(len, embeddings.shards)])
    for number in np.unique(np.searchsorted(starts, rows, side="right") - 1):
        first, last = np.searchsorted(rows, starts[number : number + 2])
        shard = embeddings.shards[number]
        picked[first:last] = shard[rows[first:last] - starts[number]]
        forget(Embeddings((shard,)), 0, len(shard))  # pages come in by the megabyte, around each row
    return picked


def forget(embeddings: Embeddings, start: int, stop: int) -> None:
    """Let go of the memory that read rows of memory-mapped shards hold; the system may keep them cached."""
    for shard, a, b in _within(embeddings, start, stop):
        mapped = getattr(shard, "_mmap", None)  # of numpy.memmap, which offers no other way to it
        if mapped is None:
            continue
        offset = _address(shard) - _address(np.frombuffer(mapped, np.uint8))
        row_bytes = shard.strides[0]
        first = (offset + a * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, first, offset + b * row_bytes - first)


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _within(embeddings: Embeddings, start: int, stop: int) -> Iterator[tuple[Float32, int, int]]:
    """The shards that hold rows [start, stop), each with the span [a, b) of its own rows among them."""
    before = 0
    for shard in embeddings.shards:
        a, b = max(start - before, 0), min(stop - before, len(shard))
        if a < b:
            yield shard, a, b
        before += len(shard)


def check(vectors: Float32, ids: Iterable[str], normalized: bool) -> None:
    """Refuse vectors no score can be trusted on.

    Args:
        vectors: float32 [n, dimension].
        ids: Of the n texts they were made of.
        normalized: Whether every length must be 1.

    Raises:
        InputError: A vector holds NaN or infinity, or is too long, or not of length 1; the first is named.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    wrong = ~np.isfinite(lengths)
    what = "holds NaN or infinity"
    fix = "check the model's weights, or try model.precision: fp32; of vectors in a file, make them again"
    if not wrong.any() and normalized:
        wrong = np.abs(lengths - 1) > TOLERANCE
        what = f"has length {lengths[np.argmax(wrong)]:.4g} where model.normalize says 1"
        fix = "check the model's weights; of vectors in a file, scale them or set model.normalize to false"
    elif not wrong.any():
        wrong = lengths > LONGEST
        what = f"is longer than {LONGEST:.2g}: scores would overflow"
        fix = "set model.normalize to true; or scale the vectors"
    if wrong.any():
        first = list(ids)[int(np.argmax(wrong))]
        raise InputError(
            f"the vector of '{first}' {what}; {int(wrong.sum())} of {len(wrong)} like it",
            fix=fix,
        )


def _span(name: str) -> tuple[int, int]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"not a shard: {name}")
    return int(match[1]), int(match[2])
