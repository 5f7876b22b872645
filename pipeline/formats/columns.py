"""Lines of columns separated by white space: the parser of TREC runs and judgments.

Lines are parsed by Arrow's CSV reader, a block at a time on each core. It supports one separator and no
comments; so in the few files that need it, white space is first reduced to single spaces, and comments are
cut out. If Arrow refuses a block, the block is read again line by line, to name the malformed line.

White space is ASCII white space, as in trec_eval. A line that begins with `#` is a comment, unless it reads
as a line of data: it is refused then, since it may be of a query whose id begins so.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.core import machine
from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Array, Int32, Int64, UInt64
from pipeline.formats.texts import ID_BYTES, Block, decoded, read_blocks, refuse_unfit_ids

if TYPE_CHECKING:
    import pyarrow as pa


FILES = {3: "judgments", 4: "judgments", 6: "a run"}
"""What a file is by the number of its lines' fields."""

_MIX_DOCUMENT = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing
_MIX_QUERY = np.uint64(0xC2B2AE3D27D4EB4F)
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)  # mask of a word's first n

_COMMENT = re.compile(rb"^#[^\n]*", re.MULTILINE)
_PLAIN = bytes(range(33, 127)) + b" \n"  # characters of which every id is fit
_OTHER_SPACES = bytes.maketrans(b"\t\r\v\f", b"    ")


@dataclass(frozen=True)
class Form:
    """The columns of a line."""

    columns: tuple[str, ...]  # `query` and `document` are among them
    value: str  # the column with the number
    arrow_type: str  # that Arrow reads it as
    convert: Callable[[pa.Array], Array]  # raises ValueError if a number is malformed
    rule: str  # what numbers are allowed, for errors
    fingerprinted: bool = False  # whether its documents are, by which `repeated_pairs` finds repeats


@dataclass(frozen=True)
class Columns:
    """The columns of all lines, in the file's order; blank lines and comments are left out."""

    query_ids: pa.Array  # Arrow strings [queries], in order of first appearance
    queries: Int32  # int32 [lines], row in `query_ids`
    documents: pa.ChunkedArray  # Arrow strings [lines]
    values: Array  # [lines], as the form converts them
    numbers: Int64  # int64 [lines], the line's number in the file, from 1
    fingerprints: UInt64  # uint64 [lines], of the documents; [0] if the form has none


_Part: TypeAlias = "tuple[pa.RunEndEncodedArray, pa.Array, Array, Int64, UInt64]"
"""The columns of one block, as in `Columns`; its queries are run-end encoded, since most lines repeat one."""


def read_columns(blocks: Iterable[Block], form: Form) -> Columns | None:
    """Parse the lines of a file on all cores; None if there are only comments and blank lines."""
    import pyarrow as pa

    workers = machine.cores()
    waiting: deque[Future[_Part | None]] = deque()
    parsed = []
    with ThreadPoolExecutor(workers) as pool:  # Arrow and NumPy work outside Python's lock
        for block in blocks:
            waiting.append(pool.submit(_parse, block, form))
            if len(waiting) > 2 * workers:  # blocks in memory
                parsed.append(waiting.popleft().result())
        parsed += [each.result() for each in waiting]
    parts = [part for part in parsed if part]
    if not parts:
        return None
    queries, documents, *others = zip(*parts, strict=True)
    runs = pa.chunked_array([part.values for part in queries]).combine_chunks().dictionary_encode()
    lengths = [np.diff(part.run_ends.to_numpy(), prepend=0) for part in queries]
    rows: Int32 = np.repeat(runs.indices.to_numpy(), np.concatenate(lengths))
    return Columns(runs.dictionary, rows, pa.chunked_array(documents), *map(np.concatenate, others))


