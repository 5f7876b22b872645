"""Plans: what is said of a run before it is made, and whether the run then does so."""

import re
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
from pipeline.api import describe_data, forecast
from pipeline.run import Benchmark
from pipeline.storage import Store


@pytest.fixture
def config(tmp_path: Path, bge_folder: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"name: c\ndata: {{source: sample, corpus: 320}}\ncache: {tmp_path}/i\noutput: {tmp_path}/out\n"
        f"model: {{backend: flag, name: {bge_folder}}}\n",
        encoding="utf-8",
    )
    return path


def test_the_time_is_that_of_the_rate_shown_here(config: Path) -> None:
    (first,) = forecast([load_config(config)])
    assert (first.passages, first.encode.count, first.encode.seconds) == (None, None, None)
    assert not any(stage["exists"] for stage in first.stages)
    shown = benchmarco("plan", config).stdout.replace("\n", " ")
    assert "To be encoded: not known before the collection is read" in shown
    assert not (config.parent / "i").exists()
    result = run_benchmark(load_config(config))
    rate = next(row.items_per_second for row in result.record.stages if row.stage == "passages")
    (again,) = forecast([load_config(config)])
    assert (again.encode.count, again.encode.seconds) == (0, 0)
    assert all(stage["exists"] for stage in again.stages)

    whole = load_config(config, ["data.corpus=null"])
    benchmarco("data", config, "--set", "data.corpus=null")
    shown = benchmarco("plan", config, "--set", "data.corpus=null").stdout
    (planned,) = forecast([whole])
    assert planned.passages == 345
    kept = result.record.passages
    assert 300 < kept < 345
    assert (planned.encode.count, planned.encode.per_second) == (345 - kept, rate)
    assert planned.encode.seconds == pytest.approx((345 - kept) / rate)
    assert re.search(rf"To be encoded: {345 - kept} passages?, in about 1 s", shown.replace("\n", " "))

    cut = load_config(config, ["data.corpus=null", "data.chunks={tokens: 300}"])
    (uncut,) = forecast([cut])
    assert (uncut.passages, uncut.encode.count) == (345, None)
    Benchmark(cut, Store(Path(cut.cache))).ensure("chunks")
    (counted_again,) = forecast([cut])
    assert counted_again.encode.count == 345 - kept  # no passage is longer than a chunk

    (other,) = forecast([load_config(config, ["data.corpus=null", "model.passage_max_length=7"])])
    assert (other.encode.count, other.encode.per_second) == (345, None)


def test_what_collections_share_is_counted_once(config: Path) -> None:
    listed = "data={collections: {a: {source: sample}, b: {source: sample, queries: 5}}}"
    benchmarco("data", config, "--set", listed)
    first, second = document("plan", config, "--set", listed)
    assert (first["name"], first["passages"], first["encode"]) == ("c/a", 345, 345)
    assert (second["name"], second["passages"], second["encode"]) == ("c/b", 345, 0)
    table = benchmarco("plan", config, "--set", listed).stdout
    assert "c/b" in table
    assert "345" in table
    words = ["model={backend: bm25}", listed]
    assert [each.encode.count for each in forecast([load_config(config, words)])] == [0, 0]


def test_a_suite_that_is_not_here_is_counted_by_its_list(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_offline(monkeypatch)
    plans = forecast([load_config(config, ["data={suite: msmarco}"])])
    assert [plan.encode.count for plan in plans] == [8841823] * 3
    assert all("not whole on this machine" in plan.unknown for plan in plans)
    limited = forecast([load_config(config, ["data={suite: msmarco, corpus: 1000}"])])
    assert [plan.passages for plan in limited] == [1000] * 3
    words = forecast([load_config(config, ["data={suite: msmarco}", "model={backend: bm25}"])])
    assert [plan.encode.count for plan in words] == [0, 0, 0]


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
    assert (before["passages"], before["encode"]) == (None, None)
    assert len(before["stages"]) == 6
    assert after["fetch"]["files"] == 0
    assert (after["passages"], after["encode"]) == (2, 2)
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

    first = said()
    assert first.startswith(
        "c: computes passages, queries, index, search, rerank, evaluate. To be reranked: "
    )
    assert first.endswith("To be reranked: 150 pairs.")
    assert said() == "c: everything is in the cache"
    assert said("evaluate.measures=[mrr@5]") == "c: in the cache but for evaluate"
    again = said("data.queries=31")
    assert re.search(r"155 pairs, in about [\d.]+ \w+ at ", again)
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
