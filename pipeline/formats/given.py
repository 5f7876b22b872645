"""Judgments, runs and texts as Python values: dictionaries, and tables such as pandas' DataFrame.

`write_collection` writes a collection of them in BEIR's layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipeline.core.errors import InputError, short_repr
from pipeline.formats.columns import fingerprints, repeated_pairs
from pipeline.formats.judgments import Judgments, beir_qrels, make_judgments, read_qrels
from pipeline.formats.runs import Run, read_run
from pipeline.formats.texts import refuse_unfit_ids
from pipeline.storage.whole_files import write_whole

if TYPE_CHECKING:
    import pyarrow as pa

QrelsLike: TypeAlias = "str | Path | Mapping[str, Mapping[str, float]] | Any"
"""A file; or the number of each document by query and document; or a table with columns."""
QUERY = ("query_id", "qid", "q_id", "query-id")
DOCUMENT = ("passage_id", "doc_id", "docid", "docno", "pid", "corpus-id")
GRADE = ("grade", "relevance", "rel", "label", "score")
SCORE = ("score",)
TEXT = ("text", "contents", "content")
FIELDS = {"query": QUERY, "passage": DOCUMENT, "grade": GRADE, "score": SCORE}
"""What a table of judgments or of a run holds, and the columns that are taken for it."""


def named_columns(columns: Mapping[str, str], qrels: QrelsLike, run: QrelsLike) -> dict[str, tuple[str, ...]]:
    """`FIELDS` with the columns that somebody named; refused where no table that needs one has it."""
    tables = {"qrels": qrels, "run": run}
    held = {name: set(_names(table)) if is_table(table) else set() for name, table in tables.items()}
    needed_by = {"grade": ("qrels",), "score": ("run",)}
    for field, column in columns.items():
        found = [column in held[name] for name in needed_by.get(field, tables)]
        if field not in FIELDS or not any(found):
            shown = "; ".join(f"{name} has {', '.join(sorted(each))}" for name, each in held.items() if each)
            raise InputError(
                f"columns: {field} is {column!r}; {shown or 'no table is given'}",
                allowed=f"a column of a table for {', '.join(FIELDS)}",
                fix="correct the name",
            )
    only = {field: (column,) for field, column in columns.items()}
    return {
        field: only.get(field, ()) + (() if field in only and field in needed_by else names)
        for field, names in FIELDS.items()
    }


def judgments_of(qrels: QrelsLike, fields: Mapping[str, Sequence[str]] = FIELDS) -> Judgments:
    """Judgments from a file or from Python values, whose rows are counted from 0 in messages."""
    if isinstance(qrels, str | Path):
        return read_qrels(qrels)
    queries, documents, grades = _lines(qrels, "qrels", "grade", fields)
    return make_judgments(queries, documents, grades, "qrels", "row", np.arange(len(grades)))


def run_of(run: QrelsLike, fields: Mapping[str, Sequence[str]] = FIELDS) -> Run:
    """A run from a file or from Python values, with each document once for a query."""
    if isinstance(run, str | Path):
        return read_run(run)
    queries, documents, scores = _lines(run, "run", "score", fields)
    if not len(scores) or np.isnan(scores).any():
        found = "has no line" if not len(scores) else "a score is not a number"
        raise InputError(f"run: {found}", allowed="a number for each document", fix="check what made it")
    for ids, what in ((queries, "query"), (documents, "passage")):
        refuse_unfit_ids(ids, what, "run, row {}".format)
    import pyarrow as pa

    numbered, chunked = queries.dictionary_encode(), pa.chunked_array([documents])
    rows = numbered.indices.to_numpy().astype(np.int32)
    _, later = repeated_pairs(rows, chunked, fingerprints(documents))
    if later.size:
        query, document = queries[int(later[0])], documents[int(later[0])]
        raise InputError(
            f"run: document '{document}' twice for query '{query}'",
            allowed="each document once for a query; ids are compared as texts, so 1 and '1' are equal",
            fix="remove one of the two",
        )
    return Run(numbered.dictionary, rows, chunked, scores)


def columns_of(table: Any, what: str, *wanted: Sequence[str]) -> list[list[Any]]:
    """The columns of a `pyarrow.Table` or DataFrame, each by the first of the names `wanted` that it has."""
    present = _names(table)
    columns = []
    for names in wanted:
        name = next((name for name in names if name in present), None)
        if name is None or present.count(name) > 1:
            found = f"no column {' or '.join(map(repr, names))}" if name is None else f"two columns {name!r}"
            if names == SCORE and set(GRADE) & set(present):
                found += ": this looks like judgments"
            raise InputError(
                f"{what}: {found}; it has {', '.join(present)}", allowed="these names", fix="rename a column"
            )
        column = table[name]
        columns.append(column.to_pylist() if hasattr(column, "to_pylist") else list(column))
    return columns


def _names(table: Any) -> list[str]:
    """The names of a table's columns; `columns` of a `pyarrow.Table` are the columns themselves."""
    return list(map(str, getattr(table, "column_names", None) or table.columns))


