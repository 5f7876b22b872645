"""A folder of results as a board: a comparison for each collection, with the history of each name."""

import csv
import io
import json
from pathlib import Path

import pytest
from comparison.made import config
from workplaces import benchmarco, change_json, document, on_one_line

from pipeline import run_benchmark


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two collections, one of which a name has two results of, and a folder that is damaged."""
    folder = tmp_path_factory.mktemp("board")
    few = {"source": "sample", "queries": 40}
    for name, k1, data in (("a", 20.0, {}), ("a", 0.9, {}), ("b", 2.0, {}), ("c", 0.9, {"data": few})):
        run_benchmark(config(folder, name, model={"backend": "bm25", "k1": k1}, **data))
    change_json(folder / "results" / "a~1" / "manifest.json", created="2026-01-02T03:04:05+00:00")
    broken = folder / "results" / "broken"
    broken.mkdir()
    for name in ("metrics.json", "per_query.csv", "manifest.json", "checksums.json"):
        (broken / name).write_text("{}", encoding="utf-8")
    return folder / "results"


def test_each_collection_is_compared_and_a_name_has_its_history(board: Path) -> None:
    whole, few = document("compare", board)
    assert [entry["name"] for entry in whole["results"]] == ["a", "b"]
    assert len(whole["pairs"]) == 1
    assert [entry["name"] for entry in few["results"]] == ["c"]
    assert {each["collection"] for each in (whole, few)} == {"sample, 114 queries", "sample, 40 queries"}
    first, last = whole["history"]["a"]
    assert first["created"].startswith("2026-01-02")
    assert last["mean"] == whole["results"][0]["mean"] > first["mean"]
    assert last["shown"]
    assert few["history"] == {}


def test_tables_have_dates_and_say_what_is_left_out(board: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = on_one_line(benchmarco("compare", board))
    assert "sample, 114 queries: " in said
    assert "(2026-01-02) → " in said
    assert "date" in said
    assert "broken" in caplog.text
    rows = list(csv.DictReader(io.StringIO(benchmarco("compare", board, "--format", "csv").stdout)))
    assert [(row["of"], row["name"]) for row in rows if not row["against"]] == [
        ("sample, 114 queries", "a"), ("sample, 114 queries", "b"), ("sample, 40 queries", "c"),
    ]  # fmt: skip


def test_measures_and_a_baseline_apply_to_each_collection_that_has_them(board: Path) -> None:
    of_b = document("compare", board, "--baseline", "b", "--measure", "mrr@10")
    assert [(each["measure"], each["baseline"]) for each in of_b] == [("mrr@10", "b"), ("mrr@10", None)]
    assert "no result with map" in benchmarco("compare", board, "--measure", "map", code=2).output


def test_the_page_has_a_section_for_each_collection_and_the_history_of_names(
    board: Path, tmp_path: Path
) -> None:
    benchmarco("compare", board, "--html", tmp_path / "board.html")
    page = (tmp_path / "board.html").read_text(encoding="utf-8")
    assert "3 results of 2 collections" in page
    assert page.count("<section") == 2
    assert " by date</button>" in page


def test_a_folder_without_results_is_refused_as_before(tmp_path: Path) -> None:
    (tmp_path / "note.json").write_text(json.dumps({}), encoding="utf-8")
    assert "is not a result folder" in on_one_line(benchmarco("compare", tmp_path, code=2))
