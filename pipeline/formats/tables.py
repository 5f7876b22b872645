"""Tables in Parquet, JSON lines, CSV or TSV: rows in batches with checked columns, texts, and judgments.

Arrow parses each block of texts in JSON lines. If it refuses a block, would crash, finds a null, or does not
find one row on each line, the block is read line by line with `json`, as other JSON lines are.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError, short_repr
from pipeline.core.records import Array, Int64
from pipeline.formats.judgments import (
    BEIR,
    GRADE_RULE,
    HIGHEST_GRADE,
    LOWEST_GRADE,
    Judgments,
    make_judgments,
)
from pipeline.formats.texts import (
    BATCH_ROWS,
    Batch,
    Block,
    SourceRecords,
    is_gzip,
    parse_lines,
    read_blocks,
    read_tsv,
)

if TYPE_CHECKING:
    import pyarrow as pa


SPLIT = ("split", "Split", "SPLIT")  # names of a column of judgments
CSV_BLOCK_BYTES = 16 << 20  # no cell may be longer
_NULL = re.compile(rb"[^\n{]*null")  # at the beginning of a line: no object; of a block: Arrow 26 crashes
_NEXT_NULL = re.compile(rb"\n" + _NULL.pattern)


@dataclass(frozen=True)
class TableRows(SourceRecords):
    """Some consecutive rows of a file."""

    columns: dict[str, pa.Array]  # column name -> Arrow array [n]
    origin: str  # origin, unit, numbers: see `SourceRecords`; lines are counted from 1, rows from 0
    unit: str
    numbers: Sequence[int]
    advance: int  # bytes of the file that these rows take

    def strings(self, name: str, integers: bool = False, nulls: bool = False) -> pa.Array:
        """A column of texts, Arrow string array [n]; perhaps also of integers, or of nulls, read as ""."""
        import pyarrow as pa
        from pyarrow import types

        if name not in self.columns:
            raise _missing(self.origin, name, list(self.columns))
        column = self.columns[name]
        others = (integers and types.is_integer(column.type)) or types.is_null(column.type)
        if not (_is_text(column.type) or others):
            raise self.wrong_type(name, "text or integers" if integers else "text")
        if nulls:
            return column.cast(pa.string()).fill_null("")
        self._refuse_null(name, column, self.numbers)
        return column.cast(pa.string())

    def numeric(self, name: str) -> Array:
        """A column of integers or floating-point numbers without null, [n]."""
        from pyarrow import types

        column = self.columns[name]
        if not (types.is_integer(column.type) or types.is_floating(column.type)):
            raise self.wrong_type(name, "numbers")
        self._refuse_null(name, column, self.numbers)
        values: Array = column.to_numpy()
        return values

    def lists(self, name: str, integers: bool = False) -> tuple[pa.Array, Int64]:
        """All texts of a column of lists, or of single texts, and the row of each, int64 [m].

        Lists are of texts, and perhaps of integers.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import types

        column = self.columns[name]
        if _is_text(column.type):
            return self.strings(name), np.arange(len(column))
        kind = column.type.value_type if is_list(column.type) else None
        if kind is not None and types.is_null(kind):
            column = column.cast(pa.list_(pa.string()))
        elif kind is None or not (_is_text(kind) or (integers and types.is_integer(kind))):
            raise self.wrong_type(name, "lists of texts or integers" if integers else "lists of texts")
        self._refuse_null(name, column, self.numbers)
        values = pc.list_flatten(column)
        parents = pc.list_parent_indices(column).to_numpy()
        self._refuse_null(name, values, [self.numbers[row] for row in parents] if values.null_count else [])
        return values.cast(pa.string()), parents.astype(np.int64)

    def texts(self, ids: str, text: str, title: str | None = None, excluded: str | None = None) -> Batch:
        """These rows as passages or queries, whose columns have those names; the last two may be absent."""
        titled = title in self.columns and self.columns[title].null_count < len(self)
        titles = self.strings(title, nulls=True) if title and titled else None
        names, texts = self.strings(ids, integers=True), self.strings(text)
        lists = self.columns.get(excluded) if excluded else None
        return Batch(names, texts, titles, self.origin, self.unit, self.numbers, self.advance, lists)

    def _refuse_null(self, name: str, column: pa.Array, numbers: Sequence[int]) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            found = f"{self.origin}, {self.unit} {numbers[row]}: '{name}' is null"
            raise InputError(found, allowed="a value in every row", fix="correct that row")

    def wrong_type(self, name: str, allowed: str) -> InputError:
        """The error for a column whose values are of another kind."""
        found = f"{self.origin}: column '{name}' holds {self.columns[name].type}"
        return InputError(found, allowed=allowed, fix="convert it, or name another column in the config")


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def read_rows(
    files: Sequence[Path], columns: Sequence[str], optional: Sequence[str] = (), ids: Sequence[str] = ()
) -> Iterator[TableRows]:
    """The rows of files, read as `form_of` tells; `optional` columns are read from a file that has them.

    The columns `ids` of JSON lines may mix integers and texts: they are read as texts.
    """
    for path in files:
        form = form_of(path)
        if form == "jsonl":
            blocks = (rows_of_lines(block, columns, optional, ids) for block in read_blocks(path))
            yield from filter(len, blocks)
        else:
            yield from (_parquet if form == "parquet" else _delimited)(path, columns, optional)


