"""Judgments, runs and texts as Python values: dictionaries, and tables such as pandas' DataFrame.

`write_collection` writes a collection of them in BEIR's layout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Int64
from pipeline.formats.judgments import Judgments, make_judgments, read_qrels
from pipeline.formats.runs import Run, read_run
from pipeline.storage.whole_files import write_whole

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


def write_collection(
    folder: str | Path,
    passages: Mapping[str, str | Mapping[str, str]] | Any,
    queries: Mapping[str, str] | Any,
    judgments: Given | None = None,
) -> dict[str, str]:
    """Write passages, queries and judgments as a folder in BEIR's layout.

    The same values give the same bytes, so what a benchmark computed from them is reused.

    Args:
        folder: A new or empty folder, or one that holds this collection already.
        passages: The text of each id, or its `title` and `text`; or a table with the columns `passage_id`
            (or `doc_id`, `docid`, `docno`, `pid`, `id`), `text` and perhaps `title`, such as a DataFrame.
        queries: The text of each id; or a table with the columns `query_id` (or `qid`, `q_id`, `id`) and
            `text`.
        judgments: The grade of each passage, by query and passage; or a table with the columns `query_id`,
            `passage_id` and `grade`; or a judgment file. None: queries are searched and not scored.

    Returns:
        The section `data` of a config, to be used as `{"name": ..., "data": ..., "model": ...}`.

    Raises:
        InputError: A value is of another form, or the folder holds anything else.
    """
    path = Path(folder).absolute()
    texts = _records(passages, "passages", (*DOCUMENT, "id", "_id"))
    files = {
        path / "corpus.jsonl": texts,
        path / "queries.jsonl": _records(queries, "queries", (*QUERY, "id", "_id")),
    }
    data = {"source": "beir", "path": str(path)}
    if judgments is None:
        data["unjudged_queries"] = "keep"
    else:
        judged = judgments_of(judgments)
        names = judged.query_ids.to_pylist(), judged.passage_ids.to_pylist()
        rows = zip(judged.queries.tolist(), judged.passages.tolist(), judged.grades.tolist(), strict=True)
        lines = [f"{names[0][query]}\t{names[1][passage]}\t{grade}\n" for query, passage, grade in rows]
        files[path / "qrels" / "test.tsv"] = "query-id\tcorpus-id\tscore\n" + "".join(lines)
    held = {each for each in path.rglob("*") if each.is_file()} if path.exists() else set()
    differing = [
        each for each in sorted(held) if each not in files or each.read_bytes() != files[each].encode()
    ]
    if differing or path.is_file():
        raise InputError(
            f"{path}: holds {differing[0].name if differing else 'a file'}, which is not of this collection",
            allowed="a new or empty folder, or one that holds the same",
            fix="name another",
        )
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text.encode())
    return data


def _records(given: Any, what: str, ids: tuple[str, ...]) -> str:
    """JSON lines of ids, texts and titles."""
    if is_table(given):
        columns = columns_of(given, what, ids, TEXT)
        titles = list(given["title"]) if "title" in given.columns else [""] * len(columns[0])
        titles = ["" if isinstance(title, float) else title for title in titles]  # NaN: pandas' missing value
        rows = list(zip(*columns, titles, strict=True))
    elif isinstance(given, Mapping):
        rows = [
            (name, each.get("text", ""), each.get("title", ""))
            if isinstance(each, Mapping)
            else (name, each, "")
            for name, each in given.items()
        ]
    else:
        found = f"{what}: {short_repr(given)}"
        raise InputError(found, allowed="{id: text}, or a table with columns id and text")
    lines = []
    for name, text, title in rows:
        if not isinstance(text, str) or not isinstance(title, str | None):
            wrong = text if not isinstance(text, str) else title
            raise InputError(f"{what}: the text of {name!r} is {short_repr(wrong)}", allowed="a text")
        record = {"_id": str(name), **({"title": title} if title else {}), "text": text}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    return "".join(lines)