def data_lines(block: Block) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line but blank ones and comments. Slow: for a first line and for errors."""
    for number, line in block.lines():
        decoded(line, f"{block.path}, line {number}")
        fields = line.split()
        if fields and not fields[0].startswith(b"#"):
            yield number, [field.decode() for field in fields]


def wrong_width(block: Block, number: int, found: int, *forms: Form) -> InputError:
    """The error for a line with `found` fields, where one of `forms` was expected."""
    widths = " or ".join(str(len(form.columns)) for form in forms)
    names = " or ".join(" ".join(form.columns) for form in forms)
    other = FILES.get(found, "")
    swapped = bool(other) and other != FILES[len(forms[0].columns)]
    fix = "give the judgments first, and then the run" if swapped else "correct that line"
    if swapped and found == 3:  # as many as lines of MS MARCO's runs have: query, document and rank
        other, fix = "judgments, or a run without scores", f"{fix}; a run needs a score in each line"
    return InputError(
        f"{block.path}, line {number}: expected {widths} fields ({names}), found {found}"
        + (f": this looks like {other}" if swapped else ""),
        allowed="fields separated by spaces or tabs, and no white space inside an id",
        fix=fix,
    )


def file_kind(path: Path | str) -> str:
    """What a file looks like by its first line, one of `FILES`; "" for anything else."""
    first = (fields for block in read_blocks(path) for _, fields in data_lines(block))
    return FILES.get(len(next(first, [])), "")


def _parse(block: Block, form: Form) -> _Part | None:
    """Parse a block; None if there are only comments and blank lines."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    types = {"query": "string", "document": "string", form.value: form.arrow_type}
    parse = csv.ParseOptions(delimiter=" ", quote_char=False, escape_char=False)
    convert = csv.ConvertOptions(
        include_columns=list(types),
        column_types={name: pa.type_for_alias(kind) for name, kind in types.items()},
        null_values=[],
        strings_can_be_null=False,
        check_utf8=False,
    )
    try:
        if not block.data.isascii():
            block.data.decode()
        text = _tidy(block.data)
        if b"#" in block.data:
            _refuse_hidden_data(block, form)
        if not text or text.isspace():
            return None
        read = csv.ReadOptions(column_names=form.columns, block_size=2 * len(text), use_threads=False)
        table = csv.read_csv(pa.BufferReader(text), read, parse, convert)
        queries, documents, values = (column.combine_chunks() for column in table.columns)
        converted = form.convert(values)
    except ValueError as error:  # Arrow's errors are ValueErrors, too
        raise _explained(block, form, error) from None
    if len(documents) == block.rows:  # no line was left out
        numbers = np.arange(block.first, block.first + block.rows)
    else:
        ends = np.flatnonzero(np.frombuffer(text + b"\n", dtype=np.uint8) == 10)
        numbers = block.first + np.flatnonzero(np.diff(ends, prepend=-1) > 1)
    longest = max(np.diff(string_buffers(ids)[0]).max(initial=0) for ids in (queries, documents))
    if longest > ID_BYTES or text.translate(None, _PLAIN):  # few files need the slow test
        for ids, what in ((queries, "query"), (documents, "passage")):
            refuse_unfit_ids(ids, what, lambda row: f"{block.path}, line {numbers[row]}")
    prints = fingerprints(documents) if form.fingerprinted else np.zeros(0, np.uint64)
    return pc.run_end_encode(queries), documents, converted, numbers, prints


def _explained(block: Block, form: Form, error: ValueError) -> InputError:
    """The error for the first malformed line of a block that Arrow refuses."""
    for number, fields in data_lines(block):
        place = f"{block.path}, line {number}"
        if len(fields) != len(form.columns):
            return wrong_width(block, number, len(fields), form)
        try:
            _convert_one(form, fields)
        except ValueError:
            found = f"{place}: the {form.value} is {short_repr(fields[form.columns.index(form.value)])}"
            return InputError(found, allowed=form.rule, fix="correct that line")
    return InputError(f"{block.path}: cannot be read: {error}")


def _convert_one(form: Form, fields: list[str]) -> None:
    """Convert the number of one line; ValueError if it is malformed."""
    import pyarrow as pa

    form.convert(pa.array([fields[form.columns.index(form.value)]]).cast(form.arrow_type))


def _refuse_hidden_data(block: Block, form: Form) -> None:
    """Refuse a line that begins with `#` and reads as a line of data otherwise."""
    for comment in _COMMENT.finditer(block.data):
        fields = comment[0].decode(errors="replace").split()
        if len(fields) != len(form.columns):
            continue
        try:
            _convert_one(form, fields)
        except ValueError:
            continue
        number = block.first + block.data.count(b"\n", 0, comment.start())
        raise InputError(
            f"{block.path}, line {number}: begins with #, and reads as a line of data: "
            f"{short_repr(' '.join(fields))}",
            allowed="comments that begin with # and are no line of data, and queries without # in front",
            fix="remove that line, or rename the query",
        )


def _tidy(data: bytes) -> bytes:
    """The same lines with single spaces between fields and without comments, as most files have them."""
    other = any(space in data for space in (b"\t", b"\r", b"\v", b"\f"))
    space = np.frombuffer(data, dtype=np.uint8) <= 32
    if other or data[:1] == b" " or data[-1:] == b" " or (space[1:] & space[:-1]).any():
        text = np.frombuffer(data.translate(_OTHER_SPACES), dtype=np.uint8)
        before_space = np.isin(np.append(text[1:], 10), (10, 32))
        # Arrow takes every space as a separator, also those at a line's ends and several between fields.
        text = text[(text != 32) | ~before_space]  # of several spaces the last, none at a line's end
        after_newline = np.append(10, text[:-1]) == 10
        data = text[(text != 32) | ~after_newline].tobytes()
    return _COMMENT.sub(b"", data) if data[:1] == b"#" or (b"#" in data and b"\n#" in data) else data


def repeated_keys(keys: Int64) -> tuple[Int64, Int64]:
    """The rows whose key occurs on an earlier row: the previous row with it, and the row itself."""
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    return order[again], order[again + 1]


def repeated_pairs(queries: Int32, documents: pa.ChunkedArray, prints: UInt64) -> tuple[Int64, Int64]:
    """The lines whose query and document are together on an earlier line, as `repeated_keys`, in file order.

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
    earlier, later = repeated_keys(pairs)
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