def read_texts(
    path: Path, id_field: str | None, title: str | None = None, excluded: str | None = None
) -> Iterator[Batch]:
    """Passages or queries of JSON lines with `text` and fields of those names; of TSV without an id field."""
    if id_field is None:
        yield from read_tsv(path)
        return
    for block in read_blocks(path):
        batch = _fast(block, id_field, "string", title, excluded)
        if batch is None:
            batch = _fast(block, id_field, "int64", title, excluded)
        if batch is None:
            titles, lists = ([name] if name else [] for name in (title, excluded))
            rows = rows_of_lines(block, [id_field, "text"], titles + lists, ids=[id_field, *lists])
            batch = rows.texts(id_field, "text", title, excluded)
        yield batch


def _fast(block: Block, id_field: str, id_type: str, title: str | None, excluded: str | None) -> Batch | None:
    """The texts of a block as Arrow reads them, with ids of one type; None if they cannot be trusted."""
    import pyarrow as pa
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    types = {id_field: id_type, "text": "string", title: "string", excluded: pa.list_(pa.string())}
    types.pop(None, None)
    options = ParseOptions(explicit_schema=pa.schema(types.items()), unexpected_field_behavior="ignore")
    if _NULL.match(block.data) or _NEXT_NULL.search(block.data):
        return None
    try:
        table = read_json(pa.py_buffer(block.data), ReadOptions(block_size=1 << 20), options)
    except pa.ArrowException:
        return None
    # one row on each line, or the numbers of lines would be wrong in messages
    if len(table) != block.rows or any(table[name].null_count for name in (id_field, "text")):
        return None
    columns = {name: table[name].combine_chunks() for name in types if table[name].null_count < len(table)}
    titles = columns[title].fill_null("") if title in columns else None
    place = str(block.path), "line", range(block.first, block.first + len(table))
    ids, texts, lists = columns[id_field].cast("string"), columns["text"], columns.get(excluded)
    return Batch(ids, texts, titles, *place, block.advance, lists)


def form_of(path: Path) -> str:
    """How a file is read, by its ending: `parquet`, `csv`, `tsv`, or else `jsonl`."""
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    return ending if ending in ("parquet", "csv", "tsv") else "jsonl"


def column_names(path: Path) -> list[str]:
    """The names of a file's columns, of JSON lines those of the first; none if it cannot be read."""
    import pyarrow as pa
    from pyarrow import parquet

    form = form_of(path)
    try:
        if form == "parquet":
            return list(parquet.read_schema(path).names)
        if form == "jsonl":
            lines = (record for block in read_blocks(path) for *_, record in parse_lines(block))
            return list(next(lines, {}))
        with (gzip.open if is_gzip(path) else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
            line = csv.reader(file, delimiter="," if form == "csv" else "\t")
            return next(line, [])
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, csv.Error, InputError):
        return []  # what reads the rows says why


def columns_shown(names: Sequence[str]) -> str:
    """The names of a file's columns for a message, which tells of another separator."""
    other = next((mark for mark in ";|\t" if len(names) == 1 and mark in names[0]), "")
    hint = f" (separated by {other!r}: write commas in a .csv file, or tabs in a .tsv file)" if other else ""
    return ", ".join(names) + hint


