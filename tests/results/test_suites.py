"""Runs of suites: what is shared, what is written, and what one collection's failure leaves of the others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest
from workplaces import benchmarco, document, read_json, seal

from pipeline import InputError, compare, load_config, run_benchmark, run_benchmarks
from pipeline.config import Config
from pipeline.engines import EngineFactory
from pipeline.results import Result, read_result
from pipeline.run import Benchmark
from pipeline.storage import Store

NAMES = ("small", "middle", "large")
MEASURES = ["ndcg@10", "mrr@10"]


def write_config(folder: Path) -> Path:
    """The config of a suite of three collections beside it, that runs BM25."""
    listed = ", ".join(f"{name}: {{source: beir, path: {name}}}" for name in NAMES)
    (folder / "c.yaml").write_text(
        f"name: three\ndata: {{collections: {{{listed}}}}}\nmodel: {{backend: bm25}}\n"
        f"evaluate: {{measures: {json.dumps(MEASURES)}}}\ncache: {folder}/i\noutput: {folder}/out\n",
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def place(three_collections: Path, tmp_path: Path) -> Path:
    """A folder with copies of the collections and the config."""
    return write_config(Path(shutil.copytree(three_collections, tmp_path, dirs_exist_ok=True)))


@pytest.fixture(scope="module")
def shared(three_collections: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for tests that change nothing of the collections: they share a cache."""
    folder = tmp_path_factory.mktemp("suites")
    return write_config(Path(shutil.copytree(three_collections, folder, dirs_exist_ok=True)))


def config_in(place: Path, *changes: str) -> Config:
    return load_config(place / "c.yaml", changes)


def run(place: Path, *changes: str) -> Result:
    return run_benchmark(config_in(place, *changes))


def reused(result: Result) -> dict[str, set[str]]:
    """The stages whose artifacts were in the cache, by collection."""
    rows = {each.name: each.record.stages for each in result.collections}
    return {name: {row.stage for row in stages if row.reused} for name, stages in rows.items()}


def test_a_macro_mean_is_the_mean_of_the_single_runs(shared: Path) -> None:
    result = run(shared)
    single = {}
    for name in NAMES:
        data = f"data={{source: beir, path: {name}}}"
        single[name] = run_benchmark(config_in(shared, f"name=alone-{name}", data)).record
    for measure in MEASURES:
        means = [single[name].metrics[measure] for name in NAMES]
        assert result.metrics[measure] == pytest.approx(np.mean(means), abs=1e-12)
        low, high = result.document["intervals"][measure]
        assert low < np.mean(means) < high
    for name, each in zip(NAMES, result.collections, strict=True):
        files = {path.name for path in (result.folder / name).iterdir()}
        assert files == {"metrics.json", "per_query.csv", "run.trec", "manifest.json", "checksums.json"}
        assert (each.name, each.record.metrics) == (name, single[name].metrics)
    written = read_json(result.folder / "suite.json")
    assert written == result.document
    assert (written["collections"], written["queries"]) == (list(NAMES), 105)
    assert [each.name for each in read_result(result.folder).collections] == list(NAMES)


def test_main_measures_and_groups_have_means_of_their_own(shared: Path) -> None:
    listed = [f"  {name}: {{data: {{source: beir, path: {name}}}, group: two}}\n" for name in NAMES[:2]]
    listed.append("  large: {data: {source: beir, path: large}, main_measure: R@5}\n")
    text = f"main_measure: mrr@10\ncollections:\n{''.join(listed)}"
    (shared / "suite.yaml").write_text(text, encoding="utf-8")
    result = run(shared, "data={suite: ./suite.yaml}", "name=main")
    main = dict.fromkeys(NAMES[:2], "mrr@10") | {"large": "recall@5"}
    assert result.document["main_measures"] == main
    assert list(result.metrics) == [*MEASURES, "main measures"]
    for measure, of_each in (("mrr@10", dict.fromkeys(NAMES, "mrr@10")), ("main measures", main)):
        means = [each.record.metrics[of_each[each.name]] for each in result.collections]
        mean = (sum(means[:2]) / 2 + means[2]) / 2  # a group counts as one collection
        assert result.metrics[measure] == pytest.approx(mean, abs=1e-12)
    (table,) = result.tables()
    assert table.columns[-1].name == "main measures"
    assert "main measures: mrr@10 of small, middle; recall@5 of large." in table.notes
    made = compare([result.folder, result.folder], "main")
    assert (made.measure, made.results[0].mean) == ("main measures", pytest.approx(mean))
    assert list(made.results[0].by_collection.values()) == pytest.approx(means)
    assert made.notes[0].startswith("main measures: mrr@10 of small")
    said = document("gate", result.folder, "--baseline", result.folder, "--measure", "main measures")
    assert said["measures"][0]["measure"] == "main measures"
    page = shared / "page.html"
    benchmarco("report", result.folder, "--html", page)
    assert "main measures" in page.read_text(encoding="utf-8")


def missing(place: Path) -> None:
    shutil.rmtree(place / "middle")


def broken(place: Path) -> None:
    with open(place / "middle" / "corpus.jsonl", "a", encoding="utf-8") as file:
        file.write("{not JSON\n")


