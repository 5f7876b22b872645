"""A whole benchmark on the sample collection: what is reused, made again, written and timed."""

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import workplaces
from workplaces import config, read_json

from pipeline import InputError, compare
from pipeline.api import run_benchmarks
from pipeline.config import Config
from pipeline.core import Ranking
from pipeline.results import SettingRecord, read_result, result_table, stage_table
from pipeline.retrievers import open_ranking, save_ranking
from pipeline.run import Benchmark, Session
from pipeline.studies.page import render_page

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")


def run(folder: Path, *settings: str, fresh: bool = False) -> dict[str, Any]:
    return workplaces.run(folder, *settings, fresh=fresh).document


def remade(metrics: dict[str, Any]) -> list[str]:
    assert [stage["stage"] for stage in metrics["stages"]] == list(STAGES)
    return [stage["stage"] for stage in metrics["stages"] if not stage["reused"]]


def test_result_folder_holds_what_the_contract_says(finished: Path) -> None:
    folder = finished / "results" / "t"
    files = {"metrics.json", "per_query.csv", "run.trec", "manifest.json", "checksums.json"}
    assert {path.name for path in folder.iterdir()} == files
    metrics = read_json(folder / "metrics.json")
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
        assert stage["items"] in (114, 345)
        artifact = finished / "indexes" / stage["stage"] / stage["key"]
        sizes = [path.stat().st_size for path in artifact.iterdir() if path.name != "manifest.json"]
        assert stage["bytes"] == sum(sizes)
        assert not encoded or stage["encoding"]["texts"] == stage["items"]
    lines = [line.split(" ") for line in (folder / "run.trec").read_text(encoding="utf-8").splitlines()]
    assert [(zero, int(rank), tag) for _, zero, _, rank, _, tag in lines] == [
        ("Q0", rank, "benchmarco") for _ in range(114) for rank in range(1, 51)
    ]
    manifest = read_json(folder / "manifest.json")
    assert Config.model_validate(manifest["config"]).name == "t"
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


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("data/corpus.jsonl", "model={backend: bm25}"),
        ("data/qrels/test.tsv", "model={backend: bm25}"),
        ("bge-small-en-v1.5/vocab.txt", "model.pooling=mean"),
    ],
)
def test_a_file_that_changes_under_a_run_is_refused_and_nothing_of_it_kept(
    workplace: Path, name: str, model: str
) -> None:
    """As one does that somebody edits, or trains, after a run has hashed it and before it is read."""
    settings = ("name=u", f"cache={workplace}/empty", model)
    benchmark = Benchmark(config(workplace, *settings), Session())
    benchmark.check()
    before = (workplace / name).read_bytes()
    (workplace / name).write_bytes(before.replace(b"the", b"thy").replace(b"\t1\n", b"\t2\n"))
    with pytest.raises(InputError, match="changed while the run was reading it"):
        benchmark.ensure("search", "evaluate")
    assert not list((workplace / "empty").glob("passages/*/rows-*"))
    assert not list((workplace / "empty").glob("openvino/*/finished.jsonl"))
    (workplace / name).write_bytes(before)
    assert not all(row.reused for row in workplaces.run(workplace, *settings).record.stages)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_file_that_is_gone_when_it_is_read_is_bad_input(workplace: Path, name: str) -> None:
    settings = ("name=u", f"cache={workplace}/empty", "model={backend: bm25}")
    benchmark = Benchmark(config(workplace, *settings), Session())
    (workplace / "data" / name).unlink()
    with pytest.raises(InputError, match=f"data/{name}: cannot be read: No such file"):
        benchmark.ensure("search", "evaluate")


