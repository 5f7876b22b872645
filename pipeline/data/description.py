"""What a collection holds: counts, lengths and examples; its texts as files; and those in training data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Array, Collection, Int64, JsonObject, Qrels, Texts, from_numpy
from pipeline.data.collection_files import write_lines
from pipeline.data.pooling import describe_slice
from pipeline.formats.texts import BATCH_ROWS, Block, parse_lines, read_blocks
from pipeline.storage import whole_files

if TYPE_CHECKING:
    import pyarrow as pa

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

    Of a slice, `slice` is what `pipeline.data.pooling.describe_slice` says.
    """
    sliced = describe_slice(collection)
    return {
        **collection.facts,
        **({"slice": sliced} if sliced else {}),
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
        counts = np.concatenate([np.asarray(count_tokens(part)) for part in _sampled(texts.texts)])
        lengths["tokens"] = {**_distribution(counts)}
        if read is not None:
            lengths["tokens"]["truncation"] = truncation_of(counts, read)
    return {**lengths}


def truncation_of(counts: Array, max_length: int, left_out: Array | None = None) -> JsonObject:
    """JSON of how many of some texts, by their tokens [texts], a model cuts, and of how many tokens.

    `left_out` [texts] are the tokens that it does not read, if these are not all after `max_length`.
    """
    cut = np.maximum(counts.astype(np.int64) - max_length, 0) if left_out is None else left_out
    figures = {"texts": len(counts), "cut": int((cut > 0).sum())}
    figures |= {"tokens": int(counts.sum(dtype=np.int64)), "tokens_cut": int(cut.sum(dtype=np.int64))}
    return {"max_length": max_length, **figures}


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
        with whole_files.replacing(lines) as path:
            write_lines(path, texts)
        with whole_files.replacing(names) as path, open(path, "w", encoding="utf-8") as file:
            for ids in texts.ids.chunks:
                file.writelines(f"{name}\n" for name in ids.to_pylist())
    return paths


ID_FIELDS = {
    "_id", "id", "qid", "docid", "pid", "query_id", "doc_id", "passage_id", "query-id", "corpus-id", "type",
}  # fmt: skip
"""Fields whose texts are ids and not searched."""
BATCH = 4096  # texts
MOST_FOUND = 5  # examples
_WORD = re.compile(r"\w+")


@dataclass
class _Known:
    """The passages or the queries of a collection."""

    texts: Texts
    rows: Int64  # [texts with words], in the order of `hashes`
    hashes: npt.NDArray[np.uint64]  # [texts with words], sorted: a hash of the words of each
    found: set[int] = field(default_factory=set)  # rows that occur in the training data


def find_training_data(collection: Collection, file: Path, progress: Progress = silent) -> JsonObject:
    """Find the passages and queries of a collection that occur in a file.

    A text occurs in it if a text of the file has the same words in the same order, in whatever case and with
    whatever punctuation. The file is JSON lines or Parquet, of which all texts but ids are read, or any other
    text, of which every field between tabs is. In the returned JSON, `pairs` is the number of queries that
    are found with one of their relevant passages.
    """
    queries, passages = _know(collection.queries), _know(collection.passages)
    total = 0
    with progress(f"searching {file.name}", None, "text") as bar:
        for batch in _read_texts(file):
            total += len(batch)
            hashes = np.unique(_hashes(batch))
            _search(queries, hashes)
            _search(passages, hashes)
            bar.update(len(batch))
    judged = collection.qrels.grades >= 1
    relevant = collection.qrels.passages[judged].tolist()
    pairs = zip(collection.qrels.queries[judged].tolist(), relevant, strict=True)
    return {
        "file": str(file),
        "texts": total,
        "queries": len(queries.found),
        "passages": len(passages.found),
        "relevant": len(passages.found.intersection(relevant)),
        "pairs": len({row for row, passage in pairs if row in queries.found and passage in passages.found}),
        "query_ids": _column(collection.queries.ids, sorted(queries.found)),
        "examples": [*_examples("query", queries), *_examples("passage", passages)],
    }


def _know(texts: Texts) -> _Known:
    """The hashes of texts; 0 stands for a text without words, which is left out."""
    parts = [texts.texts.slice(start, BATCH).to_pylist() for start in range(0, len(texts), BATCH)]
    hashes = np.concatenate([np.zeros(0, np.uint64), *map(_hashes, parts)])
    rows = np.argsort(hashes, kind="stable")
    rows = rows[np.searchsorted(hashes[rows], 1) :]
    return _Known(texts, rows, hashes[rows])


def _search(known: _Known, hashes: npt.NDArray[np.uint64]) -> None:
    """Add the rows whose hash is among `hashes`, uint64 [n]."""
    first = np.searchsorted(known.hashes, hashes)
    last = np.searchsorted(known.hashes, hashes, side="right")
    for number in np.flatnonzero(last > first).tolist():
        known.found.update(known.rows[first[number] : last[number]].tolist())


def _hashes(texts: list[str]) -> npt.NDArray[np.uint64]:
    """uint64 [texts]: 64 bits of the BLAKE2b hash of each text's words in lower case; 0 for no words."""
    return np.fromiter(map(_hash, texts), np.uint64, len(texts))


def _hash(text: str) -> int:
    words = " ".join(_WORD.findall(text.lower())).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little") if words else 0


def _column(column: pa.ChunkedArray, rows: list[int]) -> list[str]:
    values: list[str] = column.take(from_numpy(np.array(rows, np.int64))).to_pylist()
    return values


def _examples(role: str, known: _Known) -> list[dict[str, str]]:
    rows = sorted(known.found)[:MOST_FOUND]
    pairs = zip(_column(known.texts.ids, rows), _column(known.texts.texts, rows), strict=True)
    return [{"role": role, "id": name, "text": text} for name, text in pairs]


def _read_texts(path: Path) -> Iterator[list[str]]:
    """The texts of a file in its order, in batches; empty ones and numbers are left out."""
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        allowed = "JSON lines, Parquet, or text with a tab between fields"
        raise InputError(f"{path} {found}", allowed=allowed, fix="name a file")
    parts = _of_parquet(path) if path.suffix == ".parquet" else map(_of_block, read_blocks(path))
    texts = (text for text in chain.from_iterable(parts) if text.strip() and not text.strip().isdecimal())
    while batch := list(islice(texts, BATCH)):
        yield batch


def _of_block(block: Block) -> Iterator[str]:
    if block.data.lstrip()[:1] == b"{":
        for _, _, record in parse_lines(block, ()):
            yield from _of_value(record)
    else:
        for line in block.texts():
            yield from line.split("\t")


def _of_value(value: object) -> Iterator[str]:
    """The texts in a JSON value, without those of fields that hold ids."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in ID_FIELDS:
                yield from _of_value(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _of_value(inner)


def _of_parquet(path: Path) -> Iterator[Iterator[str]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield (text for row in batch.to_pylist() for text in _of_value(row))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not readable as Parquet ({reason})", fix="write the file again") from None
