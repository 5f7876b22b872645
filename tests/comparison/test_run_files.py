"""Run files in comparisons: with each other, and with the results that they are of."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from comparison.made import benchmarco, document, said

from pipeline import InputError, compare

QRELS = Path("data", "qrels", "test.tsv")


@pytest.fixture(autouse=True)
def _there(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a result, `a.trec`, which is its run, and `b.trec`, with half of the lines of it."""
    monkeypatch.chdir(workplace)
    lines = Path("results/t/run.trec").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("a.trec").write_text("".join(lines), encoding="utf-8")
    Path("b.trec").write_text("".join(lines[::2]), encoding="utf-8")


def test_a_run_file_is_the_equal_of_the_result_it_is_of() -> None:
    compared = compare(["results/t", "a.trec"], "ndcg@10", qrels=QRELS)
    (pair,) = compared.pairs
    assert [entry.name for entry in compared.results] == ["t", "a.trec"]
    assert pair.difference == pytest.approx(0, abs=1e-12)
    assert pair.ties == len(compared.query_ids)
    assert compared.notes == []
    among_runs = compare(["a.trec", "b.trec"], "ndcg@10", qrels=QRELS)
    beside = compare(["results/t", "b.trec"], "ndcg@10", qrels=QRELS)
    assert among_runs.pairs[0].difference == pytest.approx(beside.pairs[0].difference)
    assert among_runs.pairs[0].ties < len(compared.query_ids)


def test_several_measures_have_a_table_each_and_a_warning() -> None:
    arguments = ["compare", "a.trec", "b.trec", "--qrels", str(QRELS)]
    measures = ["--measure", "ndcg@10", "--measure", "P@3"]
    text = said(benchmarco(*arguments, *measures, "-v"))
    assert "differences in ndcg@10" in text
    assert "differences in precision@3" in text
    assert "2 measures: p is corrected for the pairs of one measure" in text
    printed: Any = document(*arguments, *measures)
    assert [each["measure"] for each in printed] == ["ndcg@10", "precision@3"]
    table = benchmarco(*arguments, *measures, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["measure"] for row in rows] == ["ndcg@10"] * 3 + ["precision@3"] * 3


def test_runs_without_their_judgments_are_refused() -> None:
    with pytest.raises(InputError, match=r"a\.trec is a run file, and --qrels is not given"):
        compare(["results/t", "a.trec"])
    with pytest.raises(InputError, match="without a run file"):
        compare(["results/t"], qrels=QRELS)
    shutil.copy(QRELS, "other.tsv")
    with open("other.tsv", "a", encoding="utf-8") as file:
        file.write("unknown\tunknown\t1\n")
    with pytest.raises(InputError, match=r"was not scored by other\.tsv"):
        compare(["results/t", "a.trec"], qrels="other.tsv")
    done = benchmarco("compare", "a.trec", "b.trec", "--qrels", QRELS, "--html", "page.html")
    assert "--html with the run file a.trec" in said(done)
    assert not Path("page.html").exists()
