"""How are text files with one record a line read? Tab-separated texts, and judgments in columns."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError, short_repr
from pipeline.formats.blocks import Block, blocks
from pipeline.formats.source import Batch, Judgments

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def parse_grade(text: str) -> int | None:
    """A relevance grade, or None if it is no integer."""
    return int(text) if _INTEGER.fullmatch(text) else None


def read_judgments(path: Path, columns: str, header: bool) -> Judgments:
    """Judgments from a text file with one a line, fields separated by tabs or spaces.

    Args:
        path: The file.
        columns: Names of its columns, space-separated: the first is the query's id, the last but one the
            passage's, the last the grade.
        header: Whether the first line may name the columns; it does when it ends in no integer.

    Raises:
        InputError: A line has another number of fields, or a grade is no integer, or there is no judgment.
    """
    import pyarrow as pa

    width = len(columns.split())
    queries, passages, grades, numbers = [], [], array("q"), array("q")
    for block in blocks(path):
        block_queries, block_passages = [], []
        for number, line in enumerate(block.texts(), block.first):
            fields = line.split()
            if not fields:
                continue
            grade = parse_grade(fields[-1]) if len(fields) == width else None
            if grade is None:
                if header and number == 1 and len(fields) == width:
                    continue
                raise _bad_line(f"{path}, line {number}", fields, columns)
            block_queries.append(fields[0])
            block_passages.append(fields[-2])
            grades.append(grade)
            numbers.append(number)
        queries.append(pa.array(block_queries, pa.string()))
        passages.append(pa.array(block_passages, pa.string()))
    if not grades:
        raise InputError(f"{path}: holds no judgment", allowed=f"lines of {columns}", fix="check the file")
    return Judgments(
        pa.concat_arrays(queries),
        pa.concat_arrays(passages),
        np.frombuffer(grades, np.int64),
        str(path),
        "line",
        np.frombuffer(numbers, np.int64),
    )


def read_texts(path: Path, columns: str, id_column: int, text_column: int) -> Iterator[Batch]:
    """Passages or queries of a text file with one a line, fields separated by tabs.

    Args:
        path: The file.
        columns: Names of its columns, space-separated.
        id_column: Which of them is the id.
        text_column: Which of them is the text.

    Raises:
        InputError: A line has another number of fields.
    """
    for block in blocks(path):
        numbers, rows = _fields(block, columns)
        yield _batch(block, numbers, [row[id_column] for row in rows], [row[text_column] for row in rows])


def read_repeated(path: Path, columns: str, id_column: int, text_column: int) -> Iterator[Batch]:
    """The same where an id may stand in many lines; the first counts, and the others have to agree.

    All ids are held in memory, each with a hash of its text.
    """
    known: dict[str, int] = {}
    for block in blocks(path):
        kept = []
        for number, row in zip(*_fields(block, columns), strict=True):
            name, text = row[id_column], row[text_column]
            if name not in known:
                known[name] = hash(text)
                kept.append((number, name, text))
            elif known[name] != hash(text):
                raise InputError(
                    f"{path}, line {number}: '{name}' has another text than in a line before",
                    allowed="one text for each id",
                    fix="mend that line",
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
            raise _bad_line(f"{block.path}, line {number}", row, columns)
    return [number for number, _ in chosen], [row for _, row in chosen]


def _bad_line(place: str, fields: list[str], columns: str) -> InputError:
    names = columns.split()
    if len(fields) == len(names):
        return InputError(
            f"{place}: the {names[-1]} is {short_repr(fields[-1])}",
            allowed="an integer",
            fix="mend that line",
        )
    return InputError(
        f"{place}: {len(fields)} fields where {len(names)} belong",
        allowed=f"{', '.join(names)}, separated by tabs, without white space inside an id",
        fix="mend that line",
    )
