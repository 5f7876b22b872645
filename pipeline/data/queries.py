"""Which queries does a collection ask? The judged ones, in their own order; then the first N of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.core.records import Int64
from pipeline.data.checks import checked, numbers_of
from pipeline.data.judged import Judged
from pipeline.formats.source import Source

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Questions:
    """The judged queries of a slice, with what was seen on the way.

    Attributes:
        table: Arrow table of `id` and `text`, [q].
        numbers: int64 [q], the judgments' number of each query.
        kept: bool [judged queries], whether a number is in the table.
        seen: bool [judged queries], whether a number is in the source at all.
        unjudged: Queries of the source without a judgment.
    """

    table: pa.Table
    numbers: Int64
    kept: npt.NDArray[np.bool_]
    seen: npt.NDArray[np.bool_]
    unjudged: int


def select_queries(source: Source, judged: Judged, first: int | None) -> Questions:
    """Read the queries and keep the first judged ones.

    Args:
        source: Where they are.
        judged: The judgments.
        first: How many to keep; None is all.

    Raises:
        InputError: A query is not as it should be.
    """
    import pyarrow as pa

    seen = np.zeros(len(judged.query_numbers), dtype=np.bool_)
    kept = np.zeros_like(seen)
    tables, numbers, unjudged = [], [], 0
    room = len(seen) if first is None else first
    for batch in checked(source.queries, "query"):
        number = numbers_of(batch, judged.query_numbers)
        rows = np.flatnonzero(number >= 0)
        unjudged += len(number) - len(rows)
        seen[number[rows]] = True
        rows = rows[:room]
        room -= len(rows)
        kept[number[rows]] = True
        numbers.append(number[rows])
        tables.append(pa.table({"id": batch.ids.take(rows), "text": batch.texts.take(rows)}))
    return Questions(pa.concat_tables(tables), np.concatenate(numbers), kept, seen, unjudged)
