"""Batches of passages or queries, as every reader gives them: a whole corpus is never held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.core.records import Int64

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 8192


class Located:
    """Records that know where in a file or dataset they were found.

    Attributes:
        origin: The file or dataset.
        unit: What `numbers` count, such as "line" or "row".
        numbers: [n], where in `origin` each record is.
    """

    origin: str
    unit: str
    numbers: Sequence[int] | Int64

    def place(self, row: int) -> str:
        """Where record `row` was found, in the words of an error message."""
        return f"{self.origin}, {self.unit} {self.numbers[row]}"


@dataclass(frozen=True)
class Batch(Located):
    """Some consecutive passages or queries of a source.

    Attributes:
        ids: Arrow string array [n], without nulls.
        texts: Arrow string array [n], without nulls; '' is allowed.
        titles: Arrow string array [n], '' where there is none; None if no record has one.
        origin, unit, numbers: See `Located`.
        advance: How much of the source's `size` this batch is.
    """

    ids: pa.Array
    texts: pa.Array
    titles: pa.Array | None
    origin: str
    unit: str
    numbers: Sequence[int] | Int64
    advance: int

    def __len__(self) -> int:
        return len(self.ids)

    def joined(self) -> pa.Array:
        """The texts with their titles, by the one rule for all sources.

        It is BEIR's: title and text with a space between them; either alone where the other is empty.
        """
        import pyarrow.compute as pc

        if self.titles is None:
            return self.texts
        both = pc.binary_join_element_wise(self.titles, self.texts, " ")
        joined = pc.if_else(pc.equal(self.texts, ""), self.titles, both)
        return pc.if_else(pc.equal(self.titles, ""), self.texts, joined)

    def titled(self) -> int:
        """How many records have a title."""
        import pyarrow.compute as pc

        return pc.sum(pc.not_equal(self.titles, "")).as_py() or 0 if self.titles is not None else 0

    def take(self, rows: Int64) -> Batch:
        """Some of the records, in the order given."""
        return Batch(
            self.ids.take(rows),
            self.texts.take(rows),
            None if self.titles is None else self.titles.take(rows),
            self.origin,
            self.unit,
            [int(self.numbers[row]) for row in rows],
            self.advance,
        )
