"""How a comparison reads: in terminals of any width and in documents, and the same in every form."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline import compare
from pipeline.comparison.pairs import Pair
from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import Entry
from pipeline.core.table import SOFT_HYPHEN, Table, html_table, text_table, transposed
from pipeline.report.page.render import render_page
from pipeline.report.renderings import csv_text, latex, markdown, terminal_parts
from pipeline.results.folder import SavedResult
from pipeline.results.records import Manifest, Metrics
from pipeline.results.suite_folder import SavedSuite
from pipeline.results.tables import section_tables, summary_table

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
def measured(folders: list[Path], indexed: list[Path]) -> Comparison:
    return compare([*folders[:2], *indexed], "ndcg@10")


def shown_tables(measured: Comparison) -> list[Table]:
    return [*measured.tables(), *chain(*section_tables(measured.records, measured.measure).values())]


def texts(table: Table) -> list[str]:
    """The title, the columns and the cells."""
    cells = [cell.replace("\n", " ") for row in table.rows for cell in row]
    return [table.title, *(column.plain_name for column in table.columns), *cells]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_titles_columns_and_cells(measured: Comparison, form: str) -> None:
    for table in shown_tables(measured):
        shown = " ".join(FORMS[form](table).split())
        wanted = texts(table)
        if form == "terminal":  # where the second line of a cell is below the first lines of others
            wanted = [line for text in wanted for line in re.split(r" (?=\S+ to )", text)]
        assert [text for text in wanted if text not in shown] == []
        assert sorted(texts(transposed(table))) == sorted(texts(table))


def test_the_page_has_the_same_titles_columns_and_cells(measured: Comparison) -> None:
    found = Tables(render_page(measured)).found
    for table in shown_tables(measured):
        (page,) = (rows for rows in found if rows[0][0].startswith(f"{table.title}."))
        names = page[1]
        columns = [names.index(column.plain_name) for column in table.columns]
        assert columns == sorted(columns)
        rows = [[row[number] for number in columns] for row in page[2:]]
        wanted = [[cell.replace("\n", " ") for cell in row] for row in table.rows]
        assert sorted(rows) == sorted(wanted)
        assert [note for note in table.notes if note not in page[0][0] and not note.startswith("Note:")] == []


NAMES = ["minilm_fp32", "minilm-openvino-bf16", "bm25"]


def entry(
    name: str, mean: float, interval: tuple[float, float], letters: str, *cost: float | int | None
) -> Entry:
    return Entry(name, mean, *interval, 43, letters, 1, None, None, 1, {"": mean}, *cost)  # type: ignore[arg-type]


def suites(count: int) -> list[SavedSuite]:
    """Results of one collection without anything in them."""
    record = Metrics(name="t", queries=1, passages=1, metrics={}, stages=())
    empty = SavedResult(Path("t"), record, Manifest(recipes={"data": {}}), [], [], np.empty((0, 0)))
    return [SavedSuite.of_one(empty)] * count


@pytest.fixture
def comparison() -> Comparison:
    entries = [
        entry(NAMES[0], 0.6427, (0.5672, 0.7128), "a", 213.4, 431.0, 22_396_589, 181.25),
        entry(NAMES[1], 0.6403, (0.56, 0.71), "a", 1388.0, 9.5, 22_396_589, 40.0),
        entry(NAMES[2], 0.5058, (0.43, 0.58), "b", None, None, None, None),
    ]
    same, better = (0.2, 0.21, 0.2, 0.2, 0.2, False), (0.00002, 0.00005, 0.00006, 0.00006, 0.00003, True)
    pairs = [
        Pair(NAMES[0], NAMES[1], 0.0024, -0.001, 0.006, -0.002, 0.007, *same, 12, 20, 11),
        Pair(NAMES[0], NAMES[2], 0.1369, 0.07, 0.2, 0.06, 0.21, *better, 33, 1, 9),
        Pair(NAMES[1], NAMES[2], 0.1345, 0.07, 0.2, 0.06, 0.21, *better, 32, 1, 10),
    ]
    notes = ["they ran on different hardware"]
    return Comparison("ndcg@10", entries, pairs, notes, ["ndcg@10"], [np.empty((0, 3))], suites(3))


def shown(width: int, *tables: Table) -> str:
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(*terminal_parts(table, width), sep="\n")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 100, 140])
def test_the_terminal_shows_every_figure_whole(comparison: Comparison, width: int) -> None:
    text = shown(width, *comparison.tables())
    for figure in (
        "0.6427", "0.5672 to 0.7128", "1,388", "9.5", "22.4 MB", "181.2", "+0.1369", "[+0.0700,+0.2000]",
        "[+0.0600,+0.2100]",        "0.2100", "<0.0001 *", "33/1/9 │", "bm25", "minilm_fp32 -", "random-"
    ):  # fmt: skip
        assert figure in text, figure
    assert text.count("<0.0001 *") == 2
    assert max(map(len, text.splitlines())) <= width
    assert text.replace("\n", " ").count("Note: they ran on") == 1


def test_csv_keeps_full_precision_in_one_table(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(comparison.figures()))))
    assert [(row["name"], row["against"]) for row in rows] == [
        *((name, "") for name in NAMES), (NAMES[0], NAMES[1]), (NAMES[0], NAMES[2]), (NAMES[1], NAMES[2])
    ]  # fmt: skip
    assert {row["measure"] for row in rows} == {"ndcg@10"}
    assert (rows[0]["value"], rows[0]["index_bytes"], rows[2]["seconds"]) == ("0.6427", "22396589", "")
    assert (float(rows[4]["value"]), float(rows[4]["p_holm"]), rows[4]["wins"]) == (0.1369, 0.00006, "33")


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("a|b*c*", r"a\|b\*c\*"),
        ("`a`~b~", r"\`a\`\~b\~"),
        ("[a](b)&amp;<c>$d$", r"\[a\](b)\&amp;\<c\>\$d\$"),
    ],
)
def test_markdown_prints_a_name_as_it_is(comparison: Comparison, name: str, escaped: str) -> None:
    first, *rest = comparison.results
    pairs = [replace(pair, a=name) for pair in comparison.pairs[:1]]
    changed = replace(comparison, results=[replace(first, name=name), *rest], pairs=pairs, notes=[name])
    text = markdown(changed.tables())
    assert f"\n| {escaped} | 0.6427 |" in text
    assert f"\n| {escaped} - {NAMES[1]} | +0.0024 [-0.0010,+0.0060] |" in text
    assert f"\nNote: {escaped}." in text


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        (r"a\b", r"a\textbackslash{}b &"),
        ("a^b~c", r"a\textasciicircum{}b\textasciitilde{}c &"),
        ("a<b>|c", r"a\textless{}b\textgreater{}\textbar{}c &"),
        ("[a]*", "\n{}[a]* &"),
        ("50% & $1 #2", r"50\% \& \$1 \#2 &"),
        ("?`a'", r"?\textasciigrave{}a\textquotesingle{} &"),
    ],
)
def test_latex_prints_a_name_as_it_is(comparison: Comparison, name: str, escaped: str) -> None:
    first, *rest = comparison.results
    text = latex(replace(comparison, results=[replace(first, name=name), *rest]).tables())
    assert escaped in text
    assert r"\textless{}0.0001 *" in text
    assert text.count(r"\textbf{0.6427}") == text.count(r"\textbf") == 1  # the best


def test_summary_has_a_row_per_result_and_every_measure() -> None:
    stages = [
        {"stage": "data", "seconds": None, "reused": True},
        {"stage": "search", "seconds": 2.5, "reused": False},
    ]
    records = [
        Metrics(name="one", queries=1, passages=1, metrics={"mrr": 0.5}, stages=stages),
        Metrics(name="two", queries=1, passages=1, metrics={"mrr": 0.25, "map@10": 0.125}, stages=stages[:1]),
    ]
    lines = shown(100, summary_table(records, 3)).splitlines()
    assert lines[0].startswith("2 of 3 benchmarks finished")
    assert [line.strip("│ ").split() for line in lines[4:6]] == [
        ["one", "│", "0.5000", "│", "│", "2.5", "│", "1", "of", "2"],
        ["two", "│", "0.2500", "│", "0.1250", "│", "0.0", "│", "0", "of", "1"],
    ]
