"""Texts of a collection that occur in training data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Int64, JsonObject, Texts, from_numpy
from pipeline.formats.texts import BATCH_ROWS, Block, parse_lines, read_blocks

if TYPE_CHECKING:
    import pyarrow as pa

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
        for _, _, record in parse_lines(block):
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
