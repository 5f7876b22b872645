"""The making of rows: of one output of a model, which rows exist, and the writing of the others in shards.

A pass of a model over texts may make several outputs, each for a stage of its own. The stage that comes first
makes them all: it writes its own shards, and those that the other stages lack into their drafts. When their
turn comes, they find them as they find the shards that an interrupted run has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Int64, Texts
from pipeline.retrievers.known_rows import KnownRows, find_known_rows
from pipeline.storage import text_table, vector_shards
from pipeline.storage.artifacts import Artifact, Draft


@dataclass(frozen=True)
class RowFormat:
    """How the rows that a model makes of texts, one for each text, are kept.

    Attributes:
        save: Checks consecutive rows and writes them as one file, `vector_shards.shard_name`; given the
            draft, the number of the first row, the rows and the texts' ids.
        open: Opens all rows of a finished artifact.
        read: Some rows of a finished artifact, by their numbers, int64 [n], in any order, as `save` takes
            them.
        join: The rows of several such parts, one after the other, taken in an order, int64 [rows].
    """

    save: Callable[[Draft, int, Any, list[str]], None]
    open: Callable[[Artifact], Any]
    read: Callable[[Artifact, Int64], Any]
    join: Callable[[Sequence[Any], Int64], Any]


@dataclass(frozen=True)
class RowMaking:
    """The rows of one output, of which some are known and the others are made.

    Attributes:
        texts: The texts, a row for each.
        kept: How rows are kept.
        draft: Where they are written.
        missing: Ranges of rows [start, stop) that the draft lacked at first.
        wanted: bool [texts], the rows in these ranges.
        known: Where rows are that were made of the same texts before.
    """

    texts: Texts
    kept: RowFormat
    draft: Draft
    missing: list[tuple[int, int]]
    wanted: Array
    known: KnownRows

    @classmethod
    def begin(
        cls,
        texts: Texts,
        hashes: text_table.UInt64,
        kept: RowFormat,
        draft: Draft,
        shard_rows: int,
        alike: Callable[[], Sequence[Artifact]],
    ) -> RowMaking:
        """Find out what is there; `alike` gives the artifacts to look for known rows in."""
        missing = vector_shards.missing_ranges(len(texts), shard_rows, draft.whole)
        wanted = np.zeros(len(texts), np.bool_)
        for start, stop in missing:
            wanted[start:stop] = True
        known = find_known_rows(alike() if missing else (), hashes, wanted)
        return cls(texts, kept, draft, missing, wanted, known)

    @property
    def new(self) -> Array:
        """Bool [texts]: the texts whose rows have to be made."""
        new: Array = self.wanted & self.known.new
        return new

    def write(self, start: int, stop: int, made: Any) -> None:
        """Write rows [start, stop): those that are known, and `made`, those of the other texts in order."""
        places = self.known.places(start, stop)
        rows = made
        if places:
            parts = [self.kept.read(artifact, found) for artifact, _, found in places]
            positions = [where for _, where, _ in places]
            if made is not None:
                parts.append(made)
                positions.append(np.flatnonzero(self.known.new[start:stop]))
            rows = self.kept.join(parts, np.argsort(np.concatenate(positions)))
        ids: list[str] = self.texts.ids.slice(start, stop - start).to_pylist()
        self.kept.save(self.draft, start, rows, ids)

    def write_lacking(self, start: int, made_of: Array, made: Any) -> None:
        """Write those of some rows that the draft lacks, where all that is not known was made.

        Args:
            start: The first of these rows.
            made_of: bool [n], the texts of these rows that rows were made of.
            made: These, in order.
        """
        lacking = self.wanted[start : start + len(made_of)]
        place = np.cumsum(made_of) - 1  # of each text in `made`
        for first, last in _runs(lacking):
            needed = self.known.new[start + first : start + last]
            if (needed & ~made_of[first:last]).any():
                continue
            chosen = place[first:last][needed]
            whole = len(chosen) == len(made)
            rows = made if whole else self.kept.join([made], chosen) if len(chosen) else None
            self.write(start + first, start + last, rows)

    def read(self, start: int, stop: int) -> list[str]:
        """The texts of [start, stop) whose rows have to be made."""
        rows = start + np.flatnonzero(self.known.new[start:stop])
        chosen: list[str] = self.texts.texts.take(pa.array(rows)).to_pylist()
        return chosen


class OtherOutputs:
    """The outputs that one pass makes besides that of its own stage.

    An output whose rows are refused is left to its own stage, which says so when its turn comes.
    """

    def __init__(self, makings: Sequence[RowMaking]) -> None:
        self._left: list[RowMaking | None] = list(makings)

    def write(self, start: int, made_of: Array, outputs: Sequence[Any]) -> None:
        """Write the rows of each output that its draft lacks; see `RowMaking.write_lacking`."""
        for number, (making, made) in enumerate(zip(self._left, outputs, strict=True)):
            try:
                if making is not None:
                    making.write_lacking(start, made_of, made)
            except InputError:
                self._left[number] = None


def _runs(chosen: Array) -> Iterator[tuple[int, int]]:
    """The ranges [start, stop) in which `chosen`, bool [n], is true."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
