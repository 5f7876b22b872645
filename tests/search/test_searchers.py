"""Whole benchmarks by every way of searching, also in shards: what is made, reused and measured."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from workplaces import config, hits, read_json

from pipeline import InputError, run_benchmark
from pipeline.core import silent
from pipeline.metrics import parse_measures
from pipeline.run import compare_with_exact, overlap
from pipeline.storage import check_counts

IVF = ("index.factory='IVF4,Flat'",)


def run(folder: Path, *settings: str) -> dict[str, Any]:
    return workplaces.run(folder, *settings).document


def stored(folder: Path, stage: str) -> list[Path]:
    return sorted((folder / "indexes" / stage).iterdir())


def made(metrics: dict[str, Any]) -> list[str]:
    return [stage["stage"] for stage in metrics["stages"] if stage["seconds"] and not stage["reused"]]


@pytest.mark.parametrize("metric", ["inner_product", "cosine", "l2"])
def test_streamed_search_writes_the_same_and_builds_no_index(workplace: Path, metric: str) -> None:
    setting = f"index.metric={metric}"
    run(workplace, setting)
    held, indexes = (workplace / "results/t/run.trec").read_bytes(), stored(workplace, "index")
    for path in (workplace / "indexes").glob("*/*/manifest.json"):
        if path.parent.parent.name in ("index", "search", "evaluate"):
            path.unlink()
    metrics = run(workplace, setting, "search.memory_mb=64", "search.batch_size=5")
    assert made(metrics) == ["search", "evaluate"]
    assert [row["stage"] for row in metrics["stages"] if row["reused"]] == ["data", "passages", "queries"]
    assert (workplace / "results/t/run.trec").read_bytes() == held
    assert stored(workplace, "index") == indexes
    assert not list((workplace / "indexes").glob("index/*/manifest.json"))


def test_an_approximate_index_is_measured_against_exact_search_made_once(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The exact search is the same artifact as that of a flat index, in another role."""
    first = run(workplace)
    (flat,) = stored(workplace, "search")
    before = (flat / "manifest.json").read_bytes()
    metrics = run(workplace, *IVF, "search.parameters={nprobe: 4}")
    assert made(metrics) == ["index", "search", "evaluate"]
    overlap, index = metrics["against_exact"]["overlap"], metrics["index"]
    assert list(overlap) == ["5", "10", "20", "50"]
    assert min(overlap.values()) > 0.95  # of all lists: only what is as near as float32 tells may differ
    assert (index["factory"], index["parameters"]) == ("IVF4,Flat", {"nprobe": 4})
    again = run(workplace, *IVF, "search.parameters={nprobe: 1}")
    assert made(again) == ["search", "evaluate"]  # one index serves all search parameters
    assert again["against_exact"]["overlap"]["50"] < overlap["50"]
    for name, change in again["against_exact"]["change"].items():
        assert change["before"] == first["metrics"][name]
        assert change["difference"] == pytest.approx(again["metrics"][name] - change["before"], abs=1e-12)
        if change["ci_low"] is not None:  # shown where enough queries have changed
            assert change["ci_low"] <= change["difference"] <= change["ci_high"]
    assert any(change["ci_low"] is not None for change in again["against_exact"]["change"].values())
    written = read_json(workplace / "results/t/metrics.json")
    assert written["against_exact"] == again["against_exact"]
    comparisons = {path: (path / "manifest.json").read_bytes() for path in stored(workplace, "against_exact")}
    assert len(comparisons) == 2  # a run from the cache reads what was compared
    warm = run(workplace, *IVF, "search.parameters={nprobe: 1}")
    assert (made(warm), warm["against_exact"]) == ([], again["against_exact"])
    assert {path: (path / "manifest.json").read_bytes() for path in comparisons} == comparisons
    assert "recomputing it" not in caplog.text
    assert (flat / "manifest.json").read_bytes() == before
    assert len(stored(workplace, "search")) == 3
    assert "against_exact" not in first
    assert "against_exact" not in run(workplace, *IVF, "search.against_exact=false")


