"""Whole benchmarks by every way of searching: what is made, what is reused, what is measured."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import api
from pipeline.config.files import load_config
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.json_record import StageRow
from pipeline.run.benchmark import Benchmark
from pipeline.search import searchers
from pipeline.storage import vector_shards
from pipeline.storage.store import Store


def run(folder: Path, *settings: str) -> dict[str, Any]:
    places = [f"cache={folder}/indexes", f"output={folder}/results"]
    return api.run_benchmark(load_config(folder / "c.yaml", [*places, *settings])).metrics


def stored(folder: Path, stage: str) -> list[Path]:
    return sorted((folder / "indexes" / stage).iterdir())


def made(metrics: dict[str, Any]) -> list[str]:
    return [stage["stage"] for stage in metrics["stages"] if StageRow(**stage).outcome == "computed"]


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


def test_the_number_of_queries_searched_at_once_changes_no_byte(workplace: Path) -> None:
    passages = stored(workplace, "search")[0] / "scores.npy"
    before = passages.read_bytes()
    (passages.parent / "manifest.json").unlink()
    run(workplace, "search.batch_size=3")
    assert passages.read_bytes() == before


def test_an_approximate_index_is_measured_against_exact_search_made_once(workplace: Path) -> None:
    exact = run(workplace)["metrics"]
    searches = len(stored(workplace, "search"))
    metrics = run(workplace, "index.factory='IVF4,Flat'", "search.parameters={nprobe: 4}")
    assert made(metrics) == ["index", "search", "evaluate"]
    assert len(stored(workplace, "search")) == searches + 1  # the exact one was there
    overlap = metrics["against_exact"]["overlap"]
    assert list(overlap) == ["5", "10", "20", "50"]
    assert min(overlap.values()) > 0.95  # of all lists: only what is as near as float32 tells may differ
    assert metrics["index"]["factory"] == "IVF4,Flat"
    assert metrics["index"]["parameters"] == {"nprobe": 4}
    assert metrics["index"]["disk_bytes"] > 345 * 128 * 4
    assert metrics["index"]["memory_mb"] * 1e6 > 345 * 128 * 4
    again = run(workplace, "index.factory='IVF4,Flat'", "search.parameters={nprobe: 1}")
    assert made(again) == ["search", "evaluate"]  # one index serves all search parameters
    assert again["against_exact"]["overlap"]["50"] < overlap["50"]
    for name, change in again["against_exact"]["change"].items():
        assert change["exact"] == exact[name]
        assert change["difference"] == pytest.approx(again["metrics"][name] - exact[name], abs=1e-12)
        if change["ci_low"] is not None:  # shown where enough queries have changed
            assert change["ci_low"] <= change["difference"] <= change["ci_high"]
    assert any(change["ci_low"] is not None for change in again["against_exact"]["change"].values())
    written = json.loads((workplace / "results/t/metrics.json").read_text(encoding="utf-8"))
    assert written["against_exact"] == again["against_exact"]


def test_seconds_are_what_the_benchmark_itself_costs(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its speed's measuring nor the exact search it is compared with: each seems to take an hour."""
    clock, measure, late, searched = time.perf_counter, searchers.time_searches, [], []

    def progress(label: str, total: int | None, unit: str) -> Any:
        searched.extend([label] if label == "search" else [])
        if len(searched) == 2:
            late.append("exact search")
            searched.append("over")
        return silent(label, total, unit)

    def measured(*given: Any) -> dict[str, Any]:
        late.append("measuring")
        return measure(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 3600 * len(late))
    monkeypatch.setattr(searchers, "SECONDS", 0.01)
    monkeypatch.setattr(searchers, "time_searches", measured)
    settings = [f"cache={workplace}/indexes", f"output={workplace}/results", "search.top_k=60"]
    config = load_config(workplace / "c.yaml", [*settings, "index.factory='IVF4,Flat'"])
    metrics = api.run_benchmark(config, progress=progress).metrics
    assert late == ["measuring", "exact search"]
    assert sum(stage["seconds"] for stage in metrics["stages"]) < 3600


def test_exact_search_is_measured_against_nothing(workplace: Path) -> None:
    assert "against_exact" not in run(workplace)
    assert "against_exact" not in run(workplace, "index.factory=HNSW8", "search.against_exact=false")


def test_vectors_in_fp16_need_no_other_encoding_and_score_alike(workplace: Path) -> None:
    metrics = run(workplace, "model.vector_precision=fp16")
    assert made(metrics) == ["index", "search", "evaluate"]
    config, store = load_config(workplace / "c.yaml"), Store(workplace / "indexes")
    halves = config.model_copy(update={"model": config.model.model_copy(update={"vector_precision": "fp16"})})
    found = {}
    for name, each in (("fp32", config), ("fp16", halves)):
        benchmark = Benchmark(each, store)
        found[name] = np.load(benchmark.ensure("search").path("scores.npy"))
    assert np.abs(found["fp32"] - found["fp16"]).max() < 1e-3
    assert (found["fp32"] != found["fp16"]).any()


def test_a_damaged_count_is_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="the index holds 9 vectors, and the collection 10 passages"):
        vector_shards.check_counts(9, 4, 10, np.ones((1, 4), np.float32))
    with pytest.raises(InputError, match="vectors have 8 dimensions and the index 4"):
        vector_shards.check_counts(10, 4, 10, np.ones((1, 8), np.float32))


def test_an_approximate_index_is_compared_with_the_ranking_of_a_flat_one(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the same artifact in another role: made from another index, and not made again."""
    run(workplace)
    (flat,) = stored(workplace, "search")
    before = (flat / "manifest.json").read_bytes()
    for nprobe in (1, 4):
        run(workplace, "index.factory='IVF4,Flat'", f"search.parameters={{nprobe: {nprobe}}}")
    assert "recomputing it" not in caplog.text
    assert (flat / "manifest.json").read_bytes() == before
    assert len(stored(workplace, "search")) == 3
