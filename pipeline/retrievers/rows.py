"""Rows that a model produces for texts: stored ones are copied, the others are written in shards.

Stored rows are looked up by text, in all finished artifacts whose recipe is the same apart from the texts.
Only files that are whole by their checksums are read. Beside its rows an artifact keeps `texts.npy`, uint64
[3, rows]: the upper and lower half of each text's hash of 16 bytes, sorted, and the number of its row. It is
searched by bisection, for sorted hashes, so of a large table few pages are read. Beside each shard is a file
`tokens-START-STOP.npy`, int32 [rows]: the tokens of each text, those that the model did not read included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from pipeline.core.records import (
    Array,
    Embeddings,
    Float32,
    Int32,
    Int64,
    RaggedRows,
    Texts,
    UInt64,
    VectorForm,
    take_texts,
)
from pipeline.retrievers.stage import Context
from pipeline.storage import ragged_shards, vector_shards
from pipeline.storage.artifacts import Artifact, Draft

LEAST = 512  # texts of the smallest shard: batches of fewer have more padding
TEXTS = "texts.npy"
COUNTS = "tokens-{:010d}-{:010d}.npy"
HASH_BYTES = 16
_BATCH = 65536  # texts that are Python strings at once
SHARDS = 32  # of a collection at least: a run that is killed loses a shard


@dataclass(frozen=True)
class VectorFormat:
    """How vectors are stored: float32 as the model gives them."""

    form: VectorForm  # is made of them when they are read
    held: bool = False  # whether `open` reads all into memory, as of queries, or maps them into it

    def save(self, draft: Draft, start: int, rows: Float32, ids: list[str]) -> None:
        """Check consecutive rows, the first of which is `start`, and write them as one file."""
        vector_shards.check_vectors(rows, ids, self.form.given_at_length_1)
        draft.save_array(vector_shards.shard_name(start, start + len(rows)), rows)

    def open(self, artifact: Artifact) -> Embeddings | Float32:
        """All rows of a finished artifact."""
        embeddings = vector_shards.open_embeddings(artifact, self.form)
        return vector_shards.read_rows(embeddings, 0, len(embeddings)) if self.held else embeddings

    def read(self, artifact: Artifact, rows: Int64) -> Float32:
        """Some rows of a finished artifact, by their numbers, int64 [n], in any order."""
        return vector_shards.read_some_rows(artifact, rows)

    def join(self, parts: Sequence[Float32], order: Int64) -> Float32:
        """The rows of several parts, one after the other, in an order, int64 [rows]."""
        return vector_shards.join_rows(parts, order)


@dataclass(frozen=True)
class RaggedFormat:
    """How rows of different lengths are stored; its methods are as of `VectorFormat`."""

    held: bool = False

    def save(self, draft: Draft, start: int, rows: RaggedRows, ids: list[str]) -> None:
        """Write consecutive rows."""
        ragged_shards.save_shard(draft, start, start + len(rows), rows)

    def open(self, artifact: Artifact) -> Sequence[RaggedRows] | RaggedRows:
        """All rows, as one if they are `held`, else a shard at a time."""
        shards = tuple(rows for _, _, rows in ragged_shards.open_shards(artifact))
        return ragged_shards.join_rows(shards) if self.held else shards

    def read(self, artifact: Artifact, rows: Int64) -> RaggedRows:
        """Some rows."""
        return ragged_shards.read_some_rows(artifact, rows)

    def join(self, parts: Sequence[RaggedRows], order: Int64) -> RaggedRows:
        """The rows of several parts."""
        return ragged_shards.take_rows(ragged_shards.join_rows(parts), order)


RowFormat = VectorFormat | RaggedFormat
Rows: TypeAlias = Any
"""What a model gives for several texts: vectors float32 [texts, dimension], or `RaggedRows` rows."""


class ShardWriter:
    """Writes the rows of some texts in shards: known rows are copied, the others are encoded.

    Known rows are looked up in artifacts like that of the `context`, by the texts' hashes, uint64 [texts, 2];
    earlier artifacts win. A shard has at most so many rows.

    Attributes:
        missing: Ranges of rows [start, stop) that the draft lacked at first.
        wanted: bool [texts], the rows in these ranges.
        known: The artifacts that encode texts already.
        source: int64 [texts], which of them has the text; -1 for none.
        row: int64 [texts], the row in it.
        new: bool [texts], the texts that have to be encoded.
    """

    def __init__(
        self, texts: Texts, hashes: UInt64, form: RowFormat, draft: Draft, most: int, context: Context
    ) -> None:
        # A text's batch depends on its shard, and its vector's last bits on its batch. So the bounds of
        # shards depend on nothing that differs between two runs, such as the time they take.
        shard_rows = min(most, max(LEAST, -(-len(texts) // SHARDS)))
        self.texts, self.form, self.draft = texts, form, draft
        self.missing = vector_shards.missing_ranges(len(texts), shard_rows, draft.whole)
        self.wanted = np.zeros(len(texts), np.bool_)
        for start, stop in self.missing:
            self.wanted[start:stop] = True
        self.known: list[Artifact] = []
        self.source, self.row = np.full((2, len(texts)), -1, np.int64)
        looked_up = self.missing and not context.fresh
        for artifact in context.store.find_alike(context.recipe) if looked_up else ():
            missing = np.flatnonzero(self.wanted & (self.source < 0))
            if not len(missing):
                break
            if TEXTS in artifact.files and not artifact.damaged([TEXTS]):
                rows = find_rows(artifact.array(TEXTS), hashes[missing])
                whole = _in_whole_files(artifact, rows)
                self.source[missing[whole]], self.row[missing[whole]] = len(self.known), rows[whole]
                self.known.append(artifact)
        self.new: Array = self.wanted & (self.source < 0)

    def write(self, start: int, stop: int, encoded: Rows = None, counts: Int32 | None = None) -> None:
        """Write rows [start, stop): the known ones, and those of the other texts, `encoded`, in order.

        `counts` are the tokens of the latter, int32 [texts that are not known]; None of a served model.
        """
        if (self.source[start:stop] >= 0).any():
            encoded, counts = self._with_known(start, stop, encoded, counts)
        if counts is not None:  # first: a whole shard always has them beside it
            self.draft.save_array(COUNTS.format(start, stop), counts)
        ids: list[str] = self.texts.ids.slice(start, stop - start).to_pylist()
        self.form.save(self.draft, start, encoded, ids)

    def _with_known(
        self, start: int, stop: int, encoded: Rows, counts: Int32 | None
    ) -> tuple[Rows, Int32 | None]:
        """All rows of [start, stop), and their tokens; None if these are not known of all."""
        source, row = self.source[start:stop], self.row[start:stop]
        positions: list[Int64] = []
        parts: list[Rows] = []
        all_counts: list[Int32 | None] = []
        for number in np.unique(source[source >= 0]).tolist():
            known, place = self.known[number], np.flatnonzero(source == number)
            of_known = token_counts(known.files, known.array)
            positions.append(place)
            parts.append(self.form.read(known, row[place]))
            all_counts.append(None if of_known is None else of_known[row[place]])
        if encoded is not None:
            positions.append(np.flatnonzero(source < 0))
            parts.append(encoded)
            all_counts.append(counts)
        order = np.argsort(np.concatenate(positions))
        rows: Rows = self.form.join(parts, order) if len(parts) > 1 else parts[0]
        known_counts = [some for some in all_counts if some is not None]
        return rows, np.concatenate(known_counts)[order] if len(known_counts) == len(parts) else None

    def read(self, start: int, stop: int) -> list[str]:
        """The texts of [start, stop) that have to be encoded."""
        rows = start + np.flatnonzero(self.source[start:stop] < 0)
        texts: list[str] = take_texts(self.texts.texts, rows).to_pylist()
        return texts


def token_counts(files: Collection[str], read: Callable[[str], Array]) -> Int32 | None:
    """int32 [rows]: the tokens of all texts of an artifact or a draft; None if they are not known of all."""
    names = [COUNTS.format(start, stop) for _, start, stop in vector_shards.shards_of(files)]
    known = all(name in files for name in names)
    return np.concatenate([np.empty(0, np.int32), *map(read, names)]) if known else None


def _in_whole_files(artifact: Artifact, rows: Int64) -> Array:
    """Bool [n]: the rows of an artifact, -1 for none, that are in files without damage."""
    whole = np.zeros(len(rows), np.bool_)
    for name, start, stop in vector_shards.shards_of(artifact.files):
        inside = (rows >= start) & (rows < stop)
        names = [name for name in (name, COUNTS.format(start, stop)) if name in artifact.files]
        if inside.any() and not artifact.damaged(names):
            whole |= inside
    return whole


def hash_texts(texts: pa.ChunkedArray) -> UInt64:
    """uint64 [n, 2]: the upper and lower half of each text's BLAKE2b hash; equal texts have equal hashes."""
    digests = bytearray()
    for start in range(0, len(texts), _BATCH):
        for text in texts.slice(start, _BATCH).to_pylist():
            digests += hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()
    return np.frombuffer(bytes(digests), ">u8").astype(np.uint64).reshape(-1, 2)


def table_of(hashes: UInt64) -> UInt64:
    """uint64 [3, n]: the table of rows whose texts have these hashes, uint64 [n, 2]."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    return np.stack([hashes[order, 0], hashes[order, 1], order.astype(np.uint64)])


def find_rows(table: Array | Sequence[Array], hashes: UInt64) -> Int64:
    """int64 [n]: a row with each text, by its hash uint64 [n, 2], in a `table_of`; -1 where there is none."""
    upper, lower, rows = table
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    wanted = hashes[order]
    first_rows = np.full(len(hashes), -1, np.int64)
    place = np.searchsorted(upper, wanted[:, 0])
    left = np.arange(len(hashes))
    while len(left):  # again only for a text whose hash has the same upper half as that of another
        left = left[place[left] < len(upper)]
        left = left[upper[place[left]] == wanted[left, 0]]
        same = lower[place[left]] == wanted[left, 1]
        first_rows[order[left[same]]] = rows[place[left[same]]].astype(np.int64)
        left = left[~same]
        place[left] += 1
    return first_rows
