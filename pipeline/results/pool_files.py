"""Files of passages to judge: TSV with a header, or JSON lines, by the file's name.

query_id    passage_id    query    passage    grade

The column `grade` is empty when the file is written; whoever judges fills it in with whole numbers. Rows may
stay empty, stand in another order, or be left out.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.formats.judgments import GRADE_RULE, HIGHEST_GRADE, LOWEST_GRADE
from pipeline.storage import whole_files

SUFFIXES = (".tsv", ".jsonl")


@dataclass(frozen=True)
class PoolRow:
    """A passage of a query; `grade` is None where nobody judged it."""

    query_id: str
    passage_id: str
    query: str
    passage: str
    grade: int | None = None


COLUMNS = tuple(field.name for field in fields(PoolRow))


@dataclass(frozen=True)
class Grades:
    """What a file of judged passages holds.

    Attributes:
        path: The file, for messages.
        rows: Those with a grade, each pair of query and passage once.
        empty: How many others there are.
    """

    path: Path
    rows: list[PoolRow]
    empty: int


def check_pool_file(path: Path, option: str, new: bool = False) -> None:
    """Refuse a name that says no form, and with `new` a file that is there: it may hold people's work."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{option} {path}", allowed="a file whose name ends in .tsv or .jsonl")
    if new and path.exists():
        raise InputError(
            f"{option} {path} exists already, and may contain grades",
            allowed="a new file",
            fix="name another, or remove it",
        )


def write_pool(rows: Sequence[PoolRow], path: Path) -> None:
    """Write rows to judge."""
    if path.suffix == ".jsonl":
        text = "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
    else:
        file = io.StringIO(newline="")
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([row.query_id, row.passage_id, _line(row.query), _line(row.passage), ""])
        text = file.getvalue()
    whole_files.write_whole(path, text.encode())


def read_grades(path: Path) -> Grades:
    """Read a file that was judged.

    Raises:
        InputError: It cannot be read, lacks a column, has a grade that is no whole number, or two different
            grades for one passage; or none at all.
    """
    check_pool_file(path, "--add")
    rows: dict[tuple[str, str], PoolRow] = {}
    empty = 0
    try:
        records = list(_records(path))
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}", allowed=_allowed()) from None
    for number, record in records:
        row = _row(path, number, record)
        if row.grade is None:
            empty += 1
            continue
        earlier = rows.setdefault((row.query_id, row.passage_id), row)
        if earlier.grade != row.grade:
            raise InputError(
                f"{path}, line {number}: grade {row.grade} for passage {row.passage_id} of query "
                f"{row.query_id}, which has {earlier.grade} before",
                allowed="one grade for each",
                fix="keep one of them",
            )
    if not rows:
        raise InputError(
            f"{path} has no grade in {empty:,} rows", allowed=_allowed(), fix="fill in the column grade"
        )
    return Grades(path, list(rows.values()), empty)


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file, with the number of their line."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        if path.suffix == ".jsonl":
            yield from ((number, json.loads(line)) for number, line in enumerate(file, 1) if line.strip())
        else:
            reader = csv.DictReader(file, delimiter="\t")
            yield from ((reader.line_num, record) for record in reader)


def _row(path: Path, number: int, record: Any) -> PoolRow:
    """A row as it was read; the texts are not needed."""
    found = record if isinstance(record, dict) else {}
    ids = [found.get(name) for name in ("query_id", "passage_id")]
    if "grade" not in found or not all(isinstance(each, str) and each for each in ids):
        raise InputError(
            f"{path}, line {number}: not a query_id, a passage_id and a grade", allowed=_allowed()
        )
    text = "" if found["grade"] is None else str(found["grade"]).strip()
    try:
        grade = int(text) if text else None
    except ValueError:
        grade = HIGHEST_GRADE + 1
    if grade is not None and not LOWEST_GRADE <= grade <= HIGHEST_GRADE:
        raise InputError(f"{path}, line {number}: grade {text!r}", allowed=f"{GRADE_RULE}, or nothing")
    return PoolRow(str(ids[0]), str(ids[1]), "", "", grade)


def _allowed() -> str:
    return f"rows of {', '.join(COLUMNS)}, as benchmarco pool writes them"


def _line(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())
