"""Batches of passages or queries, as every reader gives them: a whole corpus is never held."""

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
    """Records that know where they were found: on line 3 of a file, `origin` is the file, `unit` "line"."""

    origin: str
    unit: str
    numbers: Sequence[int] | Int64

    def place(self, row: int) -> str:
        """Where record `row` was found, in the words of an error message."""
        return f"{self.origin}, {self.unit} {self.numbers[row]}"


def refuse_unfit_ids(ids: list[str], what: str, place: Callable[[int], str]) -> None:
    """Refuse ids that a line of a TREC file cannot hold.

    Args:
        ids: Any number of ids.
        what: "passage" or "query". A query's id begins a line, where `#` begins a comment.
        place: Where the id at a row was found.

    Raises:
        InputError: An id is empty or holds white space, or a query's begins with `#`.
    """
    lines = "\n".join(["", *ids])
    if lines.split() == ids and not (what == "query" and "\n#" in lines):
        return
    for row, name in enumerate(ids):
        if name.split() == [name] and not (what == "query" and name.startswith("#")):
            continue
        problem = "holds white space" if name.split() != [name] else "begins with #"
        fit = "at least one character, no white space" + (" and no # in front" if what == "query" else "")
        raise InputError(
            f"{place(row)}: the {what}'s id {f'{problem}: {short_repr(name)}' if name else 'is empty'}",
            allowed=f"{fit}, as TREC files need",
            fix="rename it, in the collection and in the judgments",
        )


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
        titles = None if self.titles is None else self.titles.take(rows)
        numbers = [int(self.numbers[row]) for row in rows]
        return replace(
            self, ids=self.ids.take(rows), texts=self.texts.take(rows), titles=titles, numbers=numbers
        )
