"""Judgments of tables with a row for each query, and the ids of its passages in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.tables import Rows

if TYPE_CHECKING:
    import pyarrow as pa


def join_listed(
    rows: Iterable[Rows],
    query: str,
    columns: Sequence[tuple[str, int]],
    *,
    field: str | None = None,
    none: str | None = None,
    rename: Callable[[pa.Array], pa.Array] = lambda ids: ids,
) -> Judgments:
    """Judge the passages of each row's lists.

    Args:
        rows: The rows.
        query: The column of query ids.
        columns: The columns of lists, and the grade of the passages in each.
        field: Where lists hold records, the field with the id.
        none: An entry that is no id.
        rename: Gets the passages' ids and returns those that the collection has.
    """
    import pyarrow as pa

    from pipeline.core.arrow import from_numpy

    queries, passages, grades, numbers = [], [], [], []
    origin, unit = "", "row"
    for part in rows:
        origin, unit = part.origin, part.unit
        for column, grade in columns:
            ids, parents = part.lists(column, field)
            if none is not None:
                kept = np.array([name != none for name in ids.to_pylist()], np.bool_)
                ids, parents = ids.filter(pa.array(kept)), parents[kept]
            queries.append(part.strings(query, integers=True).take(from_numpy(parents)))
            passages.append(rename(ids))
            grades.append(np.full(len(ids), grade, np.int64))
            numbers.append(np.asarray(part.numbers, np.int64)[parents])
    if not queries:
        raise InputError("the table of queries is empty", fix="check data.path and data.split")
    return make_judgments(
        pa.concat_arrays(queries),
        pa.concat_arrays(passages),
        np.concatenate(grades),
        origin,
        unit,
        np.concatenate(numbers),
    )
