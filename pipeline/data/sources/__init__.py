"""Sources of collections: the protocol that all follow, what opens each, and further fields of its queries.

A file of queries may have the cluster of each query, and the passages that it excludes. Queries of one
cluster, such as paraphrases or questions of one document, are one draw of a sample. Passages are excluded as
BRIGHT's are, but in one's own data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pipeline.config import SOURCES, DataSettings, ManySettings
from pipeline.core.errors import InputError
from pipeline.core.plugins import import_and_call
from pipeline.core.records import JsonObject, from_numpy
from pipeline.data.sources import folders
from pipeline.data.sources.folders import FolderSource, TableSource
from pipeline.data.sources.repos import Repo
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.tables import TableRows, column_names, form_of, is_list, read_rows
from pipeline.formats.texts import Batch, read_blocks

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OPENERS", "Repo", "Source", "add_excluded", "open_source", "read_clusters"]

EXCLUDED = "excluded_ids"
"""The field of a query that lists passages; in a CSV file, separated by spaces."""
_MAY_EXCLUDE = re.compile(EXCLUDED.encode() + rb"|\\u00[4-7]")  # JSON may escape a letter of the name
EXCLUDED_GRADE = -1  # which `data.ignored: negative_grades` leaves out


class Source(Protocol):
    """A collection in one layout. Each method may be called repeatedly, with the same result."""

    def identity(self) -> dict[str, JsonObject]:
        """Plain JSON that determines each of `corpus`, `queries` and `qrels`, before slicing.

        Cheap: bytes are hashed, but nothing is parsed. It is asked before and after the content is read, and
        says what is there then: a collection that changed meanwhile is refused.
        """
        ...

    def size(self) -> tuple[int | None, str]:
        """The sum of `advance` over all batches of `passages`, None if unknown, and its unit."""
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


OPENERS: dict[str, Callable[..., Source]] = {
    "sample": folders.open_folder,
    "beir": partial(import_and_call, "data.sources.layouts:open_beir"),
    "msmarco": folders.open_folder,
    "flag": folders.open_folder,
    "table": folders.open_table,
    "hub": partial(import_and_call, "data.sources.positives:open_positives"),
    "ir_datasets": partial(import_and_call, "data.sources.catalogue:open_catalogue"),
    "air-bench": partial(import_and_call, "data.sources.layouts:open_air_bench"),
    "belebele": partial(import_and_call, "data.sources.layouts:open_belebele"),
    "bright": partial(import_and_call, "data.sources.layouts:open_bright"),
}
"""What opens the settings of each built-in source, by its name."""


def open_source(settings: DataSettings) -> Source:
    """The reader of a collection; refused without its files, and for a list of collections."""
    if isinstance(settings, ManySettings):
        raise InputError(
            "data names several collections",
            allowed="one collection here",
            fix="name one of them by data.source",
        )
    opener: Callable[..., Source] = OPENERS.get(settings.source) or SOURCES.opener(settings.source)
    return opener(settings)


def _read(path: Path, id_field: str, field: str) -> Iterator[tuple[pa.Array, TableRows, pa.Array]]:
    """The ids of queries, Arrow strings [n], their rows, and a field, [n], wherever it is there."""
    for rows in read_rows([path], [id_field], [field], ids=[id_field, field]):
        if field in rows.columns:
            yield rows.strings(id_field, integers=True), rows, rows.columns[field]


def read_clusters(source: Source, settings: DataSettings, field: str) -> dict[str, str]:
    """The cluster of each query that has one, by the query's id, from a field of the file of queries.

    Raises:
        InputError: The queries are not in such a file, none has the field, or it holds lists or objects.
    """
    if not isinstance(source, FolderSource | TableSource) or source.id_field is None:
        raise InputError(
            f"evaluate.cluster: {field} with data.source: {settings.source}",
            allowed="a collection whose queries are JSON lines or a table: data.source beir, flag or table",
            fix="leave it out, or write the collection in BEIR's layout",
        )
    path, clusters = source.queries_file, dict[str, str]()
    for names, rows, values in _read(path, source.id_field, field):
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

    if not isinstance(source, FolderSource | TableSource) or source.id_field is None:
        return judgments
    path = source.queries_file
    if form_of(path) == "jsonl" and not any(_MAY_EXCLUDE.search(block.data) for block in read_blocks(path)):
        return judgments  # most files are so, and need not be parsed
    pairs = [_excluded(names, column) for names, _, column in _read(path, source.id_field, EXCLUDED)]
    if not any(len(queries) for queries, _ in pairs):
        return judgments
    if settings.ignored != "negative_grades":
        raise InputError(
            f"{path}: queries have {EXCLUDED}, and data.ignored is {settings.ignored}",
            allowed="data.ignored: negative_grades, which leaves these passages out of the query's ranking",
            fix="set it, or rename the field",
        )
    return _judge_excluded(judgments, *map(pa.concat_arrays, zip(*pairs, strict=True)))


def _judge_excluded(judgments: Judgments, queries: pa.Array, passages: pa.Array) -> Judgments:
    """The judgments, and the grade -1 for each pair whose query is judged."""
    import pyarrow as pa
    import pyarrow.compute as pc

    judged = pc.is_in(queries, value_set=judgments.query_ids.cast(pa.string()))
    known = (
        judgments.query_ids.take(from_numpy(judgments.queries)),
        judgments.passage_ids.take(from_numpy(judgments.passages)),
    )
    pairs = zip(known, (queries, passages), strict=True)
    ids = [pa.concat_arrays([before.cast(pa.string()), more.filter(judged)]) for before, more in pairs]
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