def test_the_interval_of_a_loss_draws_clusters() -> None:
    ranking, zeros = np.zeros((120, 1), np.int64), np.zeros((120, 1))
    losses = np.repeat(np.random.default_rng(1).uniform(-0.7, 0.7, 60), 2)[:, None]
    ends = []
    for draws in (range(120), [number // 2 for number in range(120)]):
        section = compare_with_exact(ranking, ranking, parse_measures(["ndcg@10"]), losses, zeros, draws)
        change = section["change"]["ndcg@10"]
        assert change["difference"] == pytest.approx(losses.mean())
        ends.append(change["ci_high"] - change["ci_low"])
    assert ends[1] == pytest.approx(ends[0] * np.sqrt(2), rel=0.05)


BEST, FOUND = np.array([[1, 2, 3, 4], [5, 6, 7, 8]]), np.array([[2, 1, 9, 3], [8, 0, -1, -1]])
SHORT, SHORTER = np.array([[3, 1, -1], [2, -1, -1]]), np.array([[3, -1, -1], [-1, -1, -1]])


@pytest.mark.parametrize(
    ("found", "best", "cutoff", "expected"),
    [
        (FOUND, BEST, 1, 0.0),
        (FOUND, BEST, 2, (2 / 2 + 0) / 2),
        (FOUND, BEST, 9, (3 / 4 + 1 / 4) / 2),
        (SHORT, SHORT, 3, 1),
        (SHORTER, SHORT, 3, (1 / 2 + 0) / 2),
    ],
)
def test_overlap_is_the_share_of_exact_hits_found(
    found: np.ndarray, best: np.ndarray, cutoff: int, expected: float
) -> None:
    assert overlap(found, best, cutoff) == pytest.approx(expected)


def test_seconds_are_what_the_benchmark_itself_costs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the exact search that it is compared with: it seems to take an hour."""
    clock, late, searched = time.perf_counter, [], []

    def progress(label: str, total: int | None, unit: str) -> Any:
        searched.extend([label] if label == "search" else [])
        if len(searched) == 2:
            late.append("exact search")
            searched.append("over")
        return silent(label, total, unit)

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 3600 * len(late))
    metrics = run_benchmark(config(workplace, "search.top_k=60", *IVF), progress=progress).document
    assert late == ["exact search"]
    assert sum(stage["seconds"] for stage in metrics["stages"]) < 3600


def test_a_damaged_count_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="the index holds 9 vectors, and the collection 10 passages"):
        check_counts(9, 4, 10, np.ones((1, 4), np.float32))
    with pytest.raises(InputError, match="vectors have 8 dimensions and the index 4"):
        check_counts(10, 4, 10, np.ones((1, 8), np.float32))


@pytest.mark.parametrize("metric", ["inner_product", "cosine", "l2"])
def test_shards_of_a_flat_index_find_what_one_finds(workplace: Path, metric: str) -> None:
    run(workplace, f"index.metric={metric}")
    whole = hits(workplace / "results/t")
    for shards in (3, 345):
        run(workplace, f"index.metric={metric}", f"index.shards={shards}")
        assert hits(workplace / "results/t") == whole


def test_each_shard_is_searched_with_the_parameters(workplace: Path) -> None:
    """With all lists of each searched, what is as near as float32 tells may differ."""
    factory = (*IVF, "index.shards=3")
    overlaps = [
        run(workplace, *factory, f"search.parameters={{nprobe: {lists}}}")["against_exact"]["overlap"]
        for lists in (1, 4)
    ]
    assert overlaps[0]["50"] < 0.95 < overlaps[1]["50"]


def manifest(folder: Path, stage: str) -> dict[str, Any]:
    """The one in shards."""
    every = [json.loads(path.read_text()) for path in (folder / "indexes" / stage).glob("*/manifest.json")]
    (found,) = (each for each in every if each["recipe"].get("shards") == 3)
    return found


def test_a_run_keeps_the_shards_that_are_whole_and_counts_their_bytes_together(workplace: Path) -> None:
    settings = ("index.shards=3", "index.factory=HNSW8")
    metrics = run(workplace, *settings)
    built, before = manifest(workplace, "index"), hits(workplace / "results/t")
    assert sorted(built["files"]) == [f"index-{number}.faiss" for number in range(3)]
    assert built["facts"] == {"rows": 345, "dimension": 128}
    row = next(row for row in metrics["stages"] if row["stage"] == "index")
    assert row["bytes"] >= sum(file["bytes"] for file in built["files"].values())
    folder = workplace / "indexes" / "index" / built["key"]
    (folder / "index-1.faiss").unlink()
    shutil.rmtree(workplace / "indexes" / "search")
    kept = (folder / "index-2.faiss").stat().st_ino
    run(workplace, *settings)
    assert hits(workplace / "results/t") == before
    assert (folder / "index-2.faiss").stat().st_ino == kept
    assert manifest(workplace, "index")["made"]["engine"]["parts"] == {"local": 1}
