"""An index in shards: each is built over its rows, and merged hits keep the contract's order."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.api import run_benchmark
from pipeline.config import IndexConfig, SearchConfig
from pipeline.config.files import load_config
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Embeddings, Float32, Ranking
from pipeline.engines import jobs
from pipeline.search import exact, faiss_index, searchers
from pipeline.storage import vector_shards

ROWS, K = 101, 7


class Made:
    """Vectors of passages and queries, and the passages' ids."""

    def __init__(self, passages: Float32, queries: Float32) -> None:
        self.queries, self.vectors = queries, passages
        cuts = range(0, len(passages), 20)
        self.passages = Embeddings(tuple(passages[start : start + 20] for start in cuts))
        names = np.random.default_rng(1).permutation(len(passages)).astype(str)
        self.ids = pa.chunked_array([pa.array(names)])

    def search(self, config: IndexConfig, search: SearchConfig) -> Ranking:
        """Build each shard, search each, and merge, the last first."""
        parts, best = vector_shards.split_evenly(len(self.vectors), config.shards), None
        for start, stop in reversed(parts):
            bar = Counting()
            rows = Embeddings((vector_shards.read_rows(self.passages, start, stop),))
            index = jobs.build_index_bytes(config, rows, None, bar)
            assert bar.total == stop - start
            part = index, self.ids.slice(start, stop - start)
            found = jobs.search_index(self.queries, config, search, part, None, bar)
            best = jobs.merge(best, found, start, search.top_k, self.ids)
        assert best is not None
        return best


class Counting:
    """A bar that counts."""

    total = 0

    def update(self, n: int = 1) -> None:
        self.total += n


@pytest.mark.parametrize(
    ("metric", "shards"),
    [("inner_product", 1), ("inner_product", 3), ("inner_product", ROWS), ("cosine", 3), ("l2", 3)],
)
def test_shards_of_a_flat_index_find_what_one_finds(metric: Any, shards: int) -> None:
    """Of few distinct vectors, so that most scores tie, across shards and across the last rank."""
    draw = np.random.default_rng(0)
    made = Made(draw.integers(1, 3, (ROWS, 3)).astype(np.float32), np.eye(3, dtype=np.float32))
    found = made.search(IndexConfig(metric=metric, shards=shards), SearchConfig(top_k=K))
    with silent("", None, "") as bar:
        whole = exact.exact_search(Embeddings((made.vectors,)), made.queries, K, made.ids, metric, bar)
    assert found.passages.tolist() == whole.passages.tolist()
    assert found.scores.tolist() == whole.scores.tolist()
    assert (whole.scores[:, K - 1] == whole.scores[:, 0]).any()


@pytest.mark.parametrize(
    ("factory", "parameters"), [("IVF2,Flat", {"nprobe": 1}), ("HNSW4", {"efSearch": 8}), ("SQ8", {})]
)
def test_each_shard_is_an_index_of_its_own_rows(factory: str, parameters: dict[str, int | float]) -> None:
    draw = np.random.default_rng(0)
    made = Made(draw.random((ROWS, 8), np.float32), draw.random((5, 8), np.float32))
    config = IndexConfig(factory=factory, shards=3, train_rows=30)
    found = made.search(config, SearchConfig(top_k=K, parameters=parameters))
    names, hits = made.ids.to_pylist(), [[] for _ in made.queries]
    for start, stop in vector_shards.split_evenly(ROWS, 3):
        rows = Embeddings((made.vectors[start:stop],))
        with silent("", None, "") as bar:
            index = faiss_index.build_index(rows, factory, "inner_product", bar, train_rows=30)
        faiss_index.set_search_parameters(index, factory, parameters)
        scores, numbers = index.search(made.queries, K)
        for query, (some, which) in enumerate(zip(scores, numbers, strict=True)):
            hits[query] += [
                (s, names[start + n], start + n) for s, n in zip(some, which, strict=True) if n >= 0
            ]
    for query, listed in enumerate(hits):
        best = sorted(listed, reverse=True)[:K]
        assert found.passages[query].tolist() == [row for _, _, row in best]
        assert found.scores[query].tolist() == [score for score, _, _ in best]


