"""Tables on the terminal, by rich."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table as RichTable
from rich.text import Text

from pipeline.core.table import SOFT_HYPHEN, Column, FilledColumn, Table

Cells = Sequence[str]


def terminal_parts(table: Table, width: int) -> Iterator[Text | RichTable]:
    """A title, tables of rich and notes, no wider than the terminal as far as the columns allow.

    Each section of columns is a table of its own, headed by the section's name. Columns that may not be
    narrowed and do not fit go into a further table. All of these tables begin with the first column.

    Args:
        table: What to show.
        width: Characters in a line of the terminal.
    """
    shown: list[FilledColumn] = [
        (column, [row[number] for row in table.rows])
        for number, column in enumerate(table.columns)
        if column.from_width <= width
    ]
    if sum(max(map(len, cells), default=0) + 3 for _, cells in shown) >= width:
        shown = [(column, _between_words(column, cells)) for column, cells in shown]
    first, *others = shown
    beside_first = width - (first[0].least or _width(*first)) - 4
    for section in dict.fromkeys(column.section for column, _ in others) or [""]:
        title = section or table.title
        members = [(column, cells) for column, cells in others if column.section == section]
        for group in _side_by_side(members, beside_first):
            if title:
                yield Text(title, style="bold")
            yield _rich_table([first, *group], beside_first)
            title = ""
    yield from map(Text, table.notes)


def _between_words(column: Column, cells: Cells) -> Cells:
    return [cell.replace(" ", "\n") for cell in cells] if column.wrap == "words" else cells


def _width(column: Column, cells: Cells) -> int:
    """Characters of the longest line in a column."""
    return max(len(line) for text in (_heading(column), *cells) for line in text.split("\n"))


def _heading(column: Column) -> str:
    return column.name.replace(SOFT_HYPHEN, "-\n")


def _side_by_side(columns: Sequence[FilledColumn], width: int) -> Iterator[list[FilledColumn]]:
    """Columns in groups that fit in a width, each column with a border and two spaces."""
    group: list[FilledColumn] = []
    left = width
    for column, cells in columns:
        needed = 0 if column.wrap == "anywhere" else _width(column, cells) + 3
        if needed > left and group:
            yield group
            group = []
            left = width
        group.append((column, cells))
        left -= needed
    yield group


def _rich_table(columns: Sequence[FilledColumn], width: int) -> RichTable:
    """One table; a column wider than `width` wraps whatever it says."""
    made = RichTable()
    for column, cells in columns:
        kept = column.wrap != "anywhere" and _width(column, cells) + 3 <= width
        made.add_column(
            _heading(column), justify=column.align, overflow="fold", no_wrap=kept, min_width=column.least
        )
    for row in zip(*(cells for _, cells in columns), strict=True):
        made.add_row(*row)
    return made
