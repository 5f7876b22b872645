"""Tables as values, and the two renderings that need no library: plain text and HTML.

A table is made once, and every rendering of it has the same title, columns and cells: the terminal, Markdown,
LaTeX and CSV (`pipeline.report`) as well as the text and the HTML here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from pipeline.core.display import Number, figure, interval

if TYPE_CHECKING:
    import pandas as pd

Row = TypeVar("Row")
SOFT_HYPHEN = "\u00ad"
"""Where a column's name may be broken: "-" and a new line on the terminal, nothing in plain text."""


class Cell(str):
    """The text of a cell, with the number that it shows."""

    value: float | None  # the number in full precision, by which a page sorts; None where there is none
    strong: bool  # whether the cell stands out: the best of its column

    def __new__(cls, text: str, value: float | None, strong: bool = False) -> Self:
        """A cell with its number."""
        cell = super().__new__(cls, text)
        cell.value, cell.strong = value, strong
        return cell


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    align: Literal["left", "right"] = "left"
    # Where a narrow terminal may break the cells. Columns that it may not break anywhere go into a further
    # table where they do not fit.
    wrap: Literal["anywhere", "words", "never"] = "anywhere"
    # Characters that a column that wraps keeps; None is as many as the terminal leaves.
    least: int | None = None
    section: str = ""  # heading of a group of columns, which the terminal shows as a table of its own
    from_width: int = 0  # the narrowest terminal, in characters, that shows the column
    hint: str = ""  # what it holds, for a page that shows it when the pointer is on the heading
    form: str = ".4f"  # how its numbers are written; see `pipeline.core.display.figure`
    best: bool = False  # whether the highest number stands out, and those that are written alike

    @property
    def plain_name(self) -> str:
        """The heading without soft hyphens."""
        return self.name.replace(SOFT_HYPHEN, "")


right = partial(Column, align="right", wrap="never")
"""A column of figures, which are not wrapped."""


@dataclass(frozen=True)
class Table:
    """A table to show."""

    title: str
    columns: Sequence[Column]  # the columns; the first one names the rows
    # A text per column; a `Cell` where a page can sort by the number. A new line in a cell is kept on the
    # terminal, and is a space elsewhere.
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()  # what to know beside it, a sentence each
    # Pairs of columns, by name, that a page draws against each other: the one to the right, then the one
    # upwards. A row is a point.
    plots: Sequence[tuple[str, str]] = ()


FilledColumn = tuple[Column, Iterable[str | Number]]
"""A column with its cells: texts, or numbers to be written in the column's form."""


def table_of(
    title: str,
    columns: Iterable[FilledColumn],
    notes: Sequence[str] = (),
    plots: Sequence[tuple[str, str]] = (),
    keep_empty: bool = False,
) -> Table:
    """A table from its columns; those that are empty in all rows are left out, unless they are kept."""
    filled: list[tuple[Column, list[str]]] = []
    for column, values in columns:
        cells = [
            each
            if isinstance(each, str)
            else Cell(figure(each, column.form), each[0] if isinstance(each, tuple) else each)
            for each in values
        ]
        if column.best:
            known = [cell for cell in cells if isinstance(cell, Cell) and cell.value is not None]
            highest = max(known, key=lambda cell: cell.value or 0.0, default=None)
            for cell in known:
                cell.strong = cell == highest
        if keep_empty or any(cells):
            filled.append((column, cells))
    rows = list(zip(*(cells for _, cells in filled), strict=True))
    return Table(title, [column for column, _ in filled], rows, notes, plots)


def stacked(tables: Sequence[Table]) -> Table:
    """The rows of several tables, with the columns of all; cells of a column that a table lacks are empty."""
    columns = {column.name: column for table in tables for column in table.columns}
    rows = []
    for table in tables:
        names = [column.name for column in table.columns]
        cells = [dict(zip(names, row, strict=True)) for row in table.rows]
        rows += [[row.get(name, "") for name in columns] for row in cells]
    return Table("", list(columns.values()), rows)


def with_interval(
    value: float | None, low: float | None, high: float | None, fragile: bool, form: str, mark: str = ""
) -> Cell:
    """A number, and its interval on a second line, with "~" where that is fragile."""
    return Cell(f"{figure(value, form)}{mark}\n{interval(low, high, fragile, form)}".rstrip(), value)


class Tabular:
    """Base of what shows itself as tables: a line in a prompt, text when printed, HTML in a notebook."""

    def tables(self) -> list[Table]:
        """The tables to show, the most important first."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tables()[0].title}>"

    def __str__(self) -> str:
        return "\n\n".join(text_table(table) for table in self.tables())

    def _repr_html_(self) -> str:
        return "".join(html_table(table) for table in self.tables())


class Rows(list[Row]):
    """Records of one class as a list, and as a tidy table: a record a row, an attribute a column."""

    def to_dataframe(self) -> pd.DataFrame:
        """A pandas DataFrame of the records; of attributes that hold records or mappings, nothing."""
        import pandas as pd

        tidy = [
            {name: value for name, value in asdict(row).items() if not isinstance(value, dict | tuple | list)}
            for row in cast("list[Any]", self)
        ]
        return pd.DataFrame(tidy)


def text_table(table: Table) -> str:
    """Plain text: columns aligned by spaces; the title and the notes of a table without rows."""
    if not table.rows:
        return "\n".join([table.title, *table.notes])
    header = [column.plain_name for column in table.columns]
    lines = [header, *([cell.replace("\n", " ") for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [
        "  ".join(
            cell.ljust(width) if column.align == "left" else cell.rjust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([table.title, *aligned, *table.notes])


def html_table(table: Table) -> str:
    """An HTML fragment in the colours of the page around it."""
    head = "".join(f'<th scope="col"{_alignment(c)}>{escape(c.name)}</th>' for c in table.columns)
    body = "".join(
        f'<tr><th scope="row"{_alignment(table.columns[0])}>{escape(row[0])}</th>'
        + "".join(map(_html_cell, row[1:], table.columns[1:]))
        + "</tr>"
        for row in table.rows
    )
    caption = f'<caption style="text-align:left"><b>{escape(table.title)}</b></caption>'
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def _html_cell(cell: str, column: Column) -> str:
    text = f"<b>{escape(cell)}</b>" if isinstance(cell, Cell) and cell.strong else escape(cell)
    return f"<td{_alignment(column)}>{text}</td>"


def _alignment(column: Column) -> str:
    return f' style="text-align:{column.align}"'