def read_judgments(
    files: Sequence[Path],
    query: str,
    passage: str,
    grade: str | None,
    grade_is_optional: bool = False,
    numbered: pa.Array | None = None,
) -> Judgments:
    """Judgments from files with columns of those names.

    A table lists relevant passages, of grade 1, if `grade` is None; with `grade_is_optional` also if it lacks
    that column. Where queries have no ids, the column `query` holds their texts, which are `numbered`: of a
    log, in which the grades of rows with the same text and passage are added up.
    """
    import pyarrow as pa

    graded = [grade] if grade is not None else []
    required = [query, passage, *([] if grade_is_optional else graded)]
    rows = list(read_rows(files, required, [*graded, *SPLIT], ids=[query, passage]))
    _refuse_splits(rows)
    if not rows:
        raise InputError(f"{files[0]}: has no judgments", fix="check data.split")
    ids = ([part.strings(column, integers=True) for part in rows] for column in (query, passage))
    queries, passages = map(pa.concat_arrays, ids)
    grades = np.concatenate([_grades(part, grade) for part in rows])
    numbers = np.concatenate([np.array(part.numbers, np.int64) for part in rows])
    if numbered is not None:
        log = pa.table([number_texts(queries, numbered), passages, grades, numbers], names=[*"qpgn"])
        sums = [("g", "sum"), ("n", "min")]
        log = log.group_by(["q", "p"], use_threads=False).aggregate(sums).combine_chunks()
        queries, passages = (log[name].combine_chunks() for name in "qp")
        grades, numbers = (log[name].to_numpy() for name in ("g_sum", "n_min"))
    origin = " + ".join(dict.fromkeys(part.origin for part in rows))
    return make_judgments(queries, passages, grades, origin, rows[0].unit, numbers)


def number_texts(texts: pa.Array, numbered: pa.Array, prefix: str = "q", first: int = 1) -> pa.Array:
    """The ids of texts without ids: q1 is the first of the texts that are numbered."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.add(pc.fill_null(pc.index_in(texts, value_set=numbered), -1), first)  # q0: another text
    return pc.binary_join_element_wise(prefix, numbers.cast(pa.string()), "")


def _refuse_splits(rows: Sequence[TableRows]) -> None:
    """Refuse judgments of several splits, as a column of that name tells: all would count."""
    columns = [part.columns[name] for part in rows for name in SPLIT if name in part.columns]
    splits = {str(name) for column in columns for name in column.unique().to_pylist()}
    if len(splits) > 1:
        names = ", ".join(sorted(splits)[:5])
        raise InputError(
            f"{rows[0].origin}: its column 'split' has {names}, and all rows would count",
            allowed="the judgments of one split",
            fix="write those of each split to a file of its own, and name one",
        )


def _grades(rows: TableRows, column: str | None) -> Array:
    """The grades of judgments; 1 where the column is absent."""
    import pyarrow as pa

    if column is None or column not in rows.columns:
        return np.ones(len(rows))
    if not _is_text(rows.columns[column].type):
        return rows.numeric(column)
    texts = rows.strings(column)
    with contextlib.suppress(pa.ArrowInvalid):
        grades: Array = texts.cast("float64").to_numpy()
        if ((grades >= LOWEST_GRADE) & (grades <= HIGHEST_GRADE)).all():
            return grades
    row, text = next((row, text) for row, text in enumerate(texts.to_pylist()) if not BEIR.allows(text))
    found = f"{rows.place(row)}: '{column}' is {short_repr(text)}"
    raise InputError(found, allowed=GRADE_RULE, fix="correct that row")


def _missing(where: str, missing: str, found: Sequence[str]) -> InputError:
    return InputError(
        f"{where}: no column '{missing}'",
        allowed=f"one of its columns: {columns_shown(found)}" if found else "",
        fix="name the right column, or another file",
    )


def _wanted(path: Path, present: Sequence[str], columns: Sequence[str], optional: Sequence[str]) -> list[str]:
    """The columns of a table that are read, each once; refused if it lacks a required one."""
    for name in columns:
        if name not in present:
            raise _missing(str(path), name, present)
        if present.count(name) > 1:
            raise InputError(
                f"{path}: {present.count(name)} columns are named '{name}'",
                allowed="one column of each name that is read",
                fix="rename or remove the others",
            )
    return [name for name in dict.fromkeys((*columns, *optional)) if name in present]


def _parquet(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Iterator[TableRows]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            wanted = _wanted(path, file.schema_arrow.names, columns, optional)
            size, total, start = path.stat().st_size, file.metadata.num_rows, 0
            for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                end = start + len(batch)
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                advance = size * end // total - size * start // total
                yield TableRows(arrays, str(path), "row", range(start, end), advance)
                start = end
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not readable as Parquet ({reason})", fix="fetch the file again") from None


def _delimited(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Iterator[TableRows]:
    """CSV as RFC 4180 describes it, quoted by `"`; TSV without quotes. Every cell is a text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    is_csv = form_of(path) == "csv"
    parse = arrow_csv.ParseOptions(
        delimiter="," if is_csv else "\t", quote_char='"' if is_csv else False, newlines_in_values=is_csv
    )
    read = arrow_csv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False)

    def opened(file: pa.NativeFile, convert: arrow_csv.ConvertOptions) -> arrow_csv.CSVStreamingReader:
        return arrow_csv.open_csv(
            pa.CompressedInputStream(file, "gzip") if packed else file, read, parse, convert
        )

    try:
        packed = is_gzip(path)
        with pa.OSFile(str(path)) as file:
            # names first: a type that is guessed for a column that is not read could fail in a later block
            present = opened(file, arrow_csv.ConvertOptions()).schema.names
        wanted = _wanted(path, present, columns, optional)
        texts = arrow_csv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string())
        )
        with pa.OSFile(str(path)) as file:
            start, position, multiline = 1, 0, False
            for batch in opened(file, texts):
                end, now = start + len(batch), file.tell()
                arrays = dict(zip(wanted, batch.columns, strict=True))
                newlines = (pc.any(pc.match_substring(column, "\n")).as_py() for column in batch.columns)
                if is_csv and not multiline and any(newlines):
                    multiline = True
                    _refuse_open_quote(path)
                yield TableRows(arrays, str(path), "row", range(start, end), now - position)
                start, position = end, now
    except (pa.ArrowException, OSError) as error:
        form, reason = form_of(path).upper(), str(error).splitlines()[0]
        fix = "convert the file to UTF-8" if "UTF8" in reason else "correct the file"
        raise InputError(f"{path}: not readable as {form} ({reason})", fix=fix) from None


