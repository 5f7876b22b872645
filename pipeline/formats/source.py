"""What does every source give? Passages, queries and judgments, in batches that never hold a whole corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.core.records import Int64

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 8192


@dataclass(frozen=True)
class Batch:
    """Some consecutive records of a source, with where each was found.

    Attributes:
        ids: Arrow string array [n], without nulls.
        texts: Arrow string array [n], without nulls; '' is allowed.
        titles: Arrow string array [n], '' where there is none; None if no record has one.
        origin: The file or dataset they come from.
        unit: What `numbers` count, such as "line" or "row".
        numbers: [n], where each record is in `origin`.
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

    def place(self, row: int) -> str:
        """Where a record was found, as an error says it."""
        return f"{self.origin}, {self.unit} {self.numbers[row]}"

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


@dataclass(frozen=True)
class Judgments:
    """Relevance judgments as a source has them, in its own order.

    Attributes:
        queries: Arrow string array [j], query ids.
        passages: Arrow string array [j], passage ids.
        grades: int64 [j].
        origin: The file or dataset they come from.
        unit: What `numbers` count, such as "line" or "row".
        numbers: int64 [j], where each judgment is in `origin`.
    """

    queries: pa.Array
    passages: pa.Array
    grades: Int64
    origin: str
    unit: str
    numbers: Int64

    def place(self, row: int) -> str:
        """Where a judgment was found, as an error says it."""
        return f"{self.origin}, {self.unit} {self.numbers[row]}"


class Source(Protocol):
    """A collection in one layout. Each method may be called more than once and gives the same again."""

    def identity(self) -> dict[str, dict[str, Any]]:
        """What shapes each of `corpus`, `queries` and `qrels` before slicing, as plain JSON.

        Cheap: bytes are hashed and branches resolved, but nothing is parsed.
        """
        ...

    def size(self) -> tuple[int | None, str]:
        """How much `passages` reads in all, as its batches' `advance` adds up, and in which unit."""
        ...

    def passages(self) -> Iterator[Batch]:
        """The corpus, in its own order."""
        ...

    def queries(self) -> Iterator[Batch]:
        """The queries, in their own order, judged or not."""
        ...

    def judgments(self) -> Judgments:
        """The judgments of the chosen split."""
        ...
