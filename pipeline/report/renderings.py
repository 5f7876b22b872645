"""Tables on the terminal, by rich, and as GitHub's Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from rich.table import Table as RichTable
from rich.text import Text

from pipeline.core.table import SOFT_HYPHEN, Cell, Table


def terminal_parts(table: Table, width: int) -> Iterator[Text | RichTable]:
    """A title, tables of rich and notes, no wider than `width` characters as far as columns allow.

    A table without rows is its title and its notes. Each section of columns is a table of its own, headed by
    the section's name. Columns that may not be narrowed and do not fit go into a further table. All of these
    tables begin with the first column.
    """
    if not table.rows:
        yield from (Text(table.title, style="bold"), *map(Text, table.notes))
        return
    cells_of = zip(table.columns, zip(*table.rows, strict=True), strict=True)
    shown = [(column, cells) for column, cells in cells_of if column.from_width <= width]
    narrow = sum(max(map(len, cells)) + 3 for _, cells in shown) >= width
    columns = []  # each with its heading, its cells, and its width with a border and two spaces
    for column, cells in shown:
        if narrow and column.wrap == "words":
            cells = tuple(cell.replace(" ", "\n") for cell in cells)
        heading = column.name.replace(SOFT_HYPHEN, "-\n")
        lines = [line for text in (heading, *cells) for line in text.split("\n")]
        columns.append((column, heading, cells, 3 + max(map(len, lines))))
    first, *others = columns
    left = width - (first[0].least or first[3] - 3) - 4
    for section in dict.fromkeys(column.section for column, *_ in others) or [""]:
        groups, room = [[first]], left
        for each in (each for each in others if each[0].section == section):
            needed = 0 if each[0].wrap == "anywhere" else each[3]
            if needed > room and groups[-1] != [first]:
                groups.append([first])
                room = left
            groups[-1].append(each)
            room -= needed
        if title := section or table.title:
            yield Text(title, style="bold")
        for group in groups:
            rich_table = RichTable(box=None, pad_edge=False)
            for column, heading, _, needed in group:
                whole = column.wrap != "anywhere" and needed <= left  # a wider one wraps whatever it says
                rich_table.add_column(
                    heading, justify=column.align, overflow="fold", no_wrap=whole, min_width=column.least
                )
            for row in zip(*(cells for _, _, cells, _ in group), strict=True):
                rich_table.add_row(*row)
            yield rich_table
    yield from map(Text, table.notes)


def markdown(tables: Sequence[Table]) -> str:
    """Tables in GitHub's Markdown, each below its title and above its notes."""
    parts: list[str] = []
    for table in tables:
        lines = [
            [column.plain_name for column in table.columns],
            ["---" if column.align == "left" else "---:" for column in table.columns],
        ]
        for first, *others in table.rows:
            lines.append([_literal(first), *(c.replace("\n", " ").replace("|", r"\|") for c in others)])
        shown = ["\n".join("| " + " | ".join(line) + " |" for line in lines)] if table.rows else []
        parts += [_literal(table.title), *shown, *map(_literal, table.notes)]
    return "\n\n".join(parts) + "\n"


def _literal(text: str) -> str:
    """Text with a backslash before every character that means something to GitHub's Markdown."""
    return re.sub(r"[\\`*_~|<>\[\]&$]", r"\\\g<0>", text)


def latex(tables: Sequence[Table]) -> str:
    r"""Tables for the package booktabs, each with its title as the first row and its notes as comments above.

    What stands out is set in bold.
    """
    lines: list[str] = []
    for table in tables:
        alignment = "".join(column.align[0] for column in table.columns)
        header = " & ".join(_escaped(column.plain_name) for column in table.columns)
        lines += [
            *(f"% {note}" for note in table.notes),
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            rf"\multicolumn{{{len(table.columns)}}}{{l}}{{{_escaped(table.title)}}} \\ \midrule",
            rf"{header} \\",
            r"\midrule",
            *(" & ".join(map(_escaped, row)) + r" \\" for row in table.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    return "\n".join(lines) + "\n"


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
    if text.startswith(("[", "*")):
        text = "{}" + text  # else an argument of the rule or line before
    return rf"\textbf{{{text}}}" if isinstance(cell, Cell) and cell.strong else text


def csv_text(table: Table) -> str:
    """Comma-separated values: the column names, then a line per row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.plain_name for column in table.columns])
    writer.writerows(table.rows)
    return text.getvalue()
