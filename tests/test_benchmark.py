"""A whole benchmark on the sample collection: what is reused, what is made again, what is written."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from workplaces import config

from pipeline.api import run_benchmarks
from pipeline.comparison.side_by_side import compare
from pipeline.config import Config
from pipeline.core.errors import InputError
from pipeline.core.records import Ranking
from pipeline.report.page.render import render_page
from pipeline.results.folder import read_result
from pipeline.results.records import Used
from pipeline.results.tables import result_table
from pipeline.retrievers.ranking import open_ranking, save_ranking
from pipeline.run.benchmark import Benchmark, Session
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
pytestmark = pytest.mark.usefixtures("quick_conversion")


def run(folder: Path, *settings: str, fresh: bool = False) -> dict[str, Any]:
    return workplaces.run(folder, *settings, fresh=fresh).metrics


def remade(metrics: dict[str, Any]) -> list[str]:
    assert [stage["stage"] for stage in metrics["stages"]] == list(STAGES)
    return [stage["stage"] for stage in metrics["stages"] if not stage["reused"]]


def test_result_folder_holds_what_the_contract_says(finished: Path) -> None:
    folder = finished / "results" / "t"
    assert {path.name for path in folder.iterdir()} == {
        "metrics.json", "per_query.csv", "run.trec", "manifest.json"
    }  # fmt: skip
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert (metrics["name"], metrics["queries"], metrics["passages"]) == ("t", 114, 345)
    assert list(metrics["metrics"]) == ["ndcg@10", "map(rel=2)@50", "recall@20", "mrr@10", "precision@5"]
    for stage in metrics["stages"]:
        encoded = stage["stage"] in ("passages", "queries")
        assert ("encoding" in stage) == ("found" in stage) == encoded
        assert ("preparing_seconds" in stage) == (stage["stage"] == "passages")  # which converted the model
        assert set(stage) - {"encoding", "found", "preparing_seconds"} == {
            "stage", "key", "reused", "seconds", "items", "items_per_second", "peak_rss_mb", "bytes",
            "made_at", "hardware", "threads", "working_seconds",
        }  # fmt: skip
        assert stage["items_per_second"] == pytest.approx(stage["items"] / stage["working_seconds"], rel=0.01)
        assert stage["working_seconds"] <= stage["seconds"] + 0.001
        assert stage["items"] in (114, 345)
        artifact = finished / "indexes" / stage["stage"] / stage["key"]
        files = [path for path in artifact.iterdir() if path.name != "manifest.json"]
        assert stage["bytes"] == sum(path.stat().st_size for path in files)
        assert stage["peak_rss_mb"] > 0
        assert not encoded or stage["encoding"]["texts"] == stage["items"]
    lines = [line.split(" ") for line in (folder / "run.trec").read_text(encoding="utf-8").splitlines()]
    assert [(zero, int(rank), tag) for _, zero, _, rank, _, tag in lines] == [
        ("Q0", rank, "benchmarco") for _ in range(114) for rank in range(1, 51)
    ]
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert Config.model_validate_json(json.dumps(manifest["config"])).name == "t"
    assert manifest["recipes"]["passages"]["model"]["pooling"] == "cls"
    assert {"python", "faiss-cpu", "numpy"} <= set(manifest["versions"])
    assert manifest["hardware"]["cores"] >= 1


def test_a_result_of_other_settings_is_kept_beside_the_new_one(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def files(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (workplace / "results" / name).iterdir()}

    first = files("t")
    run(workplace, "model.batch_size=7")
    assert [path.name for path in (workplace / "results").iterdir()] == ["t"]  # it shapes nothing
    second = files("t")
    assert first["run.trec"] == second["run.trec"]
    run(workplace, "evaluate.measures=[mrr@5]")
    third = files("t")
    assert files("t~1") == second
    assert "it is kept as" in caplog.text
    run(workplace, "evaluate.measures=[mrr@7]")
    assert (files("t~1"), files("t~2")) == (second, third)
    assert read_result(workplace / "results" / "t~1").measures[0] == "ndcg@10"


ALL, FROM = list(STAGES), {stage: list(STAGES[STAGES.index(stage) :]) for stage in STAGES}


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("model.query_instruction='find: '", ["queries", "search", "evaluate"]),
        ("model.normalize=false", ["index", "search", "evaluate"]),
        ("search.top_k=60", ["search", "evaluate"]),
        ("evaluate.measures=[ndcg@5]", ["evaluate"]),
        ("data.queries=20", ["data", "queries", "search", "evaluate"]),
        ("data.corpus=330", ["data", "passages", "index", "search", "evaluate"]),
        ("name=other", []),
        ("evaluate.measures=[nDCG@10, 'AP(rel=2)@50', R@20, RR@10, P@5]", []),
        ("model.precision=fp16", []),
        ("model.shard_rows=7", []),
        ("model.pooling=cls", []),
    ],
)
def test_a_setting_makes_again_what_it_shapes_and_nothing_else(
    workplace: Path, setting: str, expected: list[str]
) -> None:
    assert remade(run(workplace, setting)) == expected
    assert remade(run(workplace, setting)) == []
    assert remade(run(workplace)) == []


PRECOMPUTED = ("model.backend=precomputed", "model.passages=p.npy", "model.queries=q.npy")


def other_sign(content: bytes) -> bytes:
    """The last float of a file, negated."""
    return content[:-1] + bytes([content[-1] ^ 0x80])


@pytest.mark.parametrize(
    ("name", "change", "settings"),
    [
        ("data/corpus.jsonl", lambda content: content.replace(b" the ", b" thy "), PRECOMPUTED),
        ("data/queries.jsonl", lambda content: content.replace(b"how ", b"why "), PRECOMPUTED),
        ("data/qrels/test.tsv", lambda content: content.replace(b"\t1\n", b"\t2\n"), PRECOMPUTED),
        ("p.npy", other_sign, PRECOMPUTED),
        ("q.npy", other_sign, PRECOMPUTED),
        ("bge-small-en-v1.5/model.safetensors", other_sign, ["model.pooling=mean"]),
    ],
)
def test_a_file_that_changes_under_a_run_is_refused_and_nothing_of_it_kept(
    workplace: Path, name: str, change: Callable[[bytes], bytes], settings: Sequence[str]
) -> None:
    """As one does that somebody edits, or trains, after a run has hashed it and before it is read."""
    for vectors, rows in (("p", 345), ("q", 114)):
        drawn = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        np.save(workplace / f"{vectors}.npy", drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    settings = [*settings, f"cache={workplace}/empty"]
    benchmark = Benchmark(config(workplace, "name=u", *settings), Store(workplace / "empty"))
    benchmark.check()
    before = (workplace / name).read_bytes()
    (workplace / name).write_bytes(change(before))
    with pytest.raises(InputError, match="changed while the run was reading it"):
        benchmark.run()
    read = "queries" if name == "q.npy" else "passages"
    assert not list((workplace / "empty").glob(f"{read}/*/rows-*"))
    assert not list((workplace / "empty").glob("openvino/*/*.sha256"))
    (workplace / name).write_bytes(before)
    assert {read, "search", "evaluate"} <= set(remade(run(workplace, "name=u", *settings)))


def test_fresh_makes_everything_again_with_the_same_bytes(workplace: Path) -> None:
    before = {path.name: path.read_bytes() for path in (workplace / "results/t").glob("[pr]*")}
    assert remade(run(workplace, fresh=True)) == ALL
    assert {path.name: path.read_bytes() for path in (workplace / "results/t").glob("[pr]*")} == before


def test_plan_names_keys_and_computes_nothing(workplace: Path) -> None:
    shutil.rmtree(workplace / "indexes")
    benchmark = Benchmark(config(workplace), Store(workplace / "indexes"))
    plan = benchmark.plan()
    assert [row["stage"] for row in plan] == ALL
    assert not any(row["exists"] for row in plan)
    assert not (workplace / "indexes").exists()
    metrics = run(workplace)
    assert [row["key"] for row in plan] == [stage["key"] for stage in metrics["stages"]]
    assert all(row["exists"] for row in benchmark.plan())


def test_scores_are_made_again_of_other_hits_under_the_same_key(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As an index that other threads or a GPU have built may find them."""
    before = run(workplace)["metrics"]
    benchmark = Benchmark(config(workplace), Store(workplace / "indexes"))
    found = open_ranking(benchmark.ensure("search"))
    other = Ranking(np.roll(found.passages, 1, axis=1), np.array(found.scores))

    def search(draft: Draft) -> dict[str, Any]:
        return save_ranking(draft, benchmark.collection, other)

    benchmark.store.make(benchmark.recipe("search"), search, fresh=True)
    metrics = run(workplace)
    assert remade(metrics) == ["evaluate"]
    assert metrics["metrics"]["mrr@10"] != before["mrr@10"]
    assert "evaluate: made from another version of search" in caplog.text
    assert remade(run(workplace)) == []


