"""Shards of rows of different lengths on disk: a text's words with their weights, or its tokens' vectors.

A shard is one file of several arrays, in NumPy's `.npy` format, one after the other, each from a multiple of
64 bytes: so the shard is whole or does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pipeline.core.records import Array, Int64, RaggedRows
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Draft

ALIGNMENT = 64


def save_shard(draft: Draft, start: int, stop: int, content: RaggedRows) -> None:
    """Write what is made of rows [start, stop), by itself or an index of them, as one file."""
    name = vector_shards.shard_name(start, stop, ragged=True)
    with draft.file(name) as path, open(path, "wb") as file:
        write_arrays(file, (content.ends, *content.columns))


def open_shards(artifact: Artifact) -> list[tuple[int, int, RaggedRows]]:
    """All shards of a finished artifact, memory-mapped, in order, each with the rows [start, stop) of it."""
    shards = []
    for name, start, stop in vector_shards.shards_of(artifact.files):
        ends, *columns = map_arrays(artifact.folder / name)
        shards.append((start, stop, RaggedRows(ends, tuple(columns))))
    return shards


def read_some_rows(artifact: Artifact, rows: Int64) -> RaggedRows:
    """Rows of a finished artifact by their numbers, int64 [n], in any order; not all rows are in memory."""
    parts, positions = [], []
    for start, stop, shard in open_shards(artifact):
        inside = np.flatnonzero((rows >= start) & (rows < stop))
        if len(inside):
            parts.append(take_rows(shard, rows[inside] - start))
            positions.append(inside)
    return take_rows(join_rows(parts), np.argsort(np.concatenate(positions)))


def slice_rows(rows: RaggedRows, start: int, stop: int) -> RaggedRows:
    """Rows [start, stop), without a copy of their columns."""
    first = int(rows.ends[start - 1]) if start else 0
    last = int(rows.ends[stop - 1]) if stop else 0
    ends = np.asarray(rows.ends[start:stop]) - first
    return RaggedRows(ends, tuple(column[first:last] for column in rows.columns))


def bounds_of(parts: Sequence[RaggedRows]) -> Int64:
    """int64 [rows + 1]: where each row begins in all parts one after the other, and the end."""
    return np.cumsum(np.concatenate([[0], *(part.lengths for part in parts)]), dtype=np.int64)


def join_rows(parts: Sequence[RaggedRows]) -> RaggedRows:
    """The rows of one or more parts, one after the other."""
    columns = zip(*(part.columns for part in parts), strict=True)
    return RaggedRows(bounds_of(parts)[1:], tuple(np.concatenate(column) for column in columns))


def take_rows(rows: RaggedRows, order: Int64) -> RaggedRows:
    """The rows with the numbers `order`, int64 [n], in that order."""
    starts = rows.ends - rows.lengths
    lengths = rows.lengths[order]
    ends = np.cumsum(lengths)
    entries = np.repeat(starts[order] - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return RaggedRows(ends, tuple(column[entries] for column in rows.columns))


def parts_of(shards: Sequence[RaggedRows], most: int) -> Iterator[tuple[int, RaggedRows]]:
    """All rows of shards, in parts of at most `most` entries or of one row; each with its first row.

    The parts do not depend on how the rows are cut into shards.
    """
    ends = list(accumulate(map(len, shards)))
    for start, stop in runs(bounds_of(shards), most):
        spans = vector_shards.spans(ends, start, stop)
        yield start, join_rows([slice_rows(shards[number], a, b) for number, a, b in spans])


def runs(bounds: Int64, most: int) -> list[tuple[int, int]]:
    """Rows in runs [start, stop) of at most `most` entries or of one row; `bounds` int64 [rows + 1]."""
    spans, start = [], 0
    while start < len(bounds) - 1:
        stop = int(np.searchsorted(bounds, bounds[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), len(bounds) - 1)
        spans.append((start, stop))
        start = stop
    return spans


def write_arrays(file: BinaryIO, arrays: Sequence[Array]) -> None:
    """Write arrays of numbers to an empty file."""
    for array in arrays:
        file.write(bytes(-file.tell() % ALIGNMENT))
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def map_arrays(path: Path) -> tuple[Array, ...]:
    """The arrays of a file that `write_arrays` wrote, memory-mapped."""
    arrays: list[Array] = []
    size = path.stat().st_size
    with open(path, "rb") as file:
        while file.tell() < size:
            file.seek(-file.tell() % ALIGNMENT, 1)
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            bytes_of = int(np.prod(shape)) * dtype.itemsize
            if bytes_of:  # an empty range of a file cannot be mapped
                arrays.append(np.memmap(path, dtype, "r", file.tell(), shape))
            else:
                arrays.append(np.empty(shape, dtype))
            file.seek(bytes_of, 1)
    return tuple(arrays)
