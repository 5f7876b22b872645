"""All texts of a file, whatever its layout: for a search of known texts in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.formats.blocks import Block, read_blocks
from pipeline.formats.jsonl import parse_lines
from pipeline.formats.records import BATCH_ROWS

NAMES = {
    "_id", "id", "qid", "docid", "pid", "query_id", "doc_id", "passage_id", "query-id", "corpus-id", "type",
}  # fmt: skip
"""Fields whose texts are names of something."""
BATCH = 4096  # texts


def read_all_texts(path: Path) -> Iterator[list[str]]:
    """The texts of a file in its order, in batches; empty ones and numbers are left out.

    Of JSON lines every text in any field that is not an id, of Parquet every column of texts or lists of
    texts, and of any other file every field between tabs. Text files may be gzip data.

    Raises:
        InputError: The file cannot be read, or is not what its first line says.
    """
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        allowed = "JSON lines, Parquet, or text with a tab between fields"
        raise InputError(f"{path} {found}", allowed=allowed, fix="name a file")
    parts = _parquet(path) if path.suffix == ".parquet" else map(_of_block, read_blocks(path))
    texts = (text for text in chain.from_iterable(parts) if text.strip() and not text.strip().isdecimal())
    while batch := list(islice(texts, BATCH)):
        yield batch


def _of_block(block: Block) -> Iterator[str]:
    if block.data.lstrip()[:1] == b"{":
        for _, _, record in parse_lines(block, ()):
            yield from _strings(record)
    else:
        for line in block.texts():
            yield from line.split("\t")


def _strings(value: Any) -> Iterator[str]:
    """The texts in a JSON value, without those of fields that hold names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in NAMES:
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _parquet(path: Path) -> Iterator[Iterator[str]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS):
                yield (text for row in batch.to_pylist() for text in _strings(row))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not readable as Parquet ({reason})", fix="write the file again") from None
