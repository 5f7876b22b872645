"""Lines of columns separated by white space: the parser of TREC runs and judgments.

Lines are parsed by Arrow's CSV reader, which supports one separator and no comments: white space is first
reduced to single spaces, and comments are cut out. If Arrow refuses them, they are read again one by one, to
name the malformed line.

White space is ASCII white space, as in trec_eval. A line that begins with `#` is a comment, unless it reads
as a line of data: it is refused then, since it may be of a query whose id begins so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Float64, Int32, Int64, UInt64
from pipeline.formats.texts import Block, read_blocks

if TYPE_CHECKING:
    import pyarrow as pa


FILES = {3: "judgments", 4: "judgments", 6: "a run"}
"""What a file is by the number of its lines' fields."""
PARSED_BYTES = 1 << 30  # parsed at once; no line may be longer

_MIX_DOCUMENT = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing
_MIX_QUERY = np.uint64(0xC2B2AE3D27D4EB4F)
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)  # mask of a word's first n

_COMMENT = re.compile(rb"^#[^\n]*", re.MULTILINE)
_OTHER_SPACES = bytes.maketrans(b"\t\r\v\f", b"    ")


@dataclass(frozen=True)
class Form:
    """The columns of a line."""

    columns: tuple[str, ...]  # `query` and `document` are among them
    value: str  # the column with the number
    rule: str  # what numbers are allowed, for errors
    lowest: float = -np.inf  # number; NaN is never allowed
    highest: float = np.inf

    def allows(self, text: str) -> bool:
        """Whether a text is a number of this form."""
        import pyarrow as pa

        try:
            return bool(self.lowest <= pa.scalar(text).cast("float64").as_py() <= self.highest)
        except pa.ArrowInvalid:
            return False


@dataclass(frozen=True)
class Columns:
    """The columns of some lines, in their order; blank lines and comments are left out."""

    queries: pa.DictionaryArray  # [lines] of Arrow strings, in order of first appearance
    documents: pa.ChunkedArray  # Arrow strings [lines]
    values: Float64  # [lines]
    numbers: Int64  # int64 [lines], the line's number in the file, from 1


def read_columns(block: Block, form: Form) -> Columns | None:
    """Parse lines; None if there are only comments and blank lines."""
    import pyarrow as pa
    from pyarrow import csv

    types = {"query": pa.string(), "document": pa.string(), form.value: pa.float64()}
    parse = csv.ParseOptions(delimiter=" ", quote_char=False, escape_char=False)
    convert = csv.ConvertOptions(
        include_columns=list(types), column_types=types, null_values=[], check_utf8=False
    )
    text = block.data
    if any(space in text for space in b"\t\r\v\f"):
        text = text.translate(_OTHER_SPACES)
    if has_comments := text[:1] == b"#" or b"\n#" in text:
        _refuse_hidden_data(block, form)
    space = np.frombuffer(text, dtype=np.uint8) <= 32
    if has_comments or text[:1] == b" " or text[-1:] == b" " or (space[1:] & space[:-1]).any():
        text = _tidy(text)
    if not text or text.isspace():
        return None
    size = min(2 * len(text), PARSED_BYTES)
    read = csv.ReadOptions(column_names=form.columns, block_size=size, use_threads=False)
    try:
        table = csv.read_csv(pa.BufferReader(text), read, parse, convert)
        values = table[form.value].to_numpy()
        if not ((values >= form.lowest) & (values <= form.highest)).all():
            raise ValueError(f"a {form.value} is not {form.rule}")
    except ValueError as error:  # Arrow's errors are ValueErrors, too
        raise _explained(block, form, error) from None
    if len(table) == block.rows:  # no line was left out
        numbers = np.arange(block.first, block.first + block.rows)
    else:
        ends = np.flatnonzero(np.frombuffer(text + b"\n", dtype=np.uint8) == 10)
        numbers = block.first + np.flatnonzero(np.diff(ends, prepend=-1) > 1)
    queries = table["query"].dictionary_encode().combine_chunks()
    return Columns(queries, table["document"], values, numbers)


def _tidy(data: bytes) -> bytes:
    """The same lines with single spaces between fields and without comments."""
    text = np.frombuffer(data, dtype=np.uint8)
    before_space = np.isin(np.append(text[1:], 10), (10, 32))
    # Arrow takes every space as a separator, also those at a line's ends and several between fields.
    text = text[(text != 32) | ~before_space]  # of several spaces the last, none at a line's end
    after_newline = np.append(10, text[:-1]) == 10
    data = text[(text != 32) | ~after_newline].tobytes()
    return _COMMENT.sub(b"", data) if data[:1] == b"#" or b"\n#" in data else data