def test_scores_are_made_again_of_other_hits_under_the_same_key(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As an index that other threads or a GPU have built may find them."""
    before = run(workplace)["metrics"]
    benchmark = Benchmark(config(workplace), Session())
    found = open_ranking(benchmark.ensure("search"))
    other = Ranking(np.roll(found.passages, 1, axis=1), np.array(found.scores))

    benchmark.store.make(
        benchmark.recipes["search"],
        lambda draft: save_ranking(draft, benchmark.collection, other),
        fresh=True,
    )
    metrics = run(workplace)
    assert remade(metrics) == ["evaluate"]
    assert metrics["metrics"]["mrr@10"] != before["mrr@10"]
    assert "evaluate: made from another version of search" in caplog.text
    assert remade(run(workplace)) == []


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
    assert not (workplace / "indexes" / "passages").exists()


def test_what_a_model_uses_is_logged_written_and_shown(
    workplace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = workplace / "bge-small-en-v1.5"
    with caplog.at_level(logging.INFO):
        run(workplace)
    result = workplace / "results" / "t"
    said = "backend openvino (config), query instruction 'Represent this"
    assert f"model {folder}: {said}" in caplog.text
    assert "512 (default)" not in caplog.text
    assert "guessed" not in caplog.text
    (model,) = read_result(result).only_collection().manifest.models
    assert model.settings["pooling"] == SettingRecord(value="cls", source="model")
    page = render_page(compare([result]))
    assert re.search("pooling</span></th>.*<code>cls [(]model[)]</code>", page)
    assert re.search("passage instruction</span></th>.*<code>none [(]family[)]</code>", page)

    moved = folder.rename(workplace / "unheard-of")
    shutil.rmtree(moved / "1_Pooling")
    run(workplace, f"model.name={moved}", "data.queries=20")
    said = "using CLS pooling and no instruction (guessed); check the model card, then set model."
    assert f"model {moved}: {said}" in caplog.text
    notes = result_table(read_result(result).record).notes
    assert [note for note in notes if note.startswith(f"unheard-of: {said}")]


def test_converting_a_model_is_reported_apart_from_the_stage_that_needed_it(workplace: Path) -> None:
    first = read_result(workplace / "results" / "t").record
    seconds = first.stage("passages").preparing_seconds
    assert seconds
    said = f"passages: packing, converting or compiling took another {seconds:,.1f} s, once"
    assert said in str(stage_table(first).notes)
    for stage in ("passages", "index", "search", "evaluate"):
        shutil.rmtree(workplace / "indexes" / stage)
    again = workplaces.run(workplace).record.stage("passages")
    assert (again.reused, again.preparing_seconds) == (False, None)


WATCHED = """
import contextlib, json, sys
from pipeline.core import machine
from pipeline.search import exact
from pipeline import load_config, run_benchmark

imported = []
timed = machine.Meter.working

@contextlib.contextmanager
def working(meter, *modules):
    with timed(meter, *modules):
        before = set(sys.modules)
        yield
        imported.append(sorted(set(sys.modules) - before))

machine.Meter.working = working
exact.ENOUGH = 0  # as a large search does, this one takes the product that is worth preparing
run_benchmark(load_config(sys.argv[1], sys.argv[2:]))
print(json.dumps(imported))
"""


@pytest.mark.parametrize(
    "settings",
    [
        ["index.factory=Flat"],
        ["index.factory=IVF4,Flat", "index.shards=2"],
        ["index.factory=HNSW8", "search.memory_mb=null"],
        ["model={backend: bm25}"],
    ],
    ids=["exact", "shards", "approximate", "bm25"],
)
def test_nothing_is_imported_while_a_stage_is_timed(tmp_path: Path, settings: list[str]) -> None:
    for name, rows in (("p", 345), ("q", 114)):
        vectors = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (tmp_path / "c.yaml").write_text(
        "name: timed\ndata: {source: sample}\n"
        "model: {backend: precomputed, passages: p.npy, queries: q.npy}\n"
    )
    done = workplaces.process(tmp_path, "-c", WATCHED, "c.yaml", *settings)
    imported = json.loads(done.stdout.splitlines()[-1])
    assert len(imported) >= 4
    assert not any(imported), imported
