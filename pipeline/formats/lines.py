"""What do the lines of a TREC file say? Parsed by columns; one by one only to explain what is wrong."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64
from pipeline.formats.duplicates import UInt64, fingerprints

MAX_GRADE = 2**31 - 1

_COMMENT = re.compile(rb"^#[^\n]*", re.MULTILINE)
_OTHER_SPACES = bytes.maketrans(b"\t\r\v\f", b"    ")


@dataclass(frozen=True)
class Block:
    """The columns of some lines.

    Attributes:
        queries: Arrow run-end encoded strings [lines]: most lines have the query of the line before.
        documents: Arrow strings [lines].
        values: [lines], float32 scores of a run or int64 grades of judgments.
        fingerprints: uint64 [lines], of the documents.
    """

    queries: pa.RunEndEncodedArray
    documents: pa.Array
    values: npt.NDArray[Any]
    fingerprints: UInt64


@dataclass(frozen=True)
class Form:
    """The columns of a line.

    Attributes:
        columns: Their names, in order; `query` and `document` are among them.
        value: The name of the column that holds the number.
        value_pattern: What that number looks like.
        value_rule: The same in words.
    """

    columns: tuple[str, ...]
    value: str
    value_pattern: re.Pattern[bytes]
    value_rule: str


_NUMBER = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.IGNORECASE)
_INTEGER = re.compile(rb"[+-]?[0-9]{1,10}")
_GRADES = f"a whole number up to {MAX_GRADE}"
RUN = Form(("query", "Q0", "document", "rank", "score", "tag"), "score", _NUMBER, "a number")
QRELS = Form(("query", "iteration", "document", "grade"), "grade", _INTEGER, _GRADES)
BEIR = Form(("query", "document", "grade"), "grade", _INTEGER, _GRADES)


def parse(text: bytes, form: Form) -> Block | None:
    """Parse whole lines; None if there are only comments and blank ones.

    Raises:
        ValueError: One is malformed; `explain` says which.
    """
    if not text.isascii():
        text.decode()  # raises a ValueError where the bytes are not UTF-8
    text = _tidy(text)
    if not text or text.isspace():
        return None
    string = pa.dictionary(pa.int32(), pa.string())
    types = {
        "query": pa.string(),
        "document": pa.string(),
        form.value: pa.float64() if form is RUN else string,
    }
    table = csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(column_names=form.columns, block_size=2 * len(text), use_threads=False),
        parse_options=csv.ParseOptions(
            delimiter=" ", quote_char=False, double_quote=False, escape_char=False
        ),
        convert_options=csv.ConvertOptions(
            include_columns=list(types),
            column_types=types,
            null_values=[],
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    queries, documents, values = (column.combine_chunks() for column in table.columns)
    convert = _scores if form is RUN else _grades
    return Block(pc.run_end_encode(queries), documents, convert(values), fingerprints(documents))


def explain(path: Path | str, data: bytes, form: Form) -> InputError | None:
    """What is wrong with the first malformed line?"""
    names = " ".join(form.columns)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        return InputError(f"{path}:{number} is not UTF-8", allowed="UTF-8 text")
    for number, fields in fields_by_line(data):
        if len(fields) != len(form.columns):
            found = f"{path}:{number} has {len(fields)} fields"
            return InputError(found, allowed=f"{len(form.columns)}: {names}")
        value = fields[form.columns.index(form.value)]
        if not _is_value(form, value):
            return InputError(
                f"{path}:{number} has the {form.value} {value.decode()!r}", allowed=form.value_rule
            )
    return None


def duplicated(path: Path | str, data: bytes, form: Form, query: str, document: str) -> InputError:
    """Which two lines name the same query and document?"""
    place = (form.columns.index("query"), form.columns.index("document"))
    pair = [query.encode(), document.encode()]
    numbers = (
        number for number, fields in fields_by_line(data) if [fields[column] for column in place] == pair
    )
    first, second = next(numbers), next(numbers)
    return InputError(
        f"{path}:{second} lists document {document!r} again for query {query!r}, first on line {first}",
        allowed="each document once per query",
        fix="remove one of the two lines",
    )


def fields_by_line(data: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Number, from 1, and fields of each line that is neither blank nor a comment. Slow: for messages."""
    for number, line in enumerate(io.BytesIO(data), 1):
        fields = line.split()
        if fields and not fields[0].startswith(b"#"):
            yield number, fields


def _tidy(data: bytes) -> bytes:
    """The same lines with single spaces between fields and without comments. Most files are so already."""
    other = any(space in data for space in (b"\t", b"\r", b"\v", b"\f"))
    if other or data[:1] == b" " or _has_double_space(data):
        text = np.frombuffer(data.translate(_OTHER_SPACES), dtype=np.uint8)
        before_space = np.isin(np.append(text[1:], 10), (10, 32))
        text = text[(text != 32) | ~before_space]  # of several spaces the last, none at a line's end
        after_newline = np.append(10, text[:-1]) == 10
        data = text[(text != 32) | ~after_newline].tobytes()
    return _COMMENT.sub(b"", data) if data[:1] == b"#" or (b"#" in data and b"\n#" in data) else data


def _has_double_space(data: bytes) -> bool:
    """Do two white-space characters follow one another? Counts a blank line, too."""
    space = np.frombuffer(data, dtype=np.uint8) <= 32
    return bool((space[1:] & space[:-1]).any())


def _scores(column: pa.Array) -> Float32:
    with np.errstate(over="ignore"):  # as in C, a score past float32 is infinite
        scores: Float32 = column.to_numpy().astype(np.float32)
    if np.isnan(scores).any():
        raise ValueError("a score is not a number")
    return scores


def _grades(column: pa.DictionaryArray) -> Int64:
    texts = [text.encode() for text in column.dictionary.to_pylist()]
    if not all(_is_value(QRELS, text) for text in texts):
        raise ValueError("a grade is not a whole number")
    grades: Int64 = np.array([int(text) for text in texts], dtype=np.int64)[column.indices.to_numpy()]
    return grades


def _is_value(form: Form, text: bytes) -> bool:
    return bool(form.value_pattern.fullmatch(text)) and (form is RUN or abs(int(text)) <= MAX_GRADE)