def data_lines(block: Block) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line but blank ones and comments. Slow: for a first line and for errors."""
    for number, line in block.lines():
        fields = line.split()
        if fields and not fields[0].startswith(b"#"):
            yield number, [field.decode() for field in fields]


def wrong_width(place: str, found: int, *forms: Form) -> InputError:
    """The error for a line with `found` fields, where one of `forms` was expected."""
    widths = " or ".join(str(len(form.columns)) for form in forms)
    names = " or ".join(" ".join(form.columns) for form in forms)
    other = FILES.get(found, "")
    swapped = bool(other) and other != FILES[len(forms[0].columns)]
    fix = "give the judgments first, and then the run" if swapped else "correct that line"
    if swapped and found == 3:  # as many as lines of MS MARCO's runs have: query, document and rank
        other, fix = "judgments, or a run without scores", f"{fix}; a run needs a score in each line"
    return InputError(
        f"{place}: expected {widths} fields ({names}), found {found}"
        + (f": this looks like {other}" if swapped else ""),
        allowed="fields separated by spaces or tabs, and no white space inside an id",
        fix=fix,
    )


def file_kind(path: Path | str) -> str:
    """What a file looks like by its first line, one of `FILES`; "" for anything else."""
    first = (fields for block in read_blocks(path) for _, fields in data_lines(block))
    return FILES.get(len(next(first, [])), "")


def _explained(block: Block, form: Form, error: ValueError) -> InputError:
    """The error for the first malformed line of a block that Arrow refuses."""
    for number, fields in data_lines(block):
        place = f"{block.path}, line {number}"
        if len(fields) != len(form.columns):
            return wrong_width(place, len(fields), form)
        value = fields[form.columns.index(form.value)]
        if not form.allows(value):
            found = f"{place}: the {form.value} is {short_repr(value)}"
            return InputError(found, allowed=form.rule, fix="correct that line")
    return InputError(f"{block.path}: cannot be read: {error}")


def _refuse_hidden_data(block: Block, form: Form) -> None:
    """Refuse a line that begins with `#` and reads as a line of data otherwise."""
    for comment in _COMMENT.finditer(block.data):
        fields = comment[0].decode(errors="replace").split()
        if len(fields) != len(form.columns) or not form.allows(fields[form.columns.index(form.value)]):
            continue
        number = block.first + block.data.count(b"\n", 0, comment.start())
        raise InputError(
            f"{block.path}, line {number}: begins with #, and reads as a line of data: "
            f"{short_repr(' '.join(fields))}",
            allowed="comments that begin with # and are no line of data, and queries without # in front",
            fix="remove that line, or rename the query",
        )


def repeated_pairs(queries: Int32, documents: pa.ChunkedArray, prints: UInt64) -> tuple[Int64, Int64]:
    """The lines whose query and document are together on an earlier line: the last such line, and the line.

    Args:
        queries: int32 [lines], numbers from 0.
        documents: Arrow strings [lines].
        prints: uint64 [lines], `fingerprints` of the documents.
    """
    # Numbering the distinct ids would find repeats too, and takes several times as long. Instead each pair
    # has a 64-bit fingerprint, which is sorted; the few lines that share one are compared by their ids.
    keys = (np.arange(queries.max(initial=0) + 1, dtype=np.uint64) * _MIX_QUERY)[queries]
    keys += prints
    ordered = np.sort(keys)
    suspects = ordered[1:][ordered[1:] == ordered[:-1]]
    if not suspects.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    lines = np.flatnonzero(np.isin(keys, suspects))
    numbered = documents.take(lines).combine_chunks().dictionary_encode()
    pairs = queries[lines].astype(np.int64) * len(numbered.dictionary) + numbered.indices.to_numpy()
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(pairs[order][1:] == pairs[order][:-1])
    earlier, later = order[again], order[again + 1]
    ascending = np.argsort(later)
    return lines[earlier[ascending]], lines[later[ascending]]


def string_buffers(strings: pa.Array) -> tuple[Int32, npt.NDArray[np.uint8]]:
    """An Arrow string array as NumPy: offsets int32 [n + 1] into its UTF-8 bytes, uint8. No copy."""
    _, offsets, text = strings.buffers()
    window = slice(strings.offset, strings.offset + len(strings) + 1)
    return np.frombuffer(offsets, dtype=np.int32)[window], np.frombuffer(text or b"", dtype=np.uint8)


def fingerprints(ids: pa.Array) -> UInt64:
    """uint64 [ids]: equal for equal ids, and for ids of up to 8 bytes different for different ones."""
    offsets, text = string_buffers(ids)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets)
    padded = np.append(text, np.zeros(8, dtype=np.uint8))
    word_at = np.ndarray(len(text) + 1, dtype="<u8", buffer=padded.data, strides=(1,))  # at every byte
    prints = np.zeros(len(ids), dtype=np.uint64)
    # Eight bytes of every id at once, from wherever they stand in the buffer; those past an id's end are
    # masked. Of up to 8 bytes, multiplying by an odd number keeps different ids different.
    rest: slice | Int64 = slice(None)  # the ids that go on
    for done in range(0, int(lengths.max(initial=0)), 8):
        word = word_at[starts[rest] + done] & _FIRST_BYTES[np.minimum(lengths[rest] - done, 8)]
        mixed = (prints[rest] ^ word) * _MIX_DOCUMENT
        prints[rest] = mixed ^ (mixed >> np.uint64(32))
        rest = np.flatnonzero(lengths > done + 8)
    return prints
