"""Batches of passages or queries, which all readers yield, and the rule for ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Int64

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 8192


class Located:
    """Records with their place: for line 3 of a file, `origin` is the file, `unit` "line", the number 3."""

    origin: str
    unit: str
    numbers: Sequence[int] | Int64

    def place(self, row: int) -> str:
        """The place of record `row`, for messages."""
        return f"{self.origin}, {self.unit} {self.numbers[row]}"


def refuse_unfit_ids(ids: list[str], what: str, place: Callable[[int], str]) -> None:
    """Refuse ids that TREC files cannot hold: empty, with white space, or a query's with `#` in front.

    A query's id begins a line, where `#` begins a comment.

    Args:
        ids: Any number of ids.
        what: "passage" or "query".
        place: The place of the id at a row, for the message.
    """
    lines = "\n".join(["", *ids])
    if lines.split() == ids and not (what == "query" and "\n#" in lines):
        return  # one test of all ids is fast
    for row, name in enumerate(ids):
        if name.split() == [name] and not (what == "query" and name.startswith("#")):
            continue
        problem = "holds white space" if name.split() != [name] else "begins with #"
        problem = f"{problem}: {short_repr(name)}" if name else "is empty"
        fit = "at least one character, no white space" + (" and no # in front" if what == "query" else "")
        raise InputError(
            f"{place(row)}: the {what}'s id {problem}",
            allowed=f"{fit}, as TREC files need",
            fix="rename it, in the collection and in the judgments",
        )


@dataclass(frozen=True)
class Batch(Located):
    """Some consecutive passages or queries of a source.

    Attributes:
        ids: Arrow string array [n], without nulls.
        texts: Arrow string array [n], without nulls; '' is allowed.
        titles: Arrow string array [n], '' for no title; None if no record has one.
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
        """The texts with their titles, as BEIR joins them: by a space, or one alone if the other is empty."""
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
        ids = self.ids.take(rows)
        texts = self.texts.take(rows)
        titles = None if self.titles is None else self.titles.take(rows)
        numbers = [int(self.numbers[row]) for row in rows]
        return replace(self, ids=ids, texts=texts, titles=titles, numbers=numbers)
