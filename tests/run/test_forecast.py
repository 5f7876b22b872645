"""Plans: what is said of a run before it is made, and whether the run then does so."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from data.hub_client import client_of
from hub_server import HubServer
from huggingface_hub import constants
from inside import be_offline, pretend
from layouts import Plain, beir_mteb
from workplaces import benchmarco, document

from pipeline import load_config, run_benchmark
from pipeline.api import forecast
from pipeline.studies.collection import describe_data


@pytest.fixture
def config(tmp_path: Path, bge_folder: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"name: c\ndata: {{source: sample, corpus: 320}}\ncache: {tmp_path}/i\noutput: {tmp_path}/out\n"
        f"model: {{backend: flag, name: {bge_folder}}}\n",
        encoding="utf-8",
    )
    return path


def test_what_is_cached_and_what_the_rest_takes(config: Path) -> None:
    (first,) = forecast([load_config(config)])
    assert (first.passages, first.estimate) == (None, None)
    assert not any(stage["exists"] for stage in first.stages)
    shown = benchmarco("plan", config).stdout.replace("\n", " ")
    assert "--passages N estimates time" in shown
    assert not (config.parent / "i").exists()
    run_benchmark(load_config(config))
    (again,) = forecast([load_config(config)])
    assert all(stage["exists"] for stage in again.stages)
    assert again.estimate is None

    whole = ["data.corpus=null"]
    benchmarco("data", config, "--set", *whole)
    (planned,) = forecast([load_config(config, whole)])
    assert planned.passages == 345
    assert planned.estimate
    assert list(planned.estimate.stages) == ["passages", "index", "search", "evaluate"]  # all but queries
    assert planned.estimate.unknown == []
    (other,) = forecast([load_config(config, [*whole, "model.passage_max_length=7"])])
    assert other.estimate
    assert "passages" in other.estimate.unknown


def test_what_collections_share_is_counted_once(config: Path) -> None:
    listed = "data={collections: {a: {source: sample}, b: {source: sample, queries: 5}}}"
    benchmarco("data", config, "--set", listed)
    first, second = document("plan", config, "--set", listed, "--probe")
    assert (first["name"], first["passages"]) == ("c/a", 345)
    assert (second["name"], second["passages"], second["queries"]) == ("c/b", 345, 5)
    assert second["estimate"]["unknown"] == []
    table = benchmarco("plan", config, "--set", listed).stdout
    assert "c/b" in table
    assert "345" in table


def test_a_suite_that_is_not_here_is_counted_by_its_list(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_offline(monkeypatch)
    plans = forecast([load_config(config, ["data={suite: msmarco}"])])
    assert [plan.passages for plan in plans] == [8841823] * 3
    assert all(plan.estimate and plan.estimate.total.disk_bytes for plan in plans)
    assert all("not whole on this machine" in plan.unknown for plan in plans)
    limited = forecast([load_config(config, ["data={suite: msmarco, corpus: 1000}"])])
    assert [plan.passages for plan in limited] == [1000] * 3


class Unwell(BaseHTTPRequestHandler):
    """A hub that has an answer for nothing, and remembers who asked."""

    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


def test_a_hub_that_cannot_be_reached_is_asked_once_for_all(config: Path, tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Unwell) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        with client_of(f"http://127.0.0.1:{server.server_address[1]}", tmp_path / "hub"):
            forecast([load_config(config)])
            assert Unwell.asked == []  # nothing of it is on the hub
            plans = forecast([load_config(config, ["data={suite: air-bench}", "model={backend: bm25}"])])
            assert not constants.HF_HUB_OFFLINE
        server.shutdown()
    assert Unwell.asked == ["/"]
    assert len(plans) == 58
    assert all("the hub cannot be reached" in plan.unknown for plan in plans)


def test_what_must_be_fetched_is_said_and_not_fetched(
    hub_server: HubServer, config: Path, tmp_path: Path
) -> None:
    plain = Plain([("p1", "", "about owls"), ("p2", "", "about rain")], [("q1", "birds")], [("q1", "p1", 1)])
    beir_mteb(tmp_path / "repo", plain)
    hub_server.publish("dataset", "someone/owls", tmp_path / "repo")
    loaded = load_config(config, ["data={source: beir, path: someone/owls}"])
    with client_of(hub_server.url, tmp_path / "hub"):
        (before,) = [plan.document() for plan in forecast([loaded])]
        assert hub_server.downloads() == ["README.md"]
        describe_data([loaded])
        (after,) = [plan.document() for plan in forecast([loaded])]
    sizes = [path.stat().st_size for path in (tmp_path / "repo").rglob("*.parquet")]
    assert before["fetch"] == {
        "files": 4, "bytes": sum(sizes), "repositories": ["someone/owls"], "unknown": None
    }  # fmt: skip
    assert (before["passages"], before["estimate"]) == (None, None)
    assert len(before["stages"]) == 6
    assert after["fetch"]["files"] == 0
    assert after["passages"] == 2
    assert len(hub_server.downloads()) == len(set(hub_server.downloads())) == 5


def test_a_run_says_what_it_computes_before_it_does(
    config: Path, reranker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pipeline")
    scorer = f"rerank={{backend: flag, name: {reranker('bert')}, depth: 5}}"
    words = ["model={backend: bm25}", "data.queries=30", scorer]

    def said(*settings: str, **given: Any) -> str:
        caplog.clear()
        run_benchmark(load_config(config, [*words, *settings]), **given)
        (line,) = [each for each in caplog.messages if each.startswith("c: ")]
        return line

    assert said() == "c: computes passages, queries, index, search, rerank, evaluate."
    assert said() == "c: everything is in the cache"
    assert said("evaluate.measures=[mrr@5]") == "c: computes evaluate."
    assert "c: computes passages, queries," in said(fresh=True)


def test_a_precision_that_the_processor_emulates_is_said(
    config: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, flags={"sse2", "avx_vnni"})
    few = ["data.queries=2", "data.corpus=10"]
    run_benchmark(load_config(config, [*few, "model.precision=bf16"]))
    (line,) = [each for each in caplog.messages if "slower" in each]
    lacking = "avx512_bf16 or amx_bf16"
    assert (
        f"bf16 is slower than fp32 on this processor, which lacks {lacking} (faster than fp32: int16" in line
    )
    caplog.clear()
    run_benchmark(load_config(config, few))
    assert not [each for each in caplog.messages if "slower" in each]
