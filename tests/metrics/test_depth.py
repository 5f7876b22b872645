"""Rankings that end early are counted, and said beside what was measured of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pipeline.cli import app
from pipeline.core.records import Ranking
from pipeline.metrics import parse_measures
from pipeline.metrics.scoring import short_rankings


@pytest.mark.parametrize(
    ("measures", "passages", "expected"),
    [
        ("mrr@2,recall@4", 9, {"queries": 2, "fewest": 0, "cutoff": 4}),
        (
            "recall@4",
            None,
            {"queries": 1, "fewest": 2, "cutoff": 4},
        ),  # without hits: missing
        ("recall@4", 2, {"queries": 1, "fewest": 0, "cutoff": 2}),
        ("recall@2", None, None),
        ("map,mrr", 9, None),
    ],
)
def test_rows_with_fewer_hits_than_the_deepest_cutoff(
    measures: str, passages: int | None, expected: dict[str, int] | None
) -> None:
    rows = np.array([[0, 1, 2, 3], [4, 5, -1, -1], [-1, -1, -1, -1]])
    ranking = Ranking(rows, np.zeros(rows.shape, np.float32))
    found = short_rankings(ranking, parse_measures(measures), passages)
    assert (found and found.model_dump()) == expected


def test_an_index_that_finds_too_little_says_so_wherever_its_measures_are_shown(workplace: Path) -> None:
    lists = ["index.factory='IVF64,Flat'", "search.top_k=300", "evaluate.measures=[recall@300]"]
    command = ["run", str(workplace / "c.yaml"), "--output", str(workplace / "results")]
    settings = [argument for each in lists for argument in ("--set", each)]
    done = CliRunner().invoke(app, [*command, *settings, "--set", f"cache={workplace}/indexes"])
    assert done.exit_code == 0, done.output
    folder = workplace / "results" / "t"
    found = json.loads((folder / "metrics.json").read_text())["short_rankings"]
    assert (found["queries"], found["cutoff"]) == (114, 300)
    assert f"300 passages were found for 114 queries ({found['fewest']} at the fewest)" in done.output
    files = ["--qrels", str(workplace / "data/qrels/test.tsv"), "--run", str(folder / "run.trec")]
    for arguments in (["evaluate", *files, "--measures", "recall@300"], ["compare", str(folder)]):
        said = " ".join(CliRunner().invoke(app, arguments).output.split())
        assert "fewer than 300 passages were found for 114 queries" in said
