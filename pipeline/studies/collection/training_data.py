"""Texts of a collection that occur in training data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Collection, Int64, JsonObject, Texts, from_numpy
from pipeline.formats.texts import BATCH_ROWS, Block, parse_lines, read_blocks

ID_FIELDS = {
    "_id", "id", "qid", "docid", "pid", "query_id", "doc_id", "passage_id", "query-id", "corpus-id", "type",
}  # fmt: skip
"""Fields whose texts are ids and not searched."""
BATCH = 4096  # texts
MOST_FOUND = 5  # examples
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class _Known:
    """The passages or the queries of a collection, and which of them occur in the training data."""

    texts: Texts
    hashes: npt.NDArray[np.uint64]  # [hashes], ascending; see `_hashes`
    group: Int64  # int64 [texts], the row in `hashes` of each
    seen: BoolArray  # bool [hashes]

    @classmethod
    def of(cls, texts: Texts) -> _Known:
        """Texts of which none is known to occur."""
        parts = [texts.texts.slice(start, BATCH).to_pylist() for start in range(0, len(texts), BATCH)]
        all_hashes = np.concatenate([np.zeros(0, np.uint64), *map(_hashes, parts)])
        hashes, group = np.unique(all_hashes, return_inverse=True)
        return cls(texts, hashes, group, np.zeros(len(hashes), bool))

    def search(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Note which texts have one of `hashes`, uint64 [n]."""
        places = np.searchsorted(self.hashes, hashes)
        inside = places < len(self.hashes)
        places, hashes = places[inside], hashes[inside]
        self.seen[places[(self.hashes[places] == hashes) & (hashes > 0)]] = True

    def found(self) -> Int64:
        """int64: the rows of the texts that occur."""
        return np.flatnonzero(self.seen[self.group])


def find_training_data(collection: Collection, file: Path, progress: Progress = silent) -> JsonObject:
    """Find the passages and queries of a collection that occur in a file.

    A text occurs in it if a text of the file has the same words in the same order, in whatever case and with
    whatever punctuation. The file is JSON lines or Parquet, of which all texts but ids are read, or any other
    text, of which every field between tabs is; numbers are left out. In the returned JSON, `pairs` is the
    number of queries that are found with one of their relevant passages.
    """
    queries, passages = _Known.of(collection.queries), _Known.of(collection.passages)
    parts = _of_parquet(file) if file.suffix == ".parquet" else map(_of_block, read_blocks(file))
    texts = (text for text in chain.from_iterable(parts) if text.strip() and not text.strip().isdecimal())
    total = 0
    with progress(f"searching {file.name}", None, "text") as bar:
        while batch := list(islice(texts, BATCH)):
            total += len(batch)
            hashes = np.unique(_hashes(batch))
            queries.search(hashes)
            passages.search(hashes)
            bar.update(len(batch))
    found_queries, found_passages = queries.found(), passages.found()
    qrels = collection.qrels
    relevant = (qrels.grades >= 1) & np.isin(qrels.passages, found_passages)
    pairs = relevant & np.isin(qrels.queries, found_queries)
    return {
        "file": str(file),
        "texts": total,
        "queries": len(found_queries),
        "passages": len(found_passages),
        "relevant": len(np.unique(qrels.passages[relevant])),
        "pairs": len(np.unique(qrels.queries[pairs])),
        "query_ids": collection.queries.ids.take(from_numpy(found_queries)).to_pylist(),
        "examples": [*_examples("query", queries), *_examples("passage", passages)],
    }


def _hashes(texts: list[str]) -> npt.NDArray[np.uint64]:
    """uint64 [texts]: 64 bits of the BLAKE2b hash of each text's words in lower case; 0 for no words."""
    hashes = np.zeros(len(texts), np.uint64)
    for row, text in enumerate(texts):
        if words := " ".join(_WORD.findall(text.lower())).encode(errors="surrogatepass"):
            hashes[row] = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")
    return hashes


def _examples(role: str, known: _Known) -> Iterator[dict[str, str]]:
    for row in known.found()[:MOST_FOUND].tolist():
        yield {"role": role, "id": known.texts.ids[row].as_py(), "text": known.texts.texts[row].as_py()}


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
