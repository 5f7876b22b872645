"""Tables on the terminal, by rich, and as GitHub's Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from rich.table import Table as RichTable
from rich.text import Text

from pipeline.core.table import SOFT_HYPHEN, Cell, Column, FilledColumn, Table


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
        shown = [
            (column, [cell.replace(" ", "\n") for cell in cells] if column.wrap == "words" else cells)
            for column, cells in shown
        ]
    columns = [_Wide(column, cells) for column, cells in shown]
    first, *others = columns
    left = width - (first.column.least or first.width - 3) - 4
    for section in dict.fromkeys(each.column.section for each in others) or [""]:
        title = section or table.title
        groups, room = [[first]], left
        for each in (each for each in others if each.column.section == section):
            needed = 0 if each.column.wrap == "anywhere" else each.width
            if needed > room and groups[-1] != [first]:
                groups.append([first])
                room = left
            groups[-1].append(each)
            room -= needed
        for group in groups:
            if title:
                yield Text(title, style="bold")
            title = ""
            yield _rich_table(group, left)
    yield from map(Text, table.notes)


class _Wide:
    """A column of a terminal: its heading, and its width with a border and two spaces."""

    def __init__(self, column: Column, cells: Sequence[str]) -> None:
        self.column, self.cells = column, cells
        self.heading = column.name.replace(SOFT_HYPHEN, "-\n")
        self.width = 3 + max(len(line) for text in (self.heading, *cells) for line in text.split("\n"))


def _rich_table(columns: Sequence[_Wide], width: int) -> RichTable:
    """One table; a column wider than `width` wraps whatever it says."""
    made = RichTable()
    for each in columns:
        column = each.column
        kept = column.wrap != "anywhere" and each.width <= width
        made.add_column(
            each.heading, justify=column.align, overflow="fold", no_wrap=kept, min_width=column.least
        )
    for row in zip(*(each.cells for each in columns), strict=True):
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
