"""What a collection holds: counts, lengths and examples; and its texts as files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.core.records import Array, Collection, Facts, JsonObject, Qrels, Texts
from pipeline.retrievers.truncation import truncation_of
from pipeline.storage import whole_files
from pipeline.studies.shared.collections import write_lines

TokenCounter = Callable[[list[str]], Sequence[int]]  # texts -> the number of tokens of each

TOKENIZED = 10_000  # at most so many texts have their tokens counted
SEED = 0
EXAMPLES = 3
MOST_LEVELS = 20  # distinct grades that are counted one by one


def describe(
    collection: Collection, count_tokens: TokenCounter | None = None, read: Mapping[str, int] | None = None
) -> JsonObject:
    """Facts, judgments per query, lengths and examples of a collection, as JSON.

    Args:
        collection: The collection, as `open_collection` returns it.
        count_tokens: Counts the tokens of texts, at most of a seeded sample of `TOKENIZED`; without it,
            `tokens` are left out.
        read: For `passages` and `queries` the tokens that a model reads of one; None if no model is known.

    Of a slice, `slice` has the number of its `passages` and of those of the corpus, `of`; and of judged
    passages, in the slice and in all.
    """
    facts: Facts = collection.facts
    outside, passages = facts["outside_slice"]["passages"], len(collection.passages)
    judged = np.unique(collection.qrels.passages)
    sliced = {
        "passages": passages,
        "of": passages + outside,
        "judged": int((judged < passages).sum()),
        "judged_of": len(judged),
    }
    return {
        **facts,
        **({"slice": sliced} if outside else {}),
        "judgments_per_query": _per_query(collection.qrels, len(collection.queries)),
        "lengths": {
            role: _lengths(getattr(collection, role), count_tokens, read[role] if read else None)
            for role in ("passages", "queries")
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
    """The number of judgments of a query, over all grades; and for each grade, if these are few."""
    by_grade, levels = {}, np.unique(qrels.grades).tolist()
    for grade in levels if len(levels) <= MOST_LEVELS else ():
        chosen = np.bincount(qrels.queries[qrels.grades == grade], minlength=queries)
        by_grade[str(grade)] = {"judgments": int(chosen.sum()), **_distribution(chosen)}
    return {"all": _distribution(np.bincount(qrels.queries, minlength=queries)), "grade": by_grade}


def _lengths(texts: Texts, count_tokens: TokenCounter | None, read: int | None) -> JsonObject:
    import pyarrow.compute as pc

    characters = pc.utf8_length(texts.texts).to_numpy()
    lengths: dict[str, JsonObject] = {"characters": {**_distribution(characters)}}
    if count_tokens:
        rows = np.arange(len(texts))
        if len(rows) > TOKENIZED:
            rows = np.sort(np.random.default_rng(SEED).choice(len(rows), TOKENIZED, replace=False))
        # by row, as Arrow's take joins all chunks, whose texts may be too many for its offsets
        counts = np.asarray(count_tokens([texts.texts[row].as_py() for row in rows.tolist()]))
        lengths["tokens"] = {**_distribution(counts)}
        if read is not None:
            lengths["tokens"]["truncation"] = truncation_of(counts, read)
    return {**lengths}


def _example(collection: Collection, query: int) -> JsonObject:
    """A query with one judged passage of each grade that the corpus has, highest first."""
    qrels = collection.qrels
    judged = np.flatnonzero((qrels.queries == query) & (qrels.passages < len(collection.passages)))
    grades, first = np.unique(qrels.grades[judged], return_index=True)
    return {
        **_text(collection.queries, query),
        "judged": [
            {"grade": grade.item(), **_text(collection.passages, int(qrels.passages[judged[at]]))}
            for grade, at in sorted(zip(grades, first, strict=True), reverse=True)
        ],
    }


def _text(texts: Texts, row: int) -> dict[str, str]:
    return {"id": texts.ids[row].as_py(), "text": texts.texts[row].as_py()}


def export_texts(collection: Collection, folder: Path) -> list[Path]:
    """Write texts, as lines of `_id` and `text`, and ids alone into an empty folder; returns the files."""
    files = ("passages.jsonl", "passage_ids.txt", "queries.jsonl", "query_ids.txt")
    paths = [folder / file for file in files]
    folder.mkdir(parents=True, exist_ok=True)
    for texts, (lines, names) in ((collection.passages, paths[:2]), (collection.queries, paths[2:])):
        write_lines(lines, texts)
        with whole_files.replacing(names) as path, open(path, "w", encoding="utf-8") as file:
            for ids in texts.ids.chunks:
                file.writelines(f"{name}\n" for name in ids.to_pylist())
    return paths
