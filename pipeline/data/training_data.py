"""The texts of a collection that stand in a file of training data, exactly or nearly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.arrow import from_numpy
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Collection, Int64, Texts
from pipeline.core.words import words_of
from pipeline.data.near_duplicates import THRESHOLD, NearDuplicates, hash_words, similarity
from pipeline.formats.any_texts import read_all_texts

BATCH = 4096  # texts
EXAMPLES = 5
Words = list[str]


@dataclass
class _Known:
    """The passages or the queries of a collection, and what was found of them.

    Attributes:
        texts: The texts.
        rows: int64 [texts with words], their rows.
        hashes: uint64 [texts with words], sorted, of all words of each; `order` has their places in `rows`.
        near: For near-duplicates, numbered as in `rows`.
        found: For each row found its similarity, 1 for exact ones, and the text of the training data.
        exact: Rows that stand there exactly.
    """

    texts: Texts
    rows: Int64
    hashes: Any
    order: Int64
    near: NearDuplicates
    found: dict[int, tuple[float, str]] = field(default_factory=dict)
    exact: set[int] = field(default_factory=set)


def find_training_data(
    collection: Collection, file: Path, threshold: float = THRESHOLD, progress: Progress = silent
) -> dict[str, Any]:
    """Find the passages and queries of a collection that stand in a file.

    A text stands in it exactly if a text of the file has the same words in the same order, whatever their
    case and punctuation; nearly if one has a similarity of at least the threshold; see
    `pipeline.data.near_duplicates`.

    Args:
        collection: The collection.
        file: The training data, in any layout that `read_all_texts` reads.
        threshold: The lowest similarity that counts, above 0.
        progress: Opens a progress bar.

    Returns:
        Plain JSON: the `file`, the number of its `texts`, the `threshold`; for `passages`, `queries` and
        `relevant` (the passages of grade 1 or higher) the numbers of `exact` and `near` ones, which do not
        overlap; `pairs`, the queries that stand there with one of their relevant passages; `query_ids`, the
        queries that stand there, and `examples` of all.

    Raises:
        InputError: The file cannot be read.
    """
    known = {"passages": _know(collection.passages), "queries": _know(collection.queries)}
    total = 0
    with progress(f"searching {file.name}", None, "text") as bar:
        for batch in read_all_texts(file):
            total += len(batch)
            listed = [(text, words) for text in dict.fromkeys(batch) if (words := words_of(text))]
            for texts in known.values() if listed else ():
                _search(texts, listed, threshold)
            bar.update(len(batch))
    judged = collection.qrels.grades >= 1
    relevant = set(collection.qrels.passages[judged].tolist())
    passages, queries = known["passages"], known["queries"]
    judged_pairs = zip(
        collection.qrels.queries[judged].tolist(), collection.qrels.passages[judged].tolist(), strict=True
    )
    pairs = {query for query, passage in judged_pairs if query in queries.found and passage in passages.found}
    return {
        "file": str(file),
        "texts": total,
        "threshold": threshold,
        "queries": _counts(queries, queries.found),
        "passages": _counts(passages, passages.found),
        "relevant": _counts(passages, relevant & passages.found.keys()),
        "pairs": len(pairs),
        "query_ids": _ids(collection.queries, sorted(queries.found)),
        "examples": [*_examples("query", queries), *_examples("passage", passages)],
    }


def _know(texts: Texts) -> _Known:
    """Hashes and signatures of texts; those without words are left out."""
    rows = [np.zeros(0, np.int64)]
    hashes = [np.zeros(0, np.uint64)]

    def batches() -> Iterator[list[Words]]:
        for start in range(0, len(texts), BATCH):
            found = [words_of(text) for text in texts.texts.slice(start, BATCH).to_pylist()]
            rows.append(start + np.flatnonzero([bool(words) for words in found]))
            kept = [words for words in found if words]
            hashes.append(np.array([hash_words(words) for words in kept], np.uint64))
            yield kept

    near = NearDuplicates(batches())
    numbers = np.concatenate(hashes)
    order = np.argsort(numbers, kind="stable")
    return _Known(texts, np.concatenate(rows), numbers[order], order, near)


def _search(known: _Known, listed: Sequence[tuple[str, Words]], threshold: float) -> None:
    """Look some texts of the training data up among those known; of a text the most similar one is kept."""
    hashes = np.array([hash_words(words) for _, words in listed], np.uint64)
    first = np.searchsorted(known.hashes, hashes)
    last = np.searchsorted(known.hashes, hashes, side="right")
    for number in np.flatnonzero(last > first).tolist():
        for row in known.rows[known.order[first[number] : last[number]]].tolist():
            known.exact.add(row)
            known.found[row] = (1.0, listed[number][0])
    pairs = known.near.candidates([words for _, words in listed])
    pairs = np.stack([known.rows[pairs[:, 0]], pairs[:, 1]], axis=1)
    pairs = pairs[~np.isin(pairs[:, 0], list(known.exact))]
    texts = known.texts.texts.take(from_numpy(pairs[:, 0])).to_pylist()
    for (row, number), text in zip(pairs.tolist(), texts, strict=True):
        other, words = listed[number]
        found = similarity(words_of(text), words)
        if found >= max(threshold, known.found.get(row, (0.0, ""))[0]):
            known.found[row] = (found, other)


def _counts(known: _Known, rows: Any) -> dict[str, int]:
    exact = sum(row in known.exact for row in rows)
    return {"exact": exact, "near": len(rows) - exact}


def _ids(texts: Texts, rows: Sequence[int]) -> list[str]:
    ids: list[str] = texts.ids.take(from_numpy(np.array(rows, np.int64))).to_pylist()
    return ids


def _examples(role: str, known: _Known) -> list[dict[str, Any]]:
    """A few of the texts found, exact and near ones in turn."""
    near = sorted(known.found.keys() - known.exact, key=lambda row: (-known.found[row][0], row))
    chosen = [*sorted(known.exact)[: EXAMPLES - min(len(near), 2)], *near][:EXAMPLES]
    texts = known.texts.texts.take(from_numpy(np.array(chosen, np.int64))).to_pylist()
    return [
        {
            "role": role,
            "id": name,
            "similarity": known.found[row][0],
            "text": text,
            "training_text": known.found[row][1],
        }
        for row, name, text in zip(chosen, _ids(known.texts, chosen), texts, strict=True)
    ]
