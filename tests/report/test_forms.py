"""One comparison in every form: each has the same titles, columns and cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path

import pytest
from rich.console import Console

from pipeline import compare
from pipeline.comparison.side_by_side import Comparison
from pipeline.core.table import SOFT_HYPHEN, Table, html_table, text_table, transposed
from pipeline.report.page.render import render_page
from pipeline.report.renderings import csv_text, latex, markdown, terminal_parts
from pipeline.results.tables import section_tables

WIDTH = 400


def on_terminal(table: Table) -> str:
    console = Console(width=WIDTH, file=io.StringIO())
    console.print(*terminal_parts(table, WIDTH), sep="\n")
    assert isinstance(console.file, io.StringIO)
    heads = re.sub(r"random- +┃(.*)\n(.*)ization", r"randomization ┃\1\n\2", console.file.getvalue())
    return heads.replace("random-", "randomization")


FORMS: dict[str, Callable[[Table], str]] = {
    "text": text_table,
    "notebook": lambda table: unescape(html_table(table)).replace(SOFT_HYPHEN, ""),
    "terminal": on_terminal,
    "markdown": lambda table: markdown([table]).replace("\\", ""),
    "latex": lambda table: re.sub(
        r"\\text(less|greater)\{\}", lambda m: {"less": "<", "greater": ">"}[m[1]], latex([table])
    ).replace("\\", ""),
    "csv": lambda table: "\n".join([table.title, *map(" ".join, csv.reader(io.StringIO(csv_text(table))))]),
}


class Tables(HTMLParser):
    """The tables of a page: the caption, the headings and the rows of each.

    A new line of a cell is a space, as elsewhere: the page puts an interval below its number.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[list[list[str]]] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.found.append([])
        if tag in ("caption", "tr") and self.found:
            self.found[-1].append([])
        if tag in ("caption", "th", "td") and self.found:
            self.found[-1][-1].append("")
            self.inside = True
        if ("class", "ends") in attrs:
            self.found[-1][-1][-1] += " "

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("caption", "th", "td")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.found[-1][-1][-1] += data.strip()


@pytest.fixture(scope="module")
def comparison(folders: list[Path], indexed: list[Path]) -> Comparison:
    return compare([*folders[:2], *indexed], "ndcg@10")


def shown_tables(comparison: Comparison) -> list[Table]:
    return [*comparison.tables(), *chain(*section_tables(comparison.records, comparison.measure).values())]


def texts(table: Table) -> list[str]:
    """The title, the columns and the cells."""
    cells = [cell.replace("\n", " ") for row in table.rows for cell in row]
    return [table.title, *(column.plain_name for column in table.columns), *cells]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_titles_columns_and_cells(comparison: Comparison, form: str) -> None:
    for table in shown_tables(comparison):
        shown = " ".join(FORMS[form](table).split())
        wanted = texts(table)
        if form == "terminal":  # where the second line of a cell is below the first lines of others
            wanted = [line for text in wanted for line in re.split(r" (?=\S+ to )", text)]
        assert [text for text in wanted if text not in shown] == []


def test_the_page_has_the_same_titles_columns_and_cells(comparison: Comparison) -> None:
    found = Tables(render_page(comparison)).found
    for table in shown_tables(comparison):
        (page,) = (rows for rows in found if rows[0][0].startswith(f"{table.title}."))
        names = page[1]
        columns = [names.index(column.plain_name) for column in table.columns]
        assert columns == sorted(columns)
        rows = [[row[number] for number in columns] for row in page[2:]]
        wanted = [[cell.replace("\n", " ") for cell in row] for row in table.rows]
        assert sorted(rows) == sorted(wanted)
        assert [note for note in table.notes if note not in page[0][0] and not note.startswith("Note:")] == []


def test_a_transposed_table_has_the_same_cells(comparison: Comparison) -> None:
    for table in chain(*section_tables(comparison.records, comparison.measure).values()):
        assert sorted(texts(transposed(table))) == sorted(texts(table))
