"""What a run takes is said before anything is there, and what this machine does not hold is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from inside import pretend
from layouts import write_lines
from workplaces import benchmarco, document, read_json

from pipeline import load_config, run_benchmark

WHOLE = 8_841_823
DIMENSION = 128  # of the model in `bge_folder`
PART = "data={source: sample, queries: 40, corpus: 100}"


@pytest.fixture
def config(tmp_path: Path, bge_folder: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"name: c\ndata: {{source: sample, queries: 40}}\ncache: {tmp_path}/i\noutput: {tmp_path}/out\n"
        f"model: {{backend: flag, name: {bge_folder}}}\nsearch: {{top_k: 100}}\n"
        f"evaluate: {{measures: [ndcg@10]}}\n",
        encoding="utf-8",
    )
    return path


def costs(config: Path, *arguments: str) -> dict[str, Any]:
    (plan,) = [document("plan", config, "--passages", str(WHOLE), *arguments)]
    estimate: dict[str, Any] = plan["estimate"]
    return estimate | {each["stage"]: each for each in estimate["stages"]}


def test_a_collection_that_is_not_there_is_estimated_by_a_smaller_run_of_the_config(config: Path) -> None:
    before = costs(config, "--set", "data={source: beir, path: nowhere}")
    assert (before["passages"]["seconds"], before["measured"]) == (None, None)
    assert before["passages"]["disk_bytes"] == WHOLE * (4 * DIMENSION + 20)
    assert before["index"]["disk_bytes"] == WHOLE * 4 * DIMENSION
    assert not (config.parent / "i").exists()
    shown = benchmarco("plan", config, "--passages", str(WHOLE)).stdout
    assert "not measured on this machine; --probe does it" in " ".join(shown.split())

    record = run_benchmark(load_config(config, [PART])).record
    measured = {row.stage: row for row in record.stages}
    after = costs(config, "--set", "data={source: beir, path: nowhere, queries: 80}")
    uses = {role: measured[role].encoding for role in ("passages", "queries")}
    assert after["measured"] == {
        "passages": record.passages, "queries": 40, "by": str(config.parent / "out/c"),
        "tokens": {role: use.tokens / use.texts for role, use in uses.items()},
    }  # fmt: skip
    assert after["unknown"] == []
    by_passages = WHOLE / record.passages
    for stage, factor in {"passages": by_passages, "queries": 2, "search": 2 * by_passages}.items():
        row = measured[stage]
        assert row.items
        assert row.items_per_second
        assert after[stage]["seconds"] == pytest.approx(factor * row.items / row.items_per_second), stage
    assert after["search"]["disk_bytes"] == pytest.approx(2 * (measured["search"].bytes or 0), abs=1)
    other = costs(config, "--set", "model.passage_max_length=7")
    assert other["measured"] is None


def test_longer_texts_take_longer(config: Path, root: Path, tmp_path: Path) -> None:
    run_benchmark(load_config(config, [PART]))
    seconds = {}
    for times in (1, 3):
        folder = tmp_path / f"{times} times"
        shutil.copytree(root / "pipeline/data/sample", folder)
        lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        longer = [{**json.loads(line), "title": ""} for line in lines]
        longer = [{**each, "text": " ".join([each["text"]] * times)} for each in longer]
        write_lines(folder / "corpus.jsonl", longer)
        arguments = config, "--set", f"data={{source: beir, path: {folder}}}"
        benchmarco("data", *arguments)
        plan = document("plan", *arguments)
        seconds[times] = {each["stage"]: each["seconds"] for each in plan["estimate"]["stages"]}
    assert 2.5 * seconds[1]["passages"] < seconds[3]["passages"] < 3 * seconds[1]["passages"]
    assert seconds[3]["queries"] == seconds[1]["queries"]


def test_a_probe_runs_the_config_on_a_part_of_the_sample_once(config: Path, reranker: Any) -> None:
    scorer = f"rerank={{backend: flag, name: {reranker('bert')}, depth: 5}}"
    probed = costs(config, "--probe", "--set", scorer)
    assert (probed["measured"]["queries"], probed["measured"]["by"]) == (20, "--probe")
    assert probed["unknown"] == []
    assert probed["rerank"]["seconds"] > 0
    assert not (config.parent / "out").exists()
    assert costs(config, "--set", scorer) == probed
    refused = benchmarco("plan", config, "--probe", "--set", "index.factory='IVF512,Flat'", code=2)
    assert "c does not run on a sample" in " ".join(refused.stderr.split())


def test_each_of_a_sweep_is_estimated_and_what_they_share_counts_once(config: Path) -> None:
    changes = (
        "[{name: whole}, {name: streamed, search.memory_mb: 700}, {name: codes, index.factory: 'IVF64,PQ16'}]"
    )
    plans = document("plan", config, "--passages", str(WHOLE), "--set", f"sweep={changes}")
    disk = {
        each["name"]: {stage["stage"]: stage["disk_bytes"] for stage in each["estimate"]["stages"]}
        for each in plans
    }
    assert "index" not in disk["streamed"]
    codebooks = 64 * (4 * DIMENSION + 8) + 256 * 4 * DIMENSION  # lists and codes
    assert disk["codes"]["index"] == WHOLE * (16 + 8) + codebooks
    assert disk["whole"]["index"] == WHOLE * 4 * DIMENSION
    memory = {each["name"]: each["estimate"]["memory_mb"] for each in plans}
    assert memory["streamed"] is None
    assert memory["codes"] < memory["whole"]
    shown = benchmarco("plan", config, "--passages", str(WHOLE), "--set", f"sweep={changes}").stdout
    assert "all: what several share counts once" in shown


@pytest.mark.parametrize(("what", "fix"), [("memory", "search.memory_mb"), ("disk", "--set cache=DIR")])
def test_what_this_machine_does_not_hold_is_refused_before_anything_is_encoded(
    what: str, fix: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, **{what: 100_000})
    done = benchmarco("run", config, code=2)
    message = " ".join(done.stderr.split())
    assert f"of {what}, most in stage" in message
    assert "passages with these settings" in message
    assert fix in message
    assert {path.name for path in (config.parent / "i").iterdir()} == {".locks", "data"}
    assert not (config.parent / "out").exists()
    pretend(monkeypatch, memory=10**12, disk=10**12)
    benchmarco("run", config)
    assert read_json(config.parent / "out/c/metrics.json")["passages"] == 345


def test_what_does_not_fit_is_said_by_plan(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, disk=10**9)
    shown = " ".join(benchmarco("plan", config, "--passages", str(WHOLE)).stdout.split())
    assert "Does not fit: c: the vectors and the index of 8,841,823 passages take " in shown
    assert "Fits: about" in shown
