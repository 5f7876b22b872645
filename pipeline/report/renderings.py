"""Tables on the terminal, by rich, and as GitHub's Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from rich.table import Table as RichTable
from rich.text import Text

from pipeline.core.table import SOFT_HYPHEN, Cell, Column, FilledColumn, Table

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


def markdown(tables: Sequence[Table]) -> str:
    """Tables in GitHub's Markdown, each below its title and above its notes."""
    parts: list[str] = []
    for table in tables:
        parts += [_literal(table.title), _markdown(table), *map(_literal, table.notes)]
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    header = [column.plain_name for column in table.columns]
    rule = ["---" if column.align == "left" else "---:" for column in table.columns]
    rows = [(_literal(row[0]), *(cell.replace("\n", " ") for cell in row[1:])) for row in table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def _literal(text: str) -> str:
    """Text with a backslash before every character that means something to GitHub's Markdown."""
    return re.sub(r"[\\`*_~|<>\[\]&$]", r"\\\g<0>", text)


def latex(tables: Sequence[Table]) -> str:
    r"""Tables for the package booktabs, each with its title as the first row and its notes as comments above.

    What stands out is set in bold.
    """
    lines = [line for table in tables for line in (*(f"% {note}" for note in table.notes), *_latex(table))]
    return "\n".join(lines) + "\n"


def _latex(table: Table) -> list[str]:
    alignment = "".join(column.align[0] for column in table.columns)
    header = " & ".join(_escaped(column.plain_name) for column in table.columns)
    title = rf"\multicolumn{{{len(table.columns)}}}{{l}}{{{_escaped(table.title)}}}"
    return [
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        rf"{title} \\ \midrule",
        rf"{header} \\",
        r"\midrule",
        *(" & ".join(map(_latex_cell, row)) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _latex_cell(cell: str) -> str:
    strong = isinstance(cell, Cell) and cell.strong
    return rf"\textbf{{{_escaped(cell)}}}" if strong else _escaped(cell)


_SPECIAL = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {
        "\n": " ",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
    }
)
"""What means something to LaTeX, or prints as something else in its oldest font encoding."""


def _escaped(cell: str) -> str:
    text = re.sub("-(?=-)", "-{}", cell.translate(_SPECIAL))  # two of them would make a dash
    return "{}" + text if text.startswith(("[", "*")) else text  # an argument of the rule or line before


def csv_text(table: Table) -> str:
    """Comma-separated values: the column names, then a line per row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.plain_name for column in table.columns])
    writer.writerows(table.rows)
    return text.getvalue()