def test_shards_asked_one_after_the_other_cost_the_sum() -> None:
    first = {
        "memory_mb": 1.5,
        "threads": 2,
        "queries_per_second": 100.0,
        "queries_per_second_one_thread": 50.0,
        "latency_ms": {"median": 1.0, "p95": 2.0, "p99": 3.0},
    }
    second = {**first, "memory_mb": 0.5, "threads": 1, "queries_per_second": 300.0}
    assert jobs.total_cost([first, second]) == {
        "memory_mb": 2.0,
        "threads": 1,
        "queries_per_second": 75.0,
        "queries_per_second_one_thread": 25.0,
        "latency_ms": {"median": 2.0, "p95": 4.0, "p99": 6.0},
    }


def run(folder: Path, *settings: str) -> dict[str, Any]:
    """One benchmark; what it finds goes to `results/t`."""
    given = [f"cache={folder}/indexes", f"output={folder}/results", "index.shards=3", *settings]
    return run_benchmark(load_config(folder / "c.yaml", given)).metrics


def manifest(folder: Path, stage: str) -> dict[str, Any]:
    """The one that is not of exact search."""
    every = [json.loads(path.read_text()) for path in (folder / "indexes" / stage).glob("*/manifest.json")]
    (found,) = (each for each in every if each["recipe"].get("shards") == 3 or "index" in each["facts"])
    return found


def test_a_run_keeps_the_shards_that_are_whole_and_measures_them_together(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searchers, "SECONDS", 0.01)
    metrics = run(workplace, "index.factory=HNSW8")
    built, asked = manifest(workplace, "index"), manifest(workplace, "search")
    assert sorted(built["files"]) == [f"index-{number}.faiss" for number in range(3)]
    assert built["facts"] == {"rows": 345, "dimension": 128}
    assert asked["facts"]["index"]["disk_bytes"] == sum(file["bytes"] for file in built["files"].values())
    assert metrics["index"].keys() >= {"memory_mb", "queries_per_second", "latency_ms", "build_seconds"}
    run_file = workplace / "results" / "t" / "run.trec"
    before = run_file.read_bytes()
    folder = workplace / "indexes" / "index" / built["key"]
    (folder / "index-1.faiss").unlink()
    shutil.rmtree(workplace / "indexes" / "search")
    kept = (folder / "index-2.faiss").stat().st_ino
    run(workplace, "index.factory=HNSW8")
    assert run_file.read_bytes() == before
    assert (folder / "index-2.faiss").stat().st_ino == kept
    assert manifest(workplace, "index")["made"]["engine"]["parts"] == {"local": 1}


@pytest.mark.parametrize("factory", ["HNSW8", "'IVF4,Flat'", "SQ8"])
def test_the_bytes_of_an_index_are_those_of_its_file(factory: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    made = Made(draw.random((ROWS, 8), np.float32), draw.random((5, 8), np.float32))
    config, bar = IndexConfig(factory=factory.strip("'"), train_rows=30), Counting()
    path = tmp_path / "index.faiss"
    faiss_index.write_index(jobs.build_index(config, made.passages, None, bar), path)
    stored = jobs.build_index_bytes(config, made.passages, None, bar)
    assert path.read_bytes() == stored.tobytes()
    for opened in (faiss_index.read_index(stored), faiss_index.read_index(np.memmap(path, np.uint8, "r"))):
        assert (faiss_index.index_to_bytes(opened) == stored).all()


@pytest.mark.parametrize("factory", ["HNSW8", "'IVF4,Flat'"])
def test_workers_build_and_search_the_shards_that_one_process_does(
    factory: str, workplace: Path, cluster: str
) -> None:
    settings = [f"index.factory={factory}", "search.against_exact=false"]
    run(workplace, *settings)
    run_file = workplace / "results" / "t" / "run.trec"
    before = run_file.read_bytes()
    for stage in ("index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    run(workplace, *settings, "engine.kind=ray", f"engine.address={cluster}", "engine.workers=2")
    assert run_file.read_bytes() == before
    for stage in ("index", "search"):
        (path,) = (workplace / "indexes" / stage).glob("*/manifest.json")
        engine = json.loads(path.read_text())["made"]["engine"]
        assert (engine["kind"], sum(engine["parts"].values())) == ("ray", 3)


def test_more_shards_than_passages_are_refused_before_any_is_encoded(workplace: Path) -> None:
    shutil.rmtree(workplace / "indexes" / "passages")
    with pytest.raises(InputError, match=r"index\.shards: 346, and the collection has 345 passages"):
        run(workplace, "index.shards=346")
    assert list((workplace / "indexes" / "passages").glob("*/rows-*")) == []
