"""Shards of rows of different lengths on disk: a text's words with their weights, or its tokens' vectors.

A shard is one file of several arrays, in NumPy's `.npy` format, one after the other, each from a multiple of
64 bytes: so the shard is whole or does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pipeline.core.records import Array, Int64, RaggedRows
from pipeline.storage import vector_shards
from pipeline.storage.artifacts import Artifact, Draft

ALIGNMENT = 64


def save_rows(draft: Draft, start: int, rows: RaggedRows) -> None:
    """Write consecutive rows, of which the first has the number `start`, as one file."""
    save_shard(draft, start, start + len(rows), rows)


def save_shard(draft: Draft, start: int, stop: int, content: RaggedRows) -> None:
    """Write what is made of rows [start, stop), by itself or an index of them, as one file."""
    name = vector_shards.shard_name(start, stop, ragged=True)
    with draft.file(name) as path, open(path, "wb") as file:
        write_arrays(file, (content.ends, *content.columns))


def open_shards(artifact: Artifact) -> list[tuple[int, int, RaggedRows]]:
    """All shards of a finished artifact, memory-mapped, in order, each with the rows [start, stop) of it."""
    names = sorted(name for name in artifact.files if vector_shards.is_shard(name))
    shards = []
    for name in names:
        ends, *columns = map_arrays(artifact.path(name))
        shards.append((*vector_shards.row_range(name), RaggedRows(ends, tuple(columns))))
    return shards


def open_rows(artifact: Artifact) -> tuple[RaggedRows, ...]:
    """All shards of a finished artifact, memory-mapped, in order."""
    return tuple(shard for _, _, shard in open_shards(artifact))


def read_all_rows(artifact: Artifact) -> RaggedRows:
    """All rows of a finished artifact, in memory; for queries, which are few."""
    return join_rows(open_rows(artifact))


def read_some_rows(artifact: Artifact, rows: Int64) -> RaggedRows:
    """Rows of a finished artifact by their numbers, int64 [n], in any order; not all rows are in memory."""
    parts, positions = [], []
    for start, stop, shard in open_shards(artifact):
        inside = np.flatnonzero((rows >= start) & (rows < stop))
        if len(inside):
            parts.append(take_rows(shard, rows[inside] - start))
            positions.append(inside)
    return join_and_order(parts, np.argsort(np.concatenate(positions)))


def join_and_order(parts: Sequence[RaggedRows], order: Int64) -> RaggedRows:
    """The rows of several parts, one after the other, taken in an order, int64 [rows]."""
    return take_rows(join_rows(parts), order)


def slice_rows(rows: RaggedRows, start: int, stop: int) -> RaggedRows:
    """Rows [start, stop), without a copy of their columns."""
    first = int(rows.ends[start - 1]) if start else 0
    last = int(rows.ends[stop - 1]) if stop else 0
    ends = np.asarray(rows.ends[start:stop]) - first
    return RaggedRows(ends, tuple(column[first:last] for column in rows.columns))


def join_rows(parts: Sequence[RaggedRows]) -> RaggedRows:
    """The rows of one or more parts, one after the other."""
    offsets = np.cumsum([0, *(part.entries for part in parts)])
    ends = np.concatenate([part.ends + offset for part, offset in zip(parts, offsets, strict=False)])
    columns = zip(*(part.columns for part in parts), strict=True)
    return RaggedRows(ends, tuple(np.concatenate(column) for column in columns))


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
    first, waiting = 0, list[RaggedRows]()
    for shard in shards:
        start = 0
        while start < len(shard):
            before = int(shard.ends[start - 1]) if start else 0
            room = most - sum(part.entries for part in waiting)
            stop = int(np.searchsorted(shard.ends, before + room, side="right"))
            if not waiting:
                stop = max(stop, start + 1)
            if stop > start:
                waiting.append(slice_rows(shard, start, stop))
                start = stop
            if start < len(shard):
                yield first, join_rows(waiting)
                first += sum(map(len, waiting))
                waiting = []
    if waiting:
        yield first, join_rows(waiting)


def write_arrays(file: BinaryIO, arrays: Sequence[Array]) -> None:
    """Write arrays of numbers to an empty file."""
    for array in arrays:
        file.write(bytes(-file.tell() % ALIGNMENT))
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)


def map_arrays(path: Path) -> tuple[Array, ...]:
    """The arrays of a file, memory-mapped.

    Raises:
        ValueError: The file was not written by `write_arrays`.
    """
    arrays: list[Array] = []
    size = path.stat().st_size
    with open(path, "rb") as file:
        while file.tell() < size:
            file.seek(-file.tell() % ALIGNMENT, 1)
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError(f"{path}: not an array of numbers at byte {file.tell()}")
            shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
            if by_columns or dtype.hasobject:
                raise ValueError(f"{path}: an array that write_arrays does not write")
            bytes_of = int(np.prod(shape)) * dtype.itemsize
            if bytes_of:  # an empty range of a file cannot be mapped
                arrays.append(np.memmap(path, dtype, "r", file.tell(), shape))
            else:
                arrays.append(np.empty(shape, dtype))
            file.seek(bytes_of, 1)
    return tuple(arrays)