def is_table(value: object) -> bool:
    """Whether a value has columns, as a DataFrame has."""
    return hasattr(value, "columns") and not isinstance(value, Mapping)


def _lines(
    given: QrelsLike, what: str, value: str, fields: Mapping[str, Sequence[str]]
) -> tuple[pa.Array, pa.Array, Any]:
    """Ids of queries and of documents, Arrow strings [lines], and a number for each, float64 [lines]."""
    import pyarrow as pa

    if is_table(given):
        queries, documents, numbers = columns_of(
            given, what, *(fields[name] for name in ("query", "passage", value))
        )
    elif isinstance(given, Mapping) and all(isinstance(each, Mapping) for each in given.values()):
        lines = [(query, name, number) for query, values in given.items() for name, number in values.items()]
        queries, documents, numbers = map(list, zip(*lines, strict=True)) if lines else ([], [], [])
    else:
        raise InputError(
            f"{what} is {short_repr(given)}",
            allowed="a file, {query: {document: number}}, or a table with columns "
            f"{QUERY[0]}, {DOCUMENT[0]} and {value}",
        )
    try:
        values = np.array(numbers, np.float64)
        if values.ndim != 1:
            raise ValueError(f"a value is {short_repr(numbers[0])}")
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: {error}", allowed="a number for each document") from None
    query_ids = pa.array([id_of(each, f"{what}: a query") for each in queries], pa.string())
    document_ids = pa.array([id_of(each, f"{what}: a document") for each in documents], pa.string())
    return query_ids, document_ids, values


def id_of(value: object, what: str) -> str:
    """The text of an id that is a text or an integer; anything else is refused, such as one that is missing.

    So is a whole float such as 1.0: pandas turns integers into floats where a column has gaps.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, str) and (
        value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)
    ):
        return str(value)
    raise InputError(
        f"{what}'s id is {ascii(value)[:80]}, of type {type(value).__name__}",
        allowed="texts of valid Unicode, and integers",
        fix="remove rows without an id, then convert the column by .astype(int): where one is missing, "
        "pandas makes floats of integers",
    )


def write_collection(
    folder: str | Path,
    passages: Mapping[str, str | Mapping[str, str]] | Any,
    queries: Mapping[str, str] | Any,
    judgments: QrelsLike | None = None,
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
        files[path / "qrels" / "test.tsv"] = beir_qrels(judged.query_ids, judged.passage_ids, judged)
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


def _records(records: Any, what: str, ids: tuple[str, ...]) -> str:
    """JSON lines of ids, texts and titles."""
    import pyarrow as pa

    if is_table(records):
        columns = columns_of(records, what, ids, TEXT)
        has_title = "title" in _names(records)
        titles = columns_of(records, what, ("title",))[0] if has_title else [""] * len(columns[0])
        titles = ["" if isinstance(title, float) else title for title in titles]  # NaN: pandas' missing value
        rows = list(zip(*columns, titles, strict=True))
    elif isinstance(records, Mapping):
        rows = [
            (name, *_text_and_title(value, f"{what}: {name!r}"))
            if isinstance(value, Mapping)
            else (name, value, "")
            for name, value in records.items()
        ]
    else:
        found = f"{what}: {short_repr(records)}"
        raise InputError(found, allowed="{id: text}, or a table with columns id and text")
    names, lines = [], []
    for name, text, title in rows:
        if not isinstance(text, str) or not isinstance(title, str | None):
            wrong = text if not isinstance(text, str) else title
            raise InputError(f"{what}: the text of {name!r} is {short_repr(wrong)}", allowed="a text")
        names.append(id_of(name, f"{what}: a record"))
        record = {"_id": names[-1], **({"title": title} if title else {}), "text": text}
        line = json.dumps(record, ensure_ascii=False) + "\n"
        try:
            line.encode()
        except UnicodeEncodeError:
            found = f"{what}: the text of {name!r} holds half a surrogate pair"
            raise InputError(found, allowed="valid Unicode", fix="correct it") from None
        lines.append(line)
    kind = "passage" if what == "passages" else "query"
    refuse_unfit_ids(pa.array(names, pa.string()), kind, f"{what}, record {{}}".format)
    return "".join(lines)


def _text_and_title(record: Mapping[str, Any], what: str) -> tuple[Any, Any]:
    """The text and the title of a record; other fields are refused, since a text may be among them."""
    name = next((name for name in TEXT if name in record), None)
    others = [field for field in record if field not in (name, "title")]
    if name is None or others:
        found = f"has {', '.join(map(repr, record)) or 'no field'}"
        raise InputError(
            f"{what} {found}", allowed=f"title, and one of {', '.join(TEXT)}", fix="rename a field"
        )
    return record[name], record.get("title", "")
