"""Sources of collections: the protocol that all follow, what opens each, and further fields of its queries.

Queries may have the cluster of each, and the passages that each excludes. Queries of one cluster, such as
paraphrases or questions of one document, are one draw of a sample. Passages are excluded as BRIGHT's are, but
in one's own data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from pipeline.config import DataSettings, ManySettings
from pipeline.core.errors import InputError
from pipeline.core.plugins import import_and_call
from pipeline.core.records import JsonObject, from_numpy
from pipeline.data.sources import folders
from pipeline.data.sources.folders import EXCLUDED, FolderSource, TableSource
from pipeline.data.sources.repos import Repo
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.tables import column_names, is_list, read_rows
from pipeline.formats.texts import Batch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OPENERS", "Repo", "Source", "add_excluded", "read_clusters"]

EXCLUDED_GRADE = -1  # which `data.ignored: negative_grades` leaves out


class Source(Protocol):
    """A collection in one layout. Each method may be called repeatedly, with the same result."""

    def identity(self) -> dict[str, JsonObject]:
        """Plain JSON that determines each of `corpus`, `queries` and `qrels`, before slicing.

        Cheap: bytes are hashed, but nothing is parsed. It is asked before and after the content is read, and
        says what is there then: a collection that changed meanwhile is refused.
        """
        ...

    @property
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


def _refuse_several(_: ManySettings) -> NoReturn:
    raise InputError(
        "data names several collections", allowed="one collection here", fix="name one of them by data.source"
    )


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
    "suite": _refuse_several,
    "collections": _refuse_several,
}
"""What opens the settings of each built-in source, by its name."""


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
    path, ids, clusters = source.queries_file, source.id_field, dict[str, str]()
    for rows in read_rows([path], [ids], [field], ids=[ids, field]):
        if field not in rows.columns:
            continue
        names, values = rows.strings(ids, integers=True), rows.columns[field]
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


def add_excluded(judgments: Judgments, queries: Sequence[Batch], settings: DataSettings) -> Judgments:
    """The judgments, and the grade -1 for each passage that one of the `queries` excludes, if it is judged.

    Raises:
        InputError: Queries exclude passages, and `data.ignored` does not leave them out; or a query excludes
            a passage that is judged otherwise.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    excluded = [_excluded(batch.ids, batch.excluded) for batch in queries]
    pairs = list(map(pa.concat_arrays, zip(*excluded, strict=True)))  # of queries and of passages
    if not len(pairs[0]):
        return judgments
    if settings.ignored != "negative_grades":
        raise InputError(
            f"{queries[0].origin}: queries have {EXCLUDED}, and data.ignored is {settings.ignored}",
            allowed="data.ignored: negative_grades, which leaves these passages out of the query's ranking",
            fix="set it, or rename the field",
        )
    judged = pc.is_in(pairs[0], value_set=judgments.query_ids.cast(pa.string()))
    known = (
        judgments.query_ids.take(from_numpy(judgments.queries)),
        judgments.passage_ids.take(from_numpy(judgments.passages)),
    )
    both = zip(known, pairs, strict=True)
    ids = [pa.concat_arrays([before.cast(pa.string()), more.filter(judged)]) for before, more in both]
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
