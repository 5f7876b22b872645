"""The page of a board: the results of each collection side by side, and the history of names as lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.comparison.side_by_side import Comparison
from pipeline.core import display
from pipeline.core.records import JsonObject
from pipeline.core.table import Table
from pipeline.report.page.parts import PagePart
from pipeline.report.page.plots import history_plot
from pipeline.report.page.render import render
from pipeline.storage import whole_files


def write_board(comparisons: Sequence[Comparison], file: Path) -> None:
    """Write the page of compared results of several collections; `file` is replaced."""
    parts = [_part(number, each) for number, each in enumerate(comparisons)]
    results = display.counted(sum(len(each.results) for each in comparisons), "result")
    collections = display.counted(len({each.collection for each in comparisons}), "collection")
    context: JsonObject = {"title": f"{results} of {collections}", "parts": parts}
    whole_files.write_whole(file, render("board.html.j2", ["sort.js"], context).encode())


def _part(number: int, comparison: Comparison) -> PagePart:
    """One collection by one measure."""
    numbers = {entry.name: number for number, entry in enumerate(comparison.results)}

    def marks(table: Table) -> list[list[int]]:
        names = [re.split(" - ", row[0]) for row in table.rows]
        return [[numbers[name] for name in each if name in numbers] for each in names]

    plots = [history_plot(comparison)] if comparison.history else []
    heading = f"{comparison.collection}: {comparison.verdict}."
    tables = [(table, marks(table)) for table in comparison.tables()]
    return PagePart(f"board-{number}", heading, tables, plots)