@pytest.mark.parametrize("damage", [missing, broken])
def test_a_collection_that_cannot_be_read_is_left_out_and_made_by_the_next_run(
    place: Path, three_collections: Path, damage: Callable[[Path], None]
) -> None:
    damage(place)
    said = benchmarco("run", place / "c.yaml", code=2)
    assert "middle" in said.stderr
    assert "No macro mean: 1 of 3 collections failed." in " ".join(said.stdout.split())
    assert "let people judge" not in said.stdout
    saved = read_result(place / "out/three")
    assert [each.name for each in saved.collections] == ["small", "large"]
    assert (list(saved.suite.failed), saved.metrics) == (["middle"], {})
    exported = benchmarco("export", place / "out/three", "--mteb", place / "mteb", code=2)
    assert "is not complete: middle failed" in exported.stderr
    assert not (place / "mteb").exists()
    shutil.rmtree(place / "middle", ignore_errors=True)
    shutil.copytree(three_collections / "middle", place / "middle")
    again = run(place)
    assert again.document["failed"] == {}
    assert ["search" in reused(again)[name] for name in NAMES] == [True, False, True]


def test_what_cannot_be_run_is_refused_and_writes_nothing(place: Path) -> None:
    shutil.copytree(place / "small", place / "copy")
    again = "data.collections.again={source: beir, path: copy}"
    said = benchmarco("run", place / "c.yaml", "--set", again, code=2)
    assert "three: the collections 'small' and 'again' are the same data" in said.stderr
    for name in NAMES:
        shutil.rmtree(place / name)
    said = benchmarco("run", place / "c.yaml", code=2)
    assert "three, collection small" in said.stderr
    assert not (place / "out").exists()


def test_all_are_checked_first_and_an_interrupted_suite_goes_on_where_it_stopped(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[tuple[str, str]] = []
    check = Benchmark.check

    def noted(self: Benchmark) -> Any:
        order.append(("check", self.config.name))
        return check(self)

    def interrupted(benchmark: Benchmark) -> None:
        order.append(("run", benchmark.config.name))
        if benchmark.config.name == "middle":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Benchmark, "check", noted)
        inside.watch(patch, "run a benchmark", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(place)
    assert order[:3] == [("check", name) for name in NAMES]
    assert [name for what, name in order if what == "run"] == ["small", "middle"]
    assert (place / "out/three/small/manifest.json").is_file()
    assert not (place / "out/three/suite.json").exists()
    with caplog.at_level("INFO"):
        assert "small/search" in run(place).reused
    assert "three: collection 2 of 3, middle" in caplog.text


def test_models_are_loaded_once_and_a_corpus_that_is_used_twice_is_encoded_once(
    place: Path, bge_folder: Path, reranker: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[EngineFactory] = []
    whole = EngineFactory.__call__

    def noted(self: EngineFactory, store: Store) -> Any:
        opened.append(self)
        return whole(self, store)

    monkeypatch.setattr(EngineFactory, "__call__", noted)
    shutil.copytree(place / "small", place / "twin")
    queries = (place / "twin/queries.jsonl").read_text(encoding="utf-8").replace('"text": "', '"text": "and ')
    (place / "twin/queries.jsonl").write_text(queries, encoding="utf-8")
    settings = (
        f"model={{backend: openvino, name: {bge_folder}}}",
        f"rerank={{backend: openvino, name: {reranker('bert')}, depth: 3}}",
    )
    twin = "data={collections: {small: {source: beir, path: small}, twin: {source: beir, path: twin}}}"
    result = run(place, *settings, twin)
    assert len(opened) == len(set(opened)) == 2
    assert reused(result)["small"] == set()
    assert "passages" in reused(result)["twin"]
    assert "queries" not in reused(result)["twin"]
    assert all(each.record.stage("rerank").seconds is not None for each in result.collections)
    alone = run_benchmark(config_in(place, "data={source: beir, path: small}", "name=alone", *settings))
    assert alone.metrics == result.collections[0].record.metrics
    assert len(opened) == 2


def test_suites_and_single_benchmarks_run_beside_each_other(shared: Path) -> None:
    alone = config_in(shared, "name=beside", "data={source: beir, path: small}")
    whole = config_in(shared, "name=five", "data.queries=5")
    outcomes = list(run_benchmarks([alone, whole]))
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert [outcome.result.record.queries for outcome in outcomes if outcome.result] == [25, 15]
    with pytest.raises(InputError, match="holds a result of a suite"):
        run_benchmark(config_in(shared, "name=five", "data={source: beir, path: small}"))
    with pytest.raises(InputError, match="holds a result of one collection"):
        run_benchmark(config_in(shared, "name=beside"))
    (shared / "out/five/small/suite.json").write_text("{}")
    with pytest.raises(InputError, match="five/small: holds a result of a suite"):
        run(shared, "name=five")


def test_results_of_different_runs_are_no_suite(shared: Path) -> None:
    folder = run(shared, "name=mixed").folder
    few = config_in(shared, "name=small", "data={source: beir, path: small, queries: 9}")
    run_benchmark(few, output=folder)
    with pytest.raises(InputError, match="collection small has been run with other settings"):
        read_result(folder)
    run(shared, "name=mixed")
    written = read_json(folder / "suite.json")
    written["metrics"]["ndcg@10"] += 1e-6
    (folder / "suite.json").write_text(json.dumps(written), encoding="utf-8")
    seal(folder)
    with pytest.raises(InputError, match="the macro mean of ndcg@10 is not that of its collections"):
        read_result(folder)


def test_plan_data_and_prune_take_suites(shared: Path) -> None:
    for arguments in (["plan"], ["data"], ["cache", "prune", "--unused", "--cache", shared / "i"]):
        said = benchmarco(*arguments, shared / "c.yaml")
        assert "prune" in arguments or all(f"three/{name}" in said.stdout for name in NAMES)