def test_fresh_checks_what_a_finished_search_would_not(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise InputError("no such index")

    monkeypatch.setattr("pipeline.search.faiss_index.check_index", refuse)
    same, store = config(workplace), Store(workplace / "indexes")
    Benchmark(same, store).check()
    with pytest.raises(InputError, match="no such index"):
        Benchmark(same, store, Session(fresh=True)).check()


def test_a_sweep_with_too_large_an_index_is_refused_before_anything_is_encoded(
    workplace: Path,
) -> None:
    shutil.rmtree(workplace / "indexes")
    settings = (["name=one"], ["name=two", "index.factory='IVF400,Flat'"])
    configs = [config(workplace, *each) for each in settings]
    with pytest.raises(InputError, match=r"two: .*'IVF400,Flat' is trained on 400 vectors or more.* has 345"):
        run_benchmarks(configs)
    assert [path.name for path in (workplace / "indexes").iterdir() if path.name[0] != "."] == ["data"]
    with pytest.raises(InputError, match="a shard has 115"):
        run(workplace, "index.factory='IVF200,Flat'", "index.shards=3")
    with pytest.raises(InputError, match=r"index\.train_rows is 39"):
        run(workplace, "index.factory='IVF40,Flat'", "index.train_rows=39")
    assert not (workplace / "indexes" / "passages").exists()


def test_what_is_guessed_of_a_model_is_said_under_the_measures(workplace: Path) -> None:
    folder = workplace / "unheard-of"
    shutil.copytree(workplace / "bge-small-en-v1.5", folder)
    shutil.rmtree(folder / "1_Pooling")
    run(workplace, f"model.name={folder}", "data.queries=20")
    notes = result_table(read_result(workplace / "results" / "t").record).notes
    said = "unheard-of: using CLS pooling and no instruction (guessed); check the model card, then set model."
    assert [note for note in notes if note.startswith(said)]


def test_what_a_model_uses_is_logged_written_and_shown(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = workplace / "bge-small-en-v1.5"
    with caplog.at_level(logging.INFO):
        run(workplace)
    result = workplace / "results" / "t"
    said = "backend openvino (config), pooling cls (model), query instruction 'Represent this"
    assert f"model {folder}: {said}" in caplog.text
    assert "(family), tokens of a query 512 (default)" in caplog.text
    assert "guessed" not in caplog.text
    (model,) = read_result(result).manifest.models
    assert model.settings["pooling"] == Used(value="cls", source="model")
    page = render_page(compare([result]))
    assert "<dt>pooling</dt><dd>cls (model)</dd>" in page
    assert "<dt>passage instruction</dt><dd>none (family)</dd>" in page

    moved = folder.rename(workplace / "unheard-of")
    shutil.rmtree(moved / "1_Pooling")
    changed = config(workplace, f"model.name={moved}")
    with caplog.at_level(logging.WARNING):
        Benchmark(changed, Store(workplace / "indexes")).report_models()
    assert f"model {moved}: using CLS pooling and no instruction (guessed); check" in caplog.text


def test_a_sweep_that_is_searched_already_reads_no_collection(workplace: Path) -> None:
    configs = [config(workplace, f"name={name}") for name in ("one", "two")]
    shutil.rmtree(workplace / "indexes" / "data")
    assert [outcome.error for outcome in run_benchmarks(configs)] == [None, None]
    assert not (workplace / "indexes" / "data").exists()
