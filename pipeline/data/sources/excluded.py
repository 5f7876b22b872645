"""Passages that the queries of one's own data exclude, as BRIGHT's do: `excluded_ids`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.data import DataSettings
from pipeline.core.errors import InputError
from pipeline.core.records import from_numpy
from pipeline.data.sources.folders import ID_FIELDS, FolderSource, TableSource
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.tables import TableRows, read_rows

if TYPE_CHECKING:
    import pyarrow as pa

EXCLUDED = "excluded_ids"
"""The field of a query that lists passages; in a CSV file, separated by spaces."""
EXCLUDED_GRADE = -1  # which `data.ignored: negative_grades` leaves out


def add_excluded(source: object, judgments: Judgments, settings: DataSettings) -> Judgments:
    """The judgments, and the grade -1 for each passage that a judged query excludes.

    Raises:
        InputError: Queries exclude passages, and `data.ignored` does not leave them out; or a query excludes
            a passage that is judged otherwise.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(source, FolderSource) and source.name in ID_FIELDS:
        path, id_field = source.queries_file, ID_FIELDS[source.name]
    elif isinstance(source, TableSource) and source.settings.query_id is not None:
        path, id_field = Path(source.settings.queries_file), source.settings.query_id
    else:
        return judgments
    read = read_rows([path], [id_field], [EXCLUDED], ids=[id_field, EXCLUDED])
    pairs = [_excluded(rows, id_field) for rows in read]
    if not any(len(queries) for queries, _ in pairs):
        return judgments
    queries, passages = (pa.concat_arrays(column) for column in zip(*pairs, strict=True))
    judged = pc.is_in(queries, value_set=judgments.query_ids.cast(pa.string())).to_numpy(zero_copy_only=False)
    if settings.ignored != "negative_grades":
        raise InputError(
            f"{path}: queries have {EXCLUDED}, and data.ignored is {settings.ignored}",
            allowed="data.ignored: negative_grades, which leaves these passages out of the query's ranking",
            fix="set it, or rename the field",
        )
    count = int(judged.sum())
    ids = [
        pa.concat_arrays([known.take(from_numpy(rows)).cast(pa.string()), more.filter(pa.array(judged))])
        for known, rows, more in (
            (judgments.query_ids, judgments.queries, queries),
            (judgments.passage_ids, judgments.passages, passages),
        )
    ]
    grades = np.concatenate([judgments.grades, np.full(count, EXCLUDED_GRADE)])
    numbers = np.concatenate([judgments.numbers, np.zeros(count, np.int64)])
    return make_judgments(ids[0], ids[1], grades, judgments.origin, judgments.unit, numbers)


def _excluded(rows: TableRows, id_field: str) -> tuple[pa.Array, pa.Array]:
    """The ids of queries and of the passages that they exclude, a pair each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows.columns.get(EXCLUDED)
    if column is None or column.null_count == len(column):
        return pa.array([], pa.string()), pa.array([], pa.string())
    named = column.is_valid()
    lists = column.filter(named)
    if not pa.types.is_list(lists.type) and not pa.types.is_large_list(lists.type):
        lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(lists.cast(pa.string())))
    queries = rows.strings(id_field, integers=True).filter(named)
    excluded = pc.list_flatten(lists).cast(pa.string())
    parents = pc.list_parent_indices(lists)
    some = pc.not_equal(excluded, "")
    return queries.take(parents).filter(some), excluded.filter(some)
