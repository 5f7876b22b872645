"""Tables in Parquet or JSON lines: rows in batches, with their columns checked, and judgments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Int64
from pipeline.formats.judgments import Judgments, make_judgments
from pipeline.formats.texts import BATCH_ROWS, Batch, Block, Located, parse_lines, read_blocks

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Rows(Located):
    """Some consecutive rows of a file.

    Attributes:
        columns: Column name -> Arrow array [n].
        origin, unit, numbers: See `Located`; lines are counted from 1, rows from 0.
        advance: Bytes of the file that these rows take.
    """

    columns: dict[str, pa.Array]
    origin: str
    unit: str
    numbers: Sequence[int]
    advance: int

    def __len__(self) -> int:
        return len(self.numbers)

    def strings(self, name: str, integers: bool = False, nulls: bool = False) -> pa.Array:
        """A column of texts, Arrow string array [n]; perhaps also of integers, or of nulls, read as ""."""
        import pyarrow as pa
        from pyarrow import types

        if name not in self.columns:
            raise _missing(self.origin, name, list(self.columns))
        column = self.columns[name]
        others = (integers and types.is_integer(column.type)) or (nulls and types.is_null(column.type))
        if not (_is_text(column.type) or others):
            raise self._wrong_type(name, "text or integers" if integers else "text")
        if nulls:
            return column.cast(pa.string()).fill_null("")
        self._refuse_null(name, column, self.numbers)
        return column.cast(pa.string())

    def numeric(self, name: str) -> Array:
        """A column of integers or floating-point numbers without null, [n]."""
        from pyarrow import types

        column = self.columns[name]
        if not (types.is_integer(column.type) or types.is_floating(column.type)):
            raise self._wrong_type(name, "numbers")
        self._refuse_null(name, column, self.numbers)
        values: Array = column.to_numpy()
        return values

    def lists(self, name: str) -> tuple[pa.Array, Int64]:
        """All texts of a column of lists of texts, or of single texts, and the row of each, int64 [m]."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import types

        column = self.columns[name]
        if _is_text(column.type):
            return self.strings(name), np.arange(len(column))
        is_list = types.is_list(column.type) or types.is_large_list(column.type)
        if is_list and types.is_null(column.type.value_type):
            column = column.cast(pa.list_(pa.string()))
        elif not is_list or not _is_text(column.type.value_type):
            raise self._wrong_type(name, "lists of texts")
        self._refuse_null(name, column, self.numbers)
        values = pc.list_flatten(column)
        parents = pc.list_parent_indices(column).to_numpy()
        self._refuse_null(name, values, [self.numbers[row] for row in parents] if values.null_count else [])
        return values.cast(pa.string()), parents.astype(np.int64)

    def batch(self, ids: pa.Array, texts: pa.Array, titles: pa.Array | None = None) -> Batch:
        """These rows as passages or queries."""
        return Batch(ids, texts, titles, self.origin, self.unit, self.numbers, self.advance)

    def _refuse_null(self, name: str, column: pa.Array, numbers: Sequence[int]) -> None:
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            found = f"{self.origin}, {self.unit} {numbers[row]}: '{name}' is null"
            raise InputError(found, allowed="a value in every row", fix="correct that row")

    def _wrong_type(self, name: str, allowed: str) -> InputError:
        found = f"{self.origin}: column '{name}' holds {self.columns[name].type}"
        return InputError(found, allowed=allowed, fix="name the right column in the config")


def _is_text(kind: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def read_rows(files: Sequence[Path], columns: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Rows]:
    """The rows of Parquet or JSON lines files; `optional` columns are read from a file that has them."""
    for path in files:
        if path.name.endswith((".tsv", ".tsv.gz")):
            raise InputError(f"{path}: a TSV file", allowed="Parquet or JSON lines", fix="convert it")
        yield from (_parquet if path.suffix == ".parquet" else _json_lines)(path, columns, optional)


def read_judgments(
    files: Sequence[Path], query: str, passage: str, grade: str, grade_is_optional: bool = False
) -> Judgments:
    """Judgments from Parquet or JSON lines files with columns of those names.

    With `grade_is_optional`, a table without that column lists relevant passages, of grade 1.
    """
    import pyarrow as pa

    required = [query, passage] if grade_is_optional else [query, passage, grade]
    rows = list(read_rows(files, required, [grade]))
    if not rows:
        raise InputError(f"{files[0]}: has no judgments", fix="check data.split")
    return make_judgments(
        pa.concat_arrays([part.strings(query, integers=True) for part in rows]),
        pa.concat_arrays([part.strings(passage, integers=True) for part in rows]),
        np.concatenate([_grades(part, grade) for part in rows]),
        " + ".join(dict.fromkeys(part.origin for part in rows)),
        rows[0].unit,
        np.concatenate([np.array(part.numbers, np.int64) for part in rows]),
    )


def _grades(rows: Rows, column: str) -> Array:
    """The grades of judgments; 1 where the column is absent."""
    return rows.numeric(column) if column in rows.columns else np.ones(len(rows))


def _missing(where: str, missing: str, found: Sequence[str]) -> InputError:
    return InputError(
        f"{where}: no column '{missing}'",
        allowed=f"one of its columns: {', '.join(found)}" if found else "",
        fix="name the right column in the config, or check data.path and data.split",
    )


def _parquet(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Iterator[Rows]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            present = file.schema_arrow.names
            for name in columns:
                if name not in present:
                    raise _missing(str(path), name, present)
            wanted = [name for name in (*columns, *optional) if name in present]
            size, total, start = path.stat().st_size, file.metadata.num_rows, 0
            for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                end = start + len(batch)
                arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                advance = size * end // total - size * start // total
                yield Rows(arrays, str(path), "row", range(start, end), advance)
                start = end
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not readable as Parquet ({reason})", fix="fetch the file again") from None


def _json_lines(path: Path, columns: Sequence[str], optional: Sequence[str]) -> Iterator[Rows]:
    for block in read_blocks(path):
        rows = rows_of_lines(block, columns, optional)
        if len(rows):
            yield rows


def rows_of_lines(block: Block, columns: Sequence[str], optional: Sequence[str] = ()) -> Rows:
    """The rows of some JSON lines; `columns` are required."""
    numbers, records = [], []
    for number, place, record in parse_lines(block, (*columns, *optional)):
        for name in columns:
            if name not in record:
                raise _missing(place, name, list(record))
        numbers.append(number)
        records.append(record)
    names = [*columns, *(name for name in optional if any(name in record for record in records))]
    arrays = {
        name: _column(block.path, name, numbers, [each.get(name) for each in records]) for name in names
    }
    return Rows(arrays, str(block.path), "line", numbers, block.advance)


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
