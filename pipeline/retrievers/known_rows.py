"""Rows that earlier runs have made of the same texts: found in the cache and copied, not recomputed.

They are looked for in all finished artifacts whose recipe is the same apart from the texts: the same model,
prompt, length and settings. Only files that are whole by their checksums are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import Array, Int64
from pipeline.storage import text_table, vector_shards
from pipeline.storage.artifacts import Artifact


@dataclass(frozen=True)
class KnownRows:
    """For each of n texts, where a row that was made of it is.

    Attributes:
        artifacts: Artifacts of such rows.
        source: int64 [n], the number of the artifact; -1 where the text is in none.
        row: int64 [n], the row in it.
    """

    artifacts: tuple[Artifact, ...]
    source: Int64
    row: Int64

    @property
    def new(self) -> Array:
        """Bool [n]: the texts that no row was made of."""
        unknown: Array = self.source < 0
        return unknown

    def places(self, start: int, stop: int) -> list[tuple[Artifact, Int64, Int64]]:
        """The known ones of texts [start, stop): for each artifact their positions among these, and rows."""
        source = self.source[start:stop]
        found = []
        for number in np.unique(source[source >= 0]).tolist():
            positions = np.flatnonzero(source == number)
            found.append((self.artifacts[number], positions, self.row[start:stop][positions]))
        return found


def find_known_rows(candidates: Iterable[Artifact], hashes: text_table.UInt64, wanted: Array) -> KnownRows:
    """Look for texts in artifacts, those of the first first.

    Args:
        candidates: Finished artifacts of rows that were made as these will be.
        hashes: uint64 [n, 2], the texts' hashes.
        wanted: bool [n], the texts that are looked for.
    """
    source = np.full(len(hashes), -1, np.int64)
    row = np.full(len(hashes), -1, np.int64)
    used: list[Artifact] = []
    for artifact in candidates:
        missing = np.flatnonzero(wanted & (source < 0))
        if not len(missing):
            break
        if text_table.NAME not in artifact.files or not artifact.is_intact(text_table.NAME):
            continue
        found = text_table.find_rows(artifact.array(text_table.NAME), hashes[missing])
        whole = _in_whole_files(artifact, found)
        source[missing[whole]], row[missing[whole]] = len(used), found[whole]
        used.append(artifact)
    return KnownRows(tuple(used), source, row)


def _in_whole_files(artifact: Artifact, rows: Int64) -> Array:
    """Bool [n]: the rows of an artifact, -1 for none, that are in files without damage."""
    whole = np.zeros(len(rows), np.bool_)
    for name in artifact.files:
        if not vector_shards.is_shard(name):
            continue
        start, stop = vector_shards.row_range(name)
        inside = (rows >= start) & (rows < stop)
        if inside.any() and artifact.is_intact(name):
            whole |= inside
    return whole