def _refuse_open_quote(path: Path) -> None:
    """Refuse a CSV file with a quote that is not closed, which Arrow would take for a cell of many lines."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        with (gzip.open if is_gzip(path) else open)(path, "rt", encoding="utf-8", newline="") as file:
            reader, line = csv.reader(file, strict=True), 1
            for _ in reader:
                line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}: the row that begins on line {line} has an open quote, or text behind one ({error})",
            allowed='cells as they are, or in quotes, with "" for a quote inside',
            fix="correct that row",
        ) from None
    finally:
        csv.field_size_limit(limit)


def rows_of_lines(
    block: Block, columns: Sequence[str], optional: Sequence[str] = (), ids: Sequence[str] = ()
) -> TableRows:
    """The rows of some JSON lines; `columns` are required, and integers are texts in `ids`."""
    numbers, records = [], []
    for number, place, record in parse_lines(block):
        for name in columns:
            if name not in record:
                raise _missing(place, name, list(record))
        numbers.append(number)
        records.append(record | {name: _id_text(record[name]) for name in ids if name in record})
    names = [*columns, *(name for name in optional if any(name in record for record in records))]
    arrays = {
        name: _column(block.path, name, numbers, [each.get(name) for each in records]) for name in names
    }
    return TableRows(arrays, str(block.path), "line", numbers, block.advance)


def _id_text(value: object) -> object:
    """The text of an id that is an integer, or of those in a list; anything else as it is."""
    if isinstance(value, list):
        return [_id_text(each) for each in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _column(path: Path, name: str, numbers: Sequence[int], values: Sequence[object]) -> pa.Array:
    """JSON values of one type as an Arrow array."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        pass
    first = next(value for value in values if value is not None)
    for number, value in zip(numbers, values, strict=True):
        try:
            pa.array([first, value])
        except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{path}, line {number}: '{name}' does not fit the lines before ({reason})",
                allowed="values of one kind in a column",
                fix="correct that line",
            ) from None
    raise InputError(f"{path}: column '{name}' mixes kinds of values", fix="correct the file")
