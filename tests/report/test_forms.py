"""How a comparison reads: in terminals of any width and in documents, and the same in every form."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from itertools import chain
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from comparison.made import STAGES, changed, make
from report.tree import tree
from rich.console import Console

from pipeline import compare
from pipeline.comparison import Comparison
from pipeline.core import Table, html_table, text_table
from pipeline.report import csv_text, latex, markdown, terminal_parts
from pipeline.results import Metrics, result_table, section_tables, summary_table
from pipeline.studies.page import render_page


def shown(width: int, *tables: Table) -> str:
    console = Console(file=io.StringIO(), width=width)
    for table in tables:
        console.print(*terminal_parts(table, width), sep="\n")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def on_terminal(table: Table) -> str:
    heads = re.sub(r"random-(.*)\n(.*)ization", r"randomization\1\n\2", shown(400, table))
    return heads.replace("random-", "randomization")


FORMS: dict[str, Callable[[Table], str]] = {
    "text": text_table,
    "notebook": lambda table: unescape(html_table(table)).replace("\u00ad", ""),
    "terminal": on_terminal,
    "markdown": lambda table: markdown([table]).replace("\\", ""),
    "latex": lambda table: re.sub(
        r"\\text(less|greater|asciitilde)\{\}",
        lambda m: {"less": "<", "greater": ">", "asciitilde": "~"}[m[1]],
        latex([table]),
    ).replace("\\", ""),
    "csv": lambda table: "\n".join([table.title, *map(" ".join, csv.reader(io.StringIO(csv_text(table))))]),
}


def cell_text(cell: Element) -> str:
    """A new line of a cell is a space, as elsewhere: the page puts an interval below its number."""
    for below in cell.iterfind(".//*[@class='ends']"):
        below.text = f" {below.text}"
    return " ".join("".join(cell.itertext()).split())


def page_tables(page: str) -> list[list[list[str]]]:
    """The tables of a page: the caption, the headings and the rows of each."""
    return [
        [
            [cell_text(cell) for cell in ([row] if row.tag == "caption" else row)]
            for row in table.iter()
            if row.tag in ("caption", "tr")
        ]
        for table in tree(page).iter("table")
    ]


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
        text = " ".join(FORMS[form](table).split())
        wanted = texts(table)
        if form == "terminal":  # where the second line of a cell is below the first lines of others
            wanted = [line for each in wanted for line in re.split(r" (?=\S+ to )", each)]
        assert [each for each in wanted if each not in text] == []


def test_the_page_has_the_same_titles_columns_and_cells(measured: Comparison) -> None:
    found = page_tables(render_page(measured))
    for table in shown_tables(measured):
        (page,) = (rows for rows in found if rows[0][0].startswith(f"{table.title}."))
        names = page[1]
        columns = [names.index(column.plain_name) for column in table.columns]
        assert columns == sorted(columns)
        rows = [[row[number] for number in columns] for row in page[2:]]
        wanted = [[cell.replace("\n", " ") for cell in row] for row in table.rows]
        assert sorted(rows) == sorted(wanted)
        assert [note for note in table.notes if note not in page[0][0] and not note.startswith("Note:")] == []


@pytest.fixture(scope="module")
def made() -> Comparison:
    """Three results with numbers of every kind, of which the last is shown to be worse."""
    last = [row | {"seconds": None, "items_per_second": None, "bytes": None} for row in STAGES]
    worse = changed(make("bm25", 3, (-0.2,)), stages=last)
    large = [row | {"bytes": 22_396_589, "seconds": 1388.0} for row in STAGES]
    best = changed(make("minilm-openvino-bf16", 2), stages=large, passages=10)
    return compare([make("minilm_fp32", 1), best, worse])


@pytest.mark.parametrize("width", [60, 100, 140])
def test_the_terminal_shows_every_figure_whole(made: Comparison, width: int) -> None:
    text = shown(width, *made.tables())
    cells = [cell for table in made.tables() for row in table.rows for cell in row[1:]]
    figures = [part for cell in cells for part in cell.split()]
    figures += ["2,239,659", "<0.0001 *", "bm25", "minilm_fp32 -", "random-"]
    assert [figure for figure in figures if figure not in text] == []
    assert text.count("<0.0001 *") == 2
    assert max(map(len, text.splitlines())) <= width
    (note,) = made.notes
    assert " ".join(text.split()).count(f"Note: {note}") == 1


def test_csv_keeps_full_precision_in_one_table(made: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(made.figures()))))
    assert [(row["name"], row["against"]) for row in rows] == [
        *((entry.name, "") for entry in made.results), *((pair.a, pair.b) for pair in made.pairs)
    ]  # fmt: skip
    assert {row["measure"] for row in rows} == {"ndcg@10"}
    assert [float(row["value"]) for row in rows[:3]] == [entry.mean for entry in made.results]
    assert (rows[1]["index_bytes"], rows[2]["seconds"]) == ("22396589", "")
    for row, pair in zip(rows[3:], made.pairs, strict=True):
        assert (float(row["value"]), float(row["p_holm"])) == (pair.difference, pair.p_holm)
        assert int(row["wins"]) == pair.wins


@pytest.mark.parametrize(
    ("name", "in_markdown", "in_latex"),
    [
        ("a|b*c*", r"a\|b\*c\*", r"a\textbar{}b*c*"),
        ("`a`~b~", r"\`a\`\~b\~", r"\textasciigrave{}a\textasciigrave{}\textasciitilde{}b\textasciitilde{}"),
        ("[a](b)&amp;<c>$d$", r"\[a\](b)\&amp;\<c\>\$d\$", r"{}[a](b)\&amp;\textless{}c\textgreater{}\$d\$"),
        (r"a\b^c", r"a\\b^c", r"a\textbackslash{}b\textasciicircum{}c"),
        ("50% #2 a---b'", r"50% #2 a---b'", r"50\% \#2 a-{}-{}-b\textquotesingle{}"),
    ],
)
def test_documents_print_a_name_as_it_is(
    made: Comparison, name: str, in_markdown: str, in_latex: str
) -> None:
    first, *rest = made.results
    pairs = [replace(pair, a=name) for pair in made.pairs[:1]]
    named = replace(made, results=[replace(first, name=name), *rest], pairs=pairs, notes=[name])
    text = markdown(named.tables())
    assert f"\n| {in_markdown} | {first.mean:.4f} |" in text
    assert f"\n| {in_markdown} - {rest[0].name} | " in text
    assert f"\nNote: {in_markdown}." in text
    text = latex(replace(made, results=[replace(first, name=name), *rest]).tables())
    assert f"\n{in_latex} &" in text
    assert r"\textless{}0.0001 *" in text
    best = max(entry.mean for entry in made.results)
    assert text.count(rf"\textbf{{{best:.4f}}}") == text.count(r"\textbf") == 1


def test_what_was_reranked_or_approximate_stands_beside_what_it_was() -> None:
    """0.6453 before reranking and 0.2215 after it: only the second was shown."""
    made = {"queries": 9, "passages": 9, "stages": [], "metrics": {"mrr": 0.2215}}
    reranked = Metrics(name="one", first_stage={"metrics": {"mrr": 0.6453}}, **made)
    near = Metrics(name="near", against_exact={"overlap": {"10": 0.912}, "change": {}}, **made)
    table = result_table(reranked)
    assert [column.name for column in table.columns[:3]] == ["measure", "before reranking", "mean"]
    assert table.rows[0][1:3] == ("0.6453", "0.2215")
    summary = summary_table([reranked, near], 2)
    assert [row[:2] for row in summary.rows[:2]] == [("one, before reranking", "0.6453"), ("one", "0.2215")]
    assert "near: The index finds 91.2% of the exact top 10." in summary.notes
    assert "The index finds 91.2% of the exact top 10." in result_table(near).notes


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
    assert [line.split() for line in lines[2:4]] == [
        ["one", "0.5000", "2.5", "1", "of", "2"],
        ["two", "0.2500", "0.1250", "0.0", "0", "of", "1"],
    ]
