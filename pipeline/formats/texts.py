"""Passages and queries as lines of JSON or TSV, and the parser of a single line of JSON.

Arrow parses each block of JSON lines. If it refuses a block, would crash, finds a null, or does not find one
row on each line, the block is read again line by line with `json`, which accepts it or names the bad line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.formats.blocks import Block, decoded, read_blocks
from pipeline.formats.records import Batch

if TYPE_CHECKING:
    import pyarrow as pa

_NULL = re.compile(rb"[^\n{]*null")  # at the beginning of a line: no object; of a block: Arrow 26 crashes
_NEXT_NULL = re.compile(rb"\n" + _NULL.pattern)


def read_jsonl(path: Path, id_field: str, title_field: str | None = None) -> Iterator[Batch]:
    """Passages or queries of a JSONL file, with fields `id_field`, `text` and perhaps `title_field`."""
    for block in read_blocks(path):
        yield _fast(block, id_field, title_field) or _careful(block, id_field, title_field)


def read_tsv(path: Path) -> Iterator[Batch]:
    """Passages or queries of a TSV file, an id and a text on each line; blank lines are skipped."""
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


def _fast(block: Block, id_field: str, title_field: str | None) -> Batch | None:
    """The block as Arrow reads it; None if the result cannot be trusted."""
    import pyarrow as pa
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    schema = pa.schema([(name, pa.string()) for name in (id_field, "text", title_field) if name])
    options = ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    if _NULL.match(block.data) or _NEXT_NULL.search(block.data):
        return None
    try:
        if not block.data.isascii():
            block.data.decode()
        table = read_json(pa.py_buffer(block.data), ReadOptions(block_size=1 << 20), options)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    # One row on each line, or the numbers of lines would be wrong in messages; a null is named by `_careful`.
    ids, texts, *titles = (_whole(table.column(name)) for name in schema.names)
    if len(ids) != block.rows or ids.null_count or texts.null_count:
        return None
    numbers = range(block.first, block.first + len(ids))
    return Batch(ids, texts, _filled(*titles), str(block.path), "line", numbers, block.advance)


def _careful(block: Block, id_field: str, title_field: str | None) -> Batch:
    """The block read line by line, without blank lines."""
    import pyarrow as pa

    numbers, ids, titles, texts = [], [], [], []
    for number, place, record in parse_lines(block, (id_field, "text", title_field or "text")):
        numbers.append(number)
        ids.append(_string_field(record, id_field, place))
        texts.append(_string_field(record, "text", place))
        has_title = title_field and record.get(title_field) is not None
        titles.append(_string_field(record, title_field or "", place) if has_title else "")
    columns = (pa.array(ids, pa.string()), pa.array(texts, pa.string()), pa.array(titles, pa.string()))
    return Batch(*columns, str(block.path), "line", numbers, block.advance)


def parse_lines(block: Block, fields: Sequence[str]) -> Iterator[tuple[int, str, JsonObject]]:
    """Number, place and object of each line that is not blank; refuses a duplicate among `fields`."""
    for number, line in block.lines():
        if line.strip():
            place = f"{block.path}, line {number}"
            yield number, place, _parse(line, place, fields)


def _parse(line: bytes, place: str, fields: Sequence[str]) -> JsonObject:
    text = decoded(line, place)
    pairs: list[tuple[str, object]] = []

    def keep(parsed: list[tuple[str, object]]) -> JsonObject:
        nonlocal pairs
        pairs = parsed  # the outermost object is parsed last
        return dict(parsed)

    try:
        record = json.loads(text, object_pairs_hook=keep)
    except json.JSONDecodeError as error:
        raise _broken(place, f"not valid JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _broken(place, f"not readable JSON: {error}") from None
    if not isinstance(record, dict):
        what = "null" if record is None else type(record).__name__
        raise _broken(place, f"a JSON {what} instead of an object")
    if len(pairs) != len(record):
        names = [name for name, _ in pairs]
        for name in fields:
            if names.count(name) > 1:
                raise _broken(place, f"duplicate field '{name}'")
    return record


def _broken(place: str, problem: str) -> InputError:
    return InputError(f"{place}: {problem}", allowed="one JSON object a line", fix="correct that line")


def _string_field(record: JsonObject, name: str, place: str) -> str:
    """The text in a required field; refused if it is not a string of valid Unicode."""
    if name not in record:
        near = ", ".join(f"'{key}'" for key in list(record)[:6]) or "no field"
        raise InputError(f"{place}: no field '{name}' (it has {near})", fix="add the field")
    value = record[name]
    if not isinstance(value, str):
        what = "null" if value is None else f"{json.dumps(value)[:40]}, a JSON {type(value).__name__}"
        raise InputError(f"{place}: '{name}' is {what}", allowed="a string", fix="correct that line")
    try:
        value.encode()
    except UnicodeEncodeError:
        problem = f"'{name}' holds half a surrogate pair"
        raise InputError(f"{place}: {problem}", allowed="valid Unicode", fix="correct that line") from None
    return value


def _whole(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _filled(titles: pa.Array | None = None) -> pa.Array | None:
    """Titles with '' for null; None if no record has one."""
    import pyarrow.compute as pc

    some = titles is not None and pc.max(pc.binary_length(titles)).as_py()
    return pc.fill_null(titles, "") if some else None
