"""How results look in a notebook and in a prompt."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from pipeline.core import Cell, Column, Table, cut, figure, html_table
from pipeline.metrics import Evaluation, parse_measure
from pipeline.results import CollectionResult, Manifest, Metrics, Result

SHARP = "<script>alert('x')</script>&"


def result() -> Result:
    stages = [{"stage": "data", "reused": True}, {"stage": "search", "reused": False}]
    metrics = {
        "name": "t", "queries": 1234, "passages": 1, "stages": stages,
        "metrics": {"ndcg@10": 0.5}, "intervals": {"ndcg@10": (0.25, 0.75)},
    }  # fmt: skip
    record = Metrics.model_validate(metrics)
    manifest = Manifest(recipes={"evaluate": {}})
    values = np.full((1234, 1), 0.5)
    scores = CollectionResult(
        Path(SHARP), record, manifest, [f"q{row}" for row in range(1234)], ["ndcg@10"], values
    )
    return Result(Path(SHARP), [scores])


def evaluation() -> Evaluation:
    half = np.array([0.5])
    return Evaluation(["q1"], [parse_measure("mrr")], half[None], half, [(0.25, 0.75)], half > 1, 0, 2)


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
def test_a_result_is_a_line_a_text_and_a_page_s_tables(shown: Any, line: str, said: list[str]) -> None:
    assert repr(shown) == line
    assert [words for words in said if words not in str(shown)] == []
    page = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")  # every tag is closed
    assert set(said) <= set(page.itertext())
    assert page.find(".//script") is None
    assert not {"color", "background"} & set(re.findall(r"[a-z]+(?=:)", shown._repr_html_()))


def test_the_best_of_a_column_is_bold_in_a_notebook() -> None:
    columns = Column("name"), Column("size", "right")
    html = html_table(Table("t", columns, [("a", Cell("22.4 MB", 22_396_589, strong=True)), ("b", "")]))
    assert '<td style="text-align:right"><b>22.4 MB</b></td>' in html
    assert '<td style="text-align:right"></td>' in html


@pytest.mark.parametrize(
    ("written", "as_"),
    [
        (figure(0.00009, "p"), "<0.0001"),
        (figure(0.0001, "p"), "0.0001"),
        (figure(0.25, "p"), "0.2500"),
        (figure(0.0021, "+.4f"), "+0.0021"),
        (figure(-0.00004, "+.4f"), "0.0000"),
        (figure((-0.5, 0), "+.4f"), "-0.5000 to 0.0000"),
        (figure(None), ""),
        (figure(1234.5, "rate"), "1,234"),
        (figure(0.523, "rate"), "0.52"),
        (figure(22_396_589, "bytes"), "22.4 MB"),
        (figure(0.2, "time"), "1 s"),
        (figure(720, "time"), "12 min"),
        (figure(12240, "time"), "3.4 h"),
        (figure(181440, "time"), "2.1 days"),
        (cut("abc def", 5), "abc…"),
        (cut("abc", 3), "abc"),
    ],
)
def test_a_figure_is_written_alike_everywhere(written: str, as_: str) -> None:
    assert written == as_
