"""How a comparison reads: in narrow and wide terminals, and as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline.comparison.pairs import Pair
from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import Entry
from pipeline.core.table import Table
from pipeline.report.renderings import csv_text, latex, markdown, terminal_parts
from pipeline.results.folder import SavedResult
from pipeline.results.records import Manifest, Metrics
from pipeline.results.suite_folder import SavedSuite
from pipeline.results.tables import summary_table

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


def test_one_result_needs_no_legend(comparison: Comparison) -> None:
    alone = Comparison("mrr", comparison.results[:1], [], [], ["mrr"], [np.empty((0, 1))], suites(1))
    assert [len(list(terminal_parts(table, 80))) for table in alone.tables()] == [4]  # with titles
    assert [table.notes for table in alone.tables()] == [[]]
    assert len(csv_text(alone.figures()).splitlines()) == 2
    assert markdown(alone.tables()).count("\n| ---") == 1
    assert latex(alone.tables()).count("tabular}") == 2


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
        ("minilm_fp32_", r"minilm\_fp32\_"),
        ("a|b*c*", r"a\|b\*c\*"),
        ("`a`~b~", r"\`a\`\~b\~"),
        (r"a\_b", r"a\\\_b"),
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
        ("{a}_b", r"\{a\}\_b &"),
        ("a^b~c", r"a\textasciicircum{}b\textasciitilde{}c &"),
        ("a<b>|c", r"a\textless{}b\textgreater{}\textbar{}c &"),
        ("[a]*", "\n{}[a]* &"),
        ("50% & $1 #2", r"50\% \& \$1 \#2 &"),
        ("a---b-c", "a-{}-{}-b-c &"),
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
