"""Tab-separated texts: passages or queries, one a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.formats.blocks import Block, read_blocks
from pipeline.formats.records import Batch


def read_texts(path: Path, columns: str, id_column: int, text_column: int) -> Iterator[Batch]:
    """Read passages or queries.

    Args:
        path: The file.
        columns: Names of its columns, space-separated.
        id_column: Position of the id among them.
        text_column: Position of the text among them.
    """
    for block in read_blocks(path):
        numbers, rows = _fields(block, columns)
        yield _batch(block, numbers, [row[id_column] for row in rows], [row[text_column] for row in rows])


def read_repeated_texts(path: Path, columns: str, id_column: int, text_column: int) -> Iterator[Batch]:
    """As `read_texts`, without lines that repeat an earlier id; these must repeat its text, too.

    All ids are held in memory, each with a hash of its text.
    """
    known: dict[str, int] = {}
    for block in read_blocks(path):
        kept = []
        for number, row in zip(*_fields(block, columns), strict=True):
            name, text = row[id_column], row[text_column]
            if name not in known:
                known[name] = hash(text)
                kept.append((number, name, text))
            elif known[name] != hash(text):
                raise InputError(
                    f"{path}, line {number}: '{name}' has another text than on an earlier line",
                    allowed="one text for each id",
                    fix="correct that line",
                )
        numbers, names, texts = zip(*kept, strict=True) if kept else ((), (), ())
        yield _batch(block, numbers, names, texts)


def _batch(block: Block, numbers: Sequence[int], ids: Sequence[str], texts: Sequence[str]) -> Batch:
    import pyarrow as pa

    columns = pa.array(ids, pa.string()), pa.array(texts, pa.string())
    return Batch(*columns, None, str(block.path), "line", numbers, block.advance)


def _fields(block: Block, columns: str) -> tuple[Sequence[int], list[list[str]]]:
    """The lines' numbers and fields, without blank lines."""
    width = len(columns.split())
    rows = [line.split("\t") for line in block.texts()]
    numbers: Sequence[int] = range(block.first, block.first + len(rows))
    if all(len(row) == width for row in rows):
        return numbers, rows
    chosen = [(number, row) for number, row in zip(numbers, rows, strict=True) if row != [""]]
    for number, row in chosen:
        if len(row) != width:
            raise InputError(
                f"{block.path}, line {number}: expected {width} fields ({columns}), found {len(row)}",
                allowed="fields separated by tabs",
                fix="correct that line",
            )
    return [number for number, _ in chosen], [row for _, row in chosen]
