"""Judgments, runs and texts as Python values: dictionaries, and tables such as pandas' DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Int64
from pipeline.formats.judgments import Judgments, make_judgments, read_qrels
from pipeline.formats.runs import Run, read_run

if TYPE_CHECKING:
    import pyarrow as pa

Given: TypeAlias = "str | Path | Mapping[str, Mapping[str, float]] | Any"
"""A file; or the number of each document by query and document; or a table with columns."""
QUERY = ("query_id", "qid", "q_id", "query-id")
DOCUMENT = ("passage_id", "doc_id", "docid", "docno", "pid", "corpus-id")
GRADE = ("grade", "relevance", "rel", "label", "score")
SCORE = ("score",)
TEXT = ("text",)


def judgments_of(given: Given) -> Judgments:
    """Judgments from a file or from Python values, whose rows are counted from 0 in messages."""
    if isinstance(given, str | Path):
        return read_qrels(given)
    queries, documents, grades = _lines(given, "qrels", GRADE)
    return make_judgments(_ids(queries), _ids(documents), grades, "qrels", "row", np.arange(len(grades)))


def run_of(given: Given) -> Run:
    """A run from a file or from Python values, with each document once for a query."""
    if isinstance(given, str | Path):
        return read_run(given)
    queries, documents, scores = _lines(given, "run", SCORE)
    seen: set[tuple[object, object]] = set()
    for pair in zip(queries, documents, strict=True):
        if pair in seen:
            raise InputError(
                f"run: document {pair[1]!r} twice for query {pair[0]!r}",
                allowed="each document once for a query",
                fix="remove one of the two",
            )
        seen.add(pair)
    if not len(scores) or np.isnan(scores).any():
        found = "has no line" if not len(scores) else "a score is not a number"
        raise InputError(f"run: {found}", allowed="a number for each document", fix="check what made it")
    import pyarrow as pa

    ids = _ids(queries).dictionary_encode()
    rows: Int64 = ids.indices.to_numpy()
    return Run(ids.dictionary, rows.astype(np.int32), pa.chunked_array([_ids(documents)]), scores)


def columns_of(table: Any, what: str, *wanted: Sequence[str]) -> list[list[Any]]:
    """The columns of a table, each by the first of its names that the table has."""
    present = list(map(str, table.columns))
    found = []
    for names in wanted:
        name = next((name for name in names if name in present), None)
        if name is None:
            raise InputError(
                f"{what}: no column {' or '.join(map(repr, names))}; it has {', '.join(present)}",
                allowed="these names",
                fix="rename a column",
            )
        found.append(list(table[name]))
    return found


def is_table(given: object) -> bool:
    """Whether a value has columns, as a DataFrame has."""
    return hasattr(given, "columns") and not isinstance(given, Mapping)


def _lines(given: Given, what: str, value: Sequence[str]) -> tuple[list[Any], list[Any], Any]:
    """Queries, documents and a number for each, float64 [lines]."""
    if is_table(given):
        queries, documents, numbers = columns_of(given, what, QUERY, DOCUMENT, value)
    elif isinstance(given, Mapping) and all(isinstance(each, Mapping) for each in given.values()):
        lines = [(query, name, number) for query, own in given.items() for name, number in own.items()]
        queries, documents, numbers = map(list, zip(*lines, strict=True)) if lines else ([], [], [])
    else:
        raise InputError(
            f"{what} is {short_repr(given)}",
            allowed="a file, {query: {document: number}}, or a table with columns "
            f"{QUERY[0]}, {DOCUMENT[0]} and {value[0]}",
        )
    try:
        return queries, documents, np.array(numbers, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: {error}", allowed="a number for each document") from None


def _ids(values: Iterable[object]) -> pa.Array:
    """Ids as texts; pandas' integers as they are written."""
    import pyarrow as pa

    return pa.array([str(value) for value in values], pa.string())
