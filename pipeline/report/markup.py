"""Tables as GitHub's Markdown, as LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from pipeline.core.table import Cell, Table


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
