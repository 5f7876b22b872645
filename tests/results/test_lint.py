"""Lint of stored results: every planted contradiction is found, and none in results that are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison.made import benchmarco, document

from pipeline import run_benchmark
from pipeline.results.lint import lint

CUTOFFS = (1, 3, 5, 10, 20, 100, 1000)
PLANTED: dict[str, tuple[str, float]] = {
    "mrr@1 = precision@1": ("mrr_at_1", 0.9),
    "recall does not fall with k": ("recall_at_20", 0.01),
    "map@k <= recall@k": ("map_at_5", 0.999),
    "values are in [0, 1]": ("ndcg_at_10", 1.01),
    "main score is one of the measures": ("main_score", 0.00123),
    "ndcg@1 = precision@1": ("ndcg_at_1", 0.999),
}


def scores(random: np.random.Generator) -> dict[str, Any]:
    """Measures of 50 queries with one relevant passage each, as MTEB writes them."""
    ranks = random.integers(1, 2000, 50) // random.integers(1, 60, 50) + 1
    found: dict[str, Any] = {"hf_subset": "default"}
    for k in CUTOFFS:
        hit = ranks <= k
        found[f"recall_at_{k}"] = round(float(hit.mean()), 5)
        found[f"precision_at_{k}"] = round(float(hit.mean() / k), 5)
        found[f"map_at_{k}"] = round(float((hit / ranks).mean()), 5)
        found[f"mrr_at_{k}"] = float((hit / ranks).mean())
        found[f"ndcg_at_{k}"] = round(float((hit / np.log2(ranks + 1)).mean()), 5)
    return {**found, "main_score": found["ndcg_at_10"]}


def test_what_is_planted_in_hundreds_of_files_is_found_and_nothing_else(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    planted: dict[str, str] = {}
    for number in range(300):
        folder = tmp_path / f"model-{number}" / "revision"
        entry = scores(random)
        if number % 15 == 0:
            identity = list(PLANTED)[number // 15 % len(PLANTED)]
            name, value = PLANTED[identity]
            planted[str(folder / "Task.json")] = identity
            entry[name] = value
        written(folder, "Task", **entry)
    found = lint([tmp_path])
    assert (found.files, {each.file for each in found.found}) == (300, set(planted))
    for path, identity in planted.items():
        said = {each.identity for each in found.found if each.file == path}
        named = {"ndcg@1 = precision@1": "ndcg@1 <= precision@1"}.get(identity, identity)
        assert named in said


def written(folder: Path, task: str, **values: Any) -> None:
    """A result file of MTEB with one set of scores."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"task_name": task, "mteb_version": "1.29.7", "scores": {"test": [values]}}
    (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_whole_is_the_mean_of_its_parts_and_a_main_score_a_copy(tmp_path: Path) -> None:
    """As in a stored result: all values have four digits, and the main score is none of them."""
    folder = tmp_path / "model" / "revision"
    for number in range(12):
        name = f"CQADupstack{chr(ord('A') + number)}Retrieval"
        written(folder, name, ndcg_at_10=0.42 + number / 100, main_score=0.42 + number / 100)
    written(folder, "CQADupstackRetrieval", ndcg_at_10=0.475, main_score=0.475)
    assert lint([tmp_path]).found == []
    written(folder, "CQADupstackRetrieval", ndcg_at_10=0.4263, main_score=0.4264)
    identities = {each.identity for each in lint([tmp_path]).found}
    assert identities == {"main score is one of the measures", "main score = mean of its parts"}


def test_what_the_files_tell_of_a_cause_is_named(tmp_path: Path) -> None:
    written(tmp_path / "tied" / "r", "Task", mrr_at_1=0.5, precision_at_1=0.4, ndcg_at_1=0.4)
    written(tmp_path / "none" / "r", "Task", mrr_at_1=0.0, mrr_at_10=0.0, precision_at_1=0.4)
    written(tmp_path / "cut" / "r", "Task", recall_at_10=0.5, recall_at_100=0.0)
    few = {"precision_at_100": 0.0113, "precision_at_1000": 0.0011, "ndcg_at_10": 0.5123}
    written(tmp_path / "percent" / "r", "Task", **few)
    causes = {each.model: each.cause for each in lint([tmp_path]).found}
    assert causes.keys() == {"tied", "none", "cut"}  # a tenth of 0.0113 may be 0.0011 in four digits
    assert "mteb 2.18.19" in causes["tied"]
    assert causes["none"] == "mrr is 0 at every cutoff: not computed"
    assert causes["cut"] == "0 at 100: not computed there"


def test_the_command_finds_nothing_in_our_own_results_and_what_is_altered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measures = ["mrr@1", "precision@1", "success@1", "ndcg@1", "recall@1", "recall@10", "map@10"]
    data, model = {"source": "sample"}, {"backend": "bm25"}
    run_benchmark({"name": "own", "data": data, "model": model, "evaluate": {"measures": measures}})
    assert document("verify", "--lint", "results")["contradictions"] == []
    written(
        tmp_path / "mteb" / "model" / "revision",
        "Task",
        **(scores(np.random.default_rng(1)) | {"mrr_at_1": 0.9}),
    )
    wrong = benchmarco("verify", "--lint", "mteb")
    assert (wrong.exit_code, "mrr@1 = precision@1" in wrong.stdout) == (3, True)
    page = benchmarco("verify", "--lint", "mteb", "--markdown")
    assert page.exit_code == 3
    assert "| identity | cause | scores | files | models |" in page.stdout.splitlines()
    for refused in (["--lint"], ["--lint", "missing.json"], ["--lint", ".", "--why"]):
        assert benchmarco("verify", *refused).exit_code == 2
