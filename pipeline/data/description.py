"""Counts, lengths and examples of a collection, and its texts as files to encode elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Collection, Int64, JsonObject, Qrels, Texts
from pipeline.storage import whole_files

if TYPE_CHECKING:
    import pyarrow as pa

TokenCounter = Callable[[list[str]], Sequence[int]]  # texts -> the number of tokens of each

TOKENIZED = 10_000  # at most so many texts have their tokens counted
SEED = 0
EXAMPLES = 3


def describe(collection: Collection, count_tokens: TokenCounter | None = None) -> JsonObject:
    """Describe a collection.

    Args:
        collection: The collection, as `open_collection` returns it.
        count_tokens: Counts the tokens of texts, at most of a seeded sample of `TOKENIZED`; without it,
            `tokens` are left out.

    Returns:
        Plain JSON: the facts from `load` (`passages`, `queries`, `judgments`, `titles`, `empty_texts`,
        `empty_queries`, `missing`, `dropped`, `outside_slice`, `content`); `judgments_per_query`, over all
        grades as `all` and for each `grade`; `lengths` of `passages` and `queries` in `characters` and
        `tokens`; `examples`. A distribution is `min`, `median`, `mean`, `p95`, `max` and `counted` (how many
        values).
    """
    return {
        **collection.facts,
        "judgments_per_query": _per_query(collection.qrels, len(collection.queries)),
        "lengths": {
            "passages": _lengths(collection.passages, count_tokens),
            "queries": _lengths(collection.queries, count_tokens),
        },
        "examples": [_example(collection, query) for query in range(min(EXAMPLES, len(collection.queries)))],
    }


def _distribution(values: Array) -> dict[str, float | int]:
    """The distribution of some values [n], n at least 1."""
    return {
        "min": int(values.min()),
        "median": float(np.median(values)),
        "mean": round(float(values.mean()), 2),
        "p95": round(float(np.percentile(values, 95)), 2),
        "max": int(values.max()),
        "counted": len(values),
    }


def _per_query(qrels: Qrels, queries: int) -> JsonObject:
    """The number of judgments of a query, over all grades and for each grade, with the grade's total."""
    by_grade = {}
    for grade in np.unique(qrels.grades).tolist():
        chosen = np.bincount(qrels.queries[qrels.grades == grade], minlength=queries)
        by_grade[str(grade)] = {"judgments": int(chosen.sum()), **_distribution(chosen)}
    return {"all": _distribution(np.bincount(qrels.queries, minlength=queries)), "grade": by_grade}


def _lengths(texts: Texts, count_tokens: TokenCounter | None) -> JsonObject:
    import pyarrow.compute as pc

    characters = pc.utf8_length(texts.texts).to_numpy()
    lengths: JsonObject = {"characters": _distribution(characters)}
    if count_tokens:
        counts = [count_tokens(part) for part in _sampled(texts.texts)]
        lengths["tokens"] = _distribution(np.concatenate([np.asarray(part, np.int64) for part in counts]))
    return lengths


def _sampled(column: pa.ChunkedArray) -> Iterator[list[str]]:
    """All texts, or a seeded sample of `TOKENIZED`, in lists of moderate size."""
    rows = np.arange(len(column))
    if len(rows) > TOKENIZED:
        rows = np.sort(np.random.default_rng(SEED).choice(len(rows), TOKENIZED, replace=False))
    start = 0
    for chunk in column.chunks:
        inside: Int64 = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + len(chunk))] - start
        start += len(chunk)
        if inside.size:
            yield chunk.take(inside).to_pylist()


def _example(collection: Collection, query: int) -> JsonObject:
    """A query with one judged passage of each grade that the corpus has, highest first."""
    qrels = collection.qrels
    mine = np.flatnonzero((qrels.queries == query) & (qrels.passages < len(collection.passages)))
    grades, first = np.unique(qrels.grades[mine], return_index=True)
    return {
        **_text(collection.queries, query),
        "judged": [
            {"grade": int(grade), **_text(collection.passages, int(qrels.passages[mine[at]]))}
            for grade, at in sorted(zip(grades, first, strict=True), reverse=True)
        ],
    }


def _text(texts: Texts, row: int) -> dict[str, str]:
    return {"id": texts.ids[row].as_py(), "text": texts.texts[row].as_py()}


def export_texts(collection: Collection, folder: Path) -> list[Path]:
    """Write the texts of passages and queries in the collection's order, and their ids alone.

    Args:
        collection: The collection.
        folder: A new or empty folder; `passages.jsonl` and `queries.jsonl` get lines of `_id` and `text`, a
            title joined to its text; `passage_ids.txt` and `query_ids.txt` an id a line.

    Returns:
        The files.
    """
    written = []
    for role, texts in (("passage", collection.passages), ("query", collection.queries)):
        several = {"passage": "passages", "query": "queries"}[role]
        written += [folder / f"{several}.jsonl", folder / f"{role}_ids.txt"]
        _write(texts, *written[-2:])
    return written


def check_export(folder: Path) -> None:
    """Refuse a folder that holds anything, or cannot be made, before anything is read for it."""
    if folder.is_dir() and any(folder.iterdir()):
        what = "is not empty"
    elif (folder.exists() and not folder.is_dir()) or not folder.absolute().parent.is_dir():
        what = "cannot be made"
    else:
        return
    raise InputError(
        f"--export {folder}: {what}",
        allowed="a new or empty folder, inside one that exists",
        fix="name another",
    )


def _write(texts: Texts, text_path: Path, id_path: Path) -> None:
    """Write ids and texts, and ids alone, a batch at a time."""
    text_path.parent.mkdir(exist_ok=True)
    with (
        whole_files.replacing(text_path) as new_texts,
        whole_files.replacing(id_path) as new_ids,
        open(new_texts, "w", encoding="utf-8") as text_file,
        open(new_ids, "w", encoding="utf-8") as id_file,
    ):
        for ids, batch in zip(texts.ids.chunks, texts.texts.chunks, strict=True):
            names = ids.to_pylist()
            records = (
                {"_id": name, "text": text} for name, text in zip(names, batch.to_pylist(), strict=True)
            )
            text_file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
            id_file.writelines(f"{name}\n" for name in names)
