"""How results look in a notebook and in a prompt."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pipeline.core import display
from pipeline.core.table import Cell, Column, Displayed, Table, html_table, text_table
from pipeline.metrics.evaluation import Evaluation
from pipeline.metrics.names import parse_measure
from pipeline.results.folder import Result

SHARP = "<script>alert('x')</script>&"


def result() -> Result:
    stages = [{"stage": "data", "reused": True}, {"stage": "search", "reused": False}]
    metrics = {
        "name": "t",
        "queries": 1234,
        "passages": 1,
        "metrics": {"ndcg@10": 0.5},
        "intervals": {"ndcg@10": [0.25, 0.75]},
        "stages": stages,
    }
    return Result(Path(SHARP), metrics)


def evaluation() -> Evaluation:
    half = np.array([0.5])
    return Evaluation(["q1"], [parse_measure("mrr")], half[None], half, [(0.25, 0.75)], 0, 2)


class Cells(HTMLParser):
    """The text of an HTML fragment, and its tags, each closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize(
    ("shown", "line", "said"),
    [
        (
            result(),
            "<Result t: 1,234 queries, 1 passage>",
            ["ndcg@10", "0.5000", "0.2500 to 0.7500", "reused: data", f"in {SHARP}"],
        ),
        (
            evaluation(),
            "<Evaluation 1 judged query, 0 not in the run (score 0), "
            "2 queries of the run not judged (left out)>",
            ["mrr", "0.5000", "0.2500 to 0.7500"],
        ),
    ],
    ids=["result", "evaluation"],
)
def test_a_result_is_a_line_a_text_and_a_page_s_tables(shown: Displayed, line: str, said: list[str]) -> None:
    assert repr(shown) == line
    assert [words for words in said if words not in str(shown)] == []
    cells = Cells(shown._repr_html_())
    assert [words for words in said if words not in cells.text] == []
    assert "script" not in cells.tags
    assert not {"color", "background"} & set(shown._repr_html_().replace(":", " ").replace('"', " ").split())


def test_one_of_a_thing_is_not_several() -> None:
    assert [display.counted(count, "query", "queries") for count in (0, 1, 2)] == [
        "0 queries", "1 query", "2 queries"
    ]  # fmt: skip
    assert [display.counted(count, "passage") for count in (1, 1234)] == ["1 passage", "1,234 passages"]


def test_columns_of_a_text_line_up() -> None:
    columns = Column("name"), Column("mean", "right")
    table = Table("title", columns, [("a", "1.5"), ("longer", "10.25")], ["note"])
    assert text_table(table).splitlines() == [
        "title",
        "name     mean",
        "a         1.5",
        "longer  10.25",
        "note",
    ]


def test_the_best_of_a_column_is_bold_in_a_notebook() -> None:
    columns = Column("name"), Column("size", "right")
    html = html_table(Table("t", columns, [("a", Cell("22.4 MB", 22_396_589, strong=True)), ("b", "")]))
    assert '<td style="text-align:right"><b>22.4 MB</b></td>' in html
    assert '<td style="text-align:right"></td>' in html


@pytest.mark.parametrize(
    ("written", "as_"),
    [
        (display.figure(0.00009, "p"), "<0.0001"),
        (display.figure(0.0001, "p"), "0.0001"),
        (display.figure(0.25, "p"), "0.2500"),
        (display.figure(0.0021, "+.4f"), "+0.0021"),
        (display.figure(-0.00004, "+.4f"), "0.0000"),
        (display.figure((-0.5, 0), "+.4f"), "-0.5000 to 0.0000"),
        (display.figure(None), ""),
        (display.figure(1234.5, "rate"), "1,234"),
        (display.figure(0.523, "rate"), "0.52"),
        (display.figure(22_396_589, "bytes"), "22.4 MB"),
        (display.cut("abc def", 5), "abc…"),
        (display.cut("abc", 3), "abc"),
    ],
)
def test_a_figure_is_written_alike_everywhere(written: str, as_: str) -> None:
    assert written == as_
