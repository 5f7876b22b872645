"""What one query of a result costs: each kind is answered as it was scored, by a process of its own."""

import csv
import io
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparison.made import config
from embedding_server import MODEL
from forked import Fork, starting
from inside import measure_by
from workplaces import benchmarco, change_json, document, on_one_line, read_json, seal

from pipeline import run_benchmark, write_collection

FEW = {"source": "sample", "queries": 30, "corpus": 200}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with BM25's result and its config, and the record of its latency."""
    folder = tmp_path_factory.mktemp("latency")
    (folder / "words.yaml").write_text(json.dumps(config(folder, "words")), encoding="utf-8")
    run_benchmark(folder / "words.yaml")
    benchmarco("latency", folder / "words.yaml", "--queries", 30, "--concurrency", "1,2", "--threads", 1)
    return folder


@pytest.fixture
def quick_start(fork: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time queries in forked processes; those of the fixture `place` start as for users."""
    measure_by(monkeypatch, starting(fork))


def test_a_record_has_each_stage_by_clients_and_what_it_ran_on(place: Path) -> None:
    record = read_json(place / "results" / "words" / "latency.json")
    assert [(load["concurrency"], load["queries"]) for load in record["loads"]] == [(1, 30), (2, 30)]
    for load in record["loads"]:
        assert list(load["stages"]) == ["tokenize", "search", "whole"]
        for times in load["stages"].values():
            assert 0 < times["p50"] <= times["p95"] <= times["p99"]
            assert times["p50_low"] <= times["p50"] <= times["p50_high"]
    cold, memory = record["cold_start"], record["memory"]
    assert cold["seconds"] == pytest.approx(cold["start"] + cold["model"] + cold["index"], abs=0.01)
    assert memory["peak"] >= memory["resident"] > memory["index"] >= 0
    assert (record["threads"], record["agreement"], record["warm_up"][0]) == (1, 1.0, 10)
    assert record["kernels"]
    assert record["versions"]["benchmarco"]


def test_what_cannot_be_measured_is_refused_before_anything_is(place: Path, tmp_path: Path) -> None:
    other = config(tmp_path, "unknown")
    (tmp_path / "unknown.yaml").write_text(json.dumps(other), encoding="utf-8")
    assert "no result" in benchmarco("latency", tmp_path / "unknown.yaml", code=2).output
    assert (
        "--concurrency 0" in benchmarco("latency", place / "words.yaml", "--concurrency", "0", code=2).output
    )
    elsewhere = ["--set", f"cache={tmp_path / 'empty'}"]
    refused = benchmarco("latency", place / "results" / "words", *elsewhere, code=2).output
    assert "not in the cache" in refused
    changed = benchmarco("latency", place / "words.yaml", "--set", "model.k1=2", code=2).output
    assert "other settings" in changed


def test_the_record_belongs_to_its_result(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another run keeps it, a run with other settings takes it along, and that one was edited is said."""
    work = Path(shutil.copytree(place, tmp_path / "place"))
    settings = {"cache": str(work / "indexes"), "output": str(work / "results")}
    words, result = json.loads((work / "words.yaml").read_text()) | settings, work / "results" / "words"
    run_benchmark(words)
    assert document("compare", result)["results"][0]["latency"]["p95"] > 0
    run_benchmark(words | {"model": {"backend": "bm25", "k1": 2.0}})
    assert not (result / "latency.json").exists()
    assert "latency" not in document("compare", result)["results"][0]
    kept = result.with_name("words~1")
    assert document("compare", kept)["results"][0]["latency"]["p95"] > 0
    sums = (kept / "checksums.json").read_bytes()
    change_json(kept / "latency.json", memory__resident=1.0)
    (kept / "checksums.json").write_bytes(sums)
    benchmarco("compare", kept)
    assert "latency.json changed" in caplog.text


@pytest.mark.usefixtures("quick_start")
def test_a_served_model_has_the_share_of_the_network(embedding_server: Any, tmp_path: Path) -> None:
    model = {"backend": "http", "url": embedding_server.url, "name": MODEL, "changed": "ignore"}
    run_benchmark(config(tmp_path, "served", model=model, data=FEW, search={"top_k": 20}))
    result = tmp_path / "results" / "served"
    refused = on_one_line(benchmarco("latency", result, code=2))
    assert "send texts to" in refused
    record = document("latency", result, "--set", f"model.url={embedding_server.url}")
    assert list(record["loads"][0]["stages"]) == ["encode", "search", "whole"]
    assert 0 < record["network"]["share"] <= 1
    assert record["network"]["round_trip"]["p50"] > 0


@pytest.mark.usefixtures("quick_start")
def test_a_server_is_measured_under_load_and_its_errors_are_counted(
    embedding_server: Any, tmp_path: Path
) -> None:
    model = {
        "backend": "http",
        "url": embedding_server.url,
        "name": MODEL,
        "changed": "ignore",
        "concurrency": 1,
    }
    run_benchmark(config(tmp_path, "served", model=model, data=FEW, search={"top_k": 20}))
    embedding_server.clear()
    honest, active, most, refused = embedding_server.embed, set[int](), [0], []

    def embed(texts: list[str]) -> Any:
        active.add(threading.get_ident())
        most.append(len(active))
        time.sleep(0.02)
        active.discard(threading.get_ident())
        return honest(texts)

    def overloaded(handler: Any) -> bool:
        if len(embedding_server.requests) % 10:
            return False
        refused.append(handler.body["input"])
        handler.send(422, {"error": "try later"})
        return True

    embedding_server.embed = embed
    embedding_server.faults = [None] * 11 + [overloaded] * 500  # the warm-up is answered
    command = ("latency", tmp_path / "results" / "served", "--set", f"model.url={embedding_server.url}")
    record = document(*command, "--concurrency", "1,4")
    assert [load["concurrency"] for load in record["loads"]] == [1, 4]
    assert [load["queries"] + load["errors"] for load in record["loads"]] == [30, 30]
    assert sum(load["errors"] for load in record["loads"]) == len(refused) > 0
    assert max(most) == 4  # whatever model.concurrency says
    embedding_server.faults = []
    assert "errors" in benchmarco(*command).output


@pytest.mark.usefixtures("quick_start")
def test_parts_that_are_joined_and_reranked_are_answered_as_they_were_scored(
    m3_folder: Path, reranker: Callable[[str], Path], tmp_path: Path
) -> None:
    parts = [
        {"model": {"name": str(m3_folder), "output": output, "backend": "flag"}}
        for output in ("dense", "sparse", "multivector")
    ]
    rerank = {"backend": "flag", "name": str(reranker("bert")), "depth": 20}
    settings = config(tmp_path, "all", data=FEW, rerank=rerank)
    settings["fuse"] = {"of": [*parts, {"model": settings.pop("model")}]}
    run_benchmark(settings)
    record = document("latency", tmp_path / "results" / "all", "--queries", 8)
    assert list(record["loads"][0]["stages"]) == ["tokenize", "encode", "search", "fuse", "rerank", "whole"]
    assert record["agreement"] >= 0.8  # near ties


@pytest.mark.usefixtures("quick_start")
def test_passages_that_a_query_ignores_are_left_out_before_they_are_reranked(tmp_path: Path) -> None:
    """ArguAna: each answer had the query's own passage first, which no ranking of the result has."""
    passages = {f"q{number}": f"word{number} and word{(number + 1) % 12} besides" for number in range(12)}
    judged = {query: {f"q{(number + 1) % 12}": 1} for number, query in enumerate(passages)}
    data = write_collection(tmp_path / "mine", passages, passages, judged) | {"ignored": "identical_ids"}
    settings = config(tmp_path, "own", data=data) | {"search": {"top_k": 4}}
    parts = [{"model": {"backend": "bm25", "k1": k1}} for k1 in (0.9, 2.0)]
    settings.pop("model")
    run_benchmark(settings | {"fuse": {"of": parts}, "evaluate": {"measures": ["recall@4"]}})
    assert document("latency", tmp_path / "results" / "own", "--queries", 12)["agreement"] == 1.0


@pytest.mark.usefixtures("quick_start")
def test_an_index_is_searched_as_deep_as_for_the_result(bge_folder: Path, tmp_path: Path) -> None:
    """A deeper search rescores more, so it finds others; one query has many passages that it ignores."""
    texts = {f"d{number}": f"{number} and {number % 7} words on {number**3}" for number in range(600)}
    judged = {f"q{number}": {f"d{number}": 1} for number in range(30)}
    judged["q0"] |= {f"d{number}": -1 for number in range(100, 400)}
    queries = {query: f"words {query}" for query in judged}
    data = write_collection(tmp_path / "mine", texts, queries, judged) | {"ignored": "negative_grades"}
    settings = config(tmp_path, "deep", data=data, model={"name": str(bge_folder), "device": "cpu"})
    settings |= {"index": {"factory": "PQ8x4,RFlat"}, "search": {"top_k": 4}}
    run_benchmark(settings | {"evaluate": {"measures": ["recall@4"]}})
    assert document("latency", tmp_path / "results" / "deep", "--queries", 30)["agreement"] == 1.0


def record_of(result: Path, p95: float, memory: float, cores: int = 4) -> None:
    """Give a result the record of a quiet machine, with other figures."""
    record = read_json(result / "latency.json")
    times = {"p50": p95 / 2, "p95": p95, "p99": 2 * p95, "p95_low": p95 - 1, "p95_high": p95 + 1}
    record["loads"][0]["stages"]["whole"] |= times
    record["memory"]["resident"], record["hardware"]["cores"] = memory, cores
    record["stability"]["noisy"] = ""
    (result / "latency.json").write_text(json.dumps(record), encoding="utf-8")
    seal(result)


@pytest.fixture(scope="module")
def three(place: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Results of three models: good and slow, fair and quick, and worse than that and not quicker."""
    folder = tmp_path_factory.mktemp("three")
    results = []
    for name, k1, p95, memory in (("good", 0.9, 40, 800), ("fair", 2.0, 10, 300), ("poor", 20.0, 12, 400)):
        settings = config(folder, name, model={"backend": "bm25", "k1": k1, "b": 0.4})
        run_benchmark(settings | {"cache": str(place / "indexes")})
        results.append(folder / "results" / name)
        shutil.copy(place / "results" / "words" / "latency.json", results[-1])
        key = read_json(results[-1] / "manifest.json")["recipes"]["evaluate"]["key"]
        change_json(results[-1] / "latency.json", key=key)
        record_of(results[-1], p95, memory)
    return results


def test_limits_choose_the_best_within_and_name_what_is_beyond(three: list[Path]) -> None:
    whole = document("compare", *three, "--limit", "p95 <= 0.02s", "--limit", "memory <= 500MB")
    within = whole["latency"]
    assert [each["latency"]["p95"] for each in whole["results"]] == [40, 10, 12]
    assert (within["best"], within["within"]) == ("fair", ["fair", "poor"])
    assert within["beyond"] == {"good": ["no: p95 40.0 ms", "no: memory 800.0 MB"]}
    assert within["front"] == ["good", "fair"]
    assert within["verdict"].startswith(
        "Within p95 <= 0.02 s and memory <= 500 MB: fair is better than poor in ndcg@10 by "
    )
    baseline = document("compare", *three, "--limit", "p95 <= 20ms", "--baseline", three[0])
    assert baseline["latency"]["verdict"].endswith("; not tested against poor")
    close = on_one_line(benchmarco("compare", *three, "--limit", "p95<=10.5ms"))
    assert "p95 of fair is uncertain, 9.0 to 11.0 ms (95%)" in close
    assert "Within p95 <= 1 ms: no result" in on_one_line(
        benchmarco("compare", *three, "--limit", "p95 <= 1ms")
    )
    assert document("compare", *three, "--limit", "index <= 1kB")["latency"]["within"] == []


@pytest.mark.parametrize(
    "limit", ["p95 <= 20", "p95 <= 20MB", "memory <= 3ms", "speed <= 3ms", "p95 > 3ms", "p95 <= 1.2.3ms"]
)
def test_a_limit_that_cannot_be_read_is_refused(three: list[Path], limit: str) -> None:
    assert "p95 <= 20ms" in on_one_line(benchmarco("compare", *three, "--limit", limit, code=2))


def test_tables_csv_and_the_page_have_latency_beside_quality(three: list[Path], tmp_path: Path) -> None:
    assert "p95 ms" in benchmarco("compare", *three).output
    rows = list(csv.DictReader(io.StringIO(benchmarco("compare", *three, "--format", "csv").output)))
    assert [float(row["latency_memory"]) for row in rows[:3]] == [8e8, 3e8, 4e8]
    benchmarco("compare", *three, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "What one query costs" in page
    assert "ndcg@10 against p95 ms" in page
    assert "the line joins the results" in page


def test_other_machines_and_noise_are_said(three: list[Path], tmp_path: Path) -> None:
    other = Path(shutil.copytree(three[0], tmp_path / "good"))
    record_of(other, 40, 800, cores=64)
    said = on_one_line(benchmarco("compare", other, three[1]))
    assert "latencies of good and fair were measured on different machines" in said
    record = read_json(other / "latency.json")
    change_json(other / "latency.json", stability=record["stability"] | {"noisy": "it was"})
    assert "latency of good was measured on a noisy machine" in on_one_line(
        benchmarco("compare", other, three[1])
    )
