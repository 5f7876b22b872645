"""Further fields of the file of queries: the cluster of each query, and the passages that it excludes.

Queries of one cluster, such as paraphrases or questions of one document, are one draw of a sample. Passages
are excluded as BRIGHT's are, but in one's own data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.data import DataSettings
from pipeline.core.errors import InputError
from pipeline.core.records import from_numpy
from pipeline.data.sources import Source, open_source
from pipeline.data.sources.folders import LAYOUTS, FolderSource, TableSource
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.tables import TableRows, column_names, form_of, is_list, read_rows
from pipeline.formats.texts import read_blocks

if TYPE_CHECKING:
    import pyarrow as pa

EXCLUDED = "excluded_ids"
"""The field of a query that lists passages; in a CSV file, separated by spaces."""
_MAY_EXCLUDE = re.compile(EXCLUDED.encode() + rb"|\\u00[4-7]")  # JSON may escape a letter of the name
EXCLUDED_GRADE = -1  # which `data.ignored: negative_grades` leaves out


def queries_file(source: Source) -> tuple[Path | None, str]:
    """The file of a collection's queries, and the field of their ids; None if they have no further fields."""
    if isinstance(source, FolderSource) and (id_field := LAYOUTS[source.name].id_field):
        return source.queries_file, id_field
    if isinstance(source, TableSource) and source.settings.query_id is not None:
        return Path(source.settings.queries_file), source.settings.query_id
    return None, ""


def _read(path: Path, id_field: str, field: str) -> Iterator[tuple[pa.Array, TableRows, pa.Array]]:
    """The ids of queries, Arrow strings [n], their rows, and a field, [n], wherever it is there."""
    for rows in read_rows([path], [id_field], [field], ids=[id_field, field]):
        if field in rows.columns:
            yield rows.strings(id_field, integers=True), rows, rows.columns[field]


def read_clusters(settings: DataSettings, field: str) -> dict[str, str]:
    """The cluster of each query that has one, by the query's id, from a field of the file of queries.

    Raises:
        InputError: The queries are not in such a file, none has the field, or it holds lists or objects.
    """
    path, id_field = queries_file(open_source(settings))
    if path is None:
        raise InputError(
            f"evaluate.cluster: {field} with data.source: {settings.source}",
            allowed="a collection whose queries are JSON lines or a table: data.source beir, flag or table",
            fix="leave it out, or write the collection in BEIR's layout",
        )
    clusters: dict[str, str] = {}
    for names, rows, values in _read(path, id_field, field):
        if values.type.num_fields:
            raise rows.wrong_type(field, "texts or numbers that name the query's cluster")
        pairs = zip(names.to_pylist(), values.to_pylist(), strict=True)
        clusters |= {name: str(value) for name, value in pairs if value is not None}
    if not clusters:
        raise InputError(
            f"evaluate.cluster: no query of {path} has a field {field}",
            allowed=f"one of {', '.join(column_names(path))}",
            fix="add it to the queries, or correct its name",
        )
    return clusters


def add_excluded(source: Source, judgments: Judgments, settings: DataSettings) -> Judgments:
    """The judgments, and the grade -1 for each passage that a judged query excludes.

    Raises:
        InputError: Queries exclude passages, and `data.ignored` does not leave them out; or a query excludes
            a passage that is judged otherwise.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    path, id_field = queries_file(source)
    if path is None:
        return judgments
    if form_of(path) == "jsonl" and not any(_MAY_EXCLUDE.search(block.data) for block in read_blocks(path)):
        return judgments  # most files are so, and need not be parsed
    pairs = [_excluded(names, column) for names, _, column in _read(path, id_field, EXCLUDED)]
    if not any(len(queries) for queries, _ in pairs):
        return judgments
    if settings.ignored != "negative_grades":
        raise InputError(
            f"{path}: queries have {EXCLUDED}, and data.ignored is {settings.ignored}",
            allowed="data.ignored: negative_grades, which leaves these passages out of the query's ranking",
            fix="set it, or rename the field",
        )
    queries, passages = (pa.concat_arrays(column) for column in zip(*pairs, strict=True))
    judged = pc.is_in(queries, value_set=judgments.query_ids.cast(pa.string()))
    ids = [
        pa.concat_arrays([known.take(from_numpy(rows)).cast(pa.string()), more.filter(judged)])
        for known, rows, more in (
            (judgments.query_ids, judgments.queries, queries),
            (judgments.passage_ids, judgments.passages, passages),
        )
    ]
    count = len(ids[0]) - len(judgments.grades)
    grades = np.concatenate([judgments.grades, np.full(count, EXCLUDED_GRADE)])
    numbers = np.concatenate([judgments.numbers, np.zeros(count, np.int64)])
    return make_judgments(ids[0], ids[1], grades, judgments.origin, judgments.unit, numbers)


def _excluded(names: pa.Array, column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The ids of queries and of the passages that they exclude, a pair each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_list(column.type):
        column = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(column.cast(pa.string())))
    excluded = pc.list_flatten(column).cast(pa.string())
    some = pc.not_equal(excluded, "")
    return names.take(pc.list_parent_indices(column)).filter(some), excluded.filter(some)
