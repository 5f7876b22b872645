"""Tab-separated texts: passages or queries, an id and a text on each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.formats.blocks import read_blocks
from pipeline.formats.records import Batch


def read_texts(path: Path) -> Iterator[Batch]:
    """Read passages or queries; blank lines are skipped."""
    import pyarrow as pa

    for block in read_blocks(path):
        lines = enumerate((line.split("\t") for line in block.texts()), block.first)
        rows = [(number, fields) for number, fields in lines if fields != [""]]
        for number, fields in rows:
            if len(fields) != 2:
                raise InputError(
                    f"{path}, line {number}: expected 2 fields (id text), found {len(fields)}",
                    allowed="fields separated by tabs",
                    fix="correct that line",
                )
        ids, texts = (pa.array([fields[at] for _, fields in rows], pa.string()) for at in (0, 1))
        yield Batch(ids, texts, None, str(path), "line", [number for number, _ in rows], block.advance)
