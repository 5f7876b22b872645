"""A collection from Python values, written in BEIR's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError, short_repr
from pipeline.formats.given import DOCUMENT, QUERY, TEXT, Given, columns_of, is_table, judgments_of
from pipeline.storage.whole_files import write_whole


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
