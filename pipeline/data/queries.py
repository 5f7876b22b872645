"""The queries of a collection: the judged ones in their own order, then the first N of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.core.records import Int64
from pipeline.data.checks import checked, numbers_of
from pipeline.data.sources import Source
from pipeline.formats.judgments import Judgments

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SelectedQueries:
    """The judged queries of a slice, and their relation to the source and the judgments.

    Attributes:
        table: Arrow table of `id` and `text`, [q].
        numbers: int64 [q], each query's row in the judgments' `query_ids`.
        kept: bool [judged queries], whether each of `query_ids` is in the table.
        seen: bool [judged queries], whether each is in the source.
        unjudged: How many queries of the source have no judgment.
    """

    table: pa.Table
    numbers: Int64
    kept: npt.NDArray[np.bool_]
    seen: npt.NDArray[np.bool_]
    unjudged: int


def select_queries(source: Source, judgments: Judgments, first: int | None) -> SelectedQueries:
    """Read the queries and keep the `first` judged ones; None is all."""
    import pyarrow as pa

    seen = np.zeros(len(judgments.query_ids), dtype=np.bool_)
    kept = np.zeros_like(seen)
    tables = []
    numbers = []
    unjudged = 0
    room = len(seen) if first is None else first
    number_of = {name: number for number, name in enumerate(judgments.query_ids.to_pylist())}
    for batch in checked(source.queries, "query"):
        number = numbers_of(batch, number_of)
        rows = np.flatnonzero(number >= 0)
        unjudged += len(number) - len(rows)
        seen[number[rows]] = True
        rows = rows[:room]
        room -= len(rows)
        kept[number[rows]] = True
        numbers.append(number[rows])
        tables.append(pa.table({"id": batch.ids.take(rows), "text": batch.texts.take(rows)}))
    return SelectedQueries(pa.concat_tables(tables), np.concatenate(numbers), kept, seen, unjudged)
