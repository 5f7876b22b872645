"""Results in MTEB's format and in model cards, and contradictions in stored results."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from comparison.made import config
from huggingface_hub.repocard_data import model_index_to_eval_results
from workplaces import benchmarco, change_json, document, read_json

from pipeline import InputError, run_benchmark
from pipeline.results import CollectionResult, read_result
from pipeline.studies.export import model_index, write_mteb
from pipeline.studies.shared import task_of
from pipeline.studies.verify import lint_files

MEASURES = ["ndcg@10", "recall@100", "success@5", "ndcg(gain=exp)@10", "map"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result folder of a suite of two collections, searched with BM25."""
    folder = tmp_path_factory.mktemp("exchange")
    sample = {"source": "sample"}
    data = {"collections": {"whole": sample, "part": sample | {"queries": 40}}}
    return run_benchmark(config(folder, "mine", data=data, search={}, evaluate={"measures": MEASURES})).folder


@pytest.fixture
def whole(suite: Path) -> CollectionResult:
    return read_result(suite / "whole").only_collection()


@pytest.mark.parametrize("name", ["../../../../pwned", "/tmp/pwned", "..", "a/../../../../b", "model_meta"])
def test_a_stranger_s_result_is_exported_inside_the_folder(suite: Path, tmp_path: Path, name: str) -> None:
    result = Path(shutil.copytree(suite / "whole", tmp_path / "stranger"))
    change_json(result / "metrics.json", name=name)
    model = {"backend": "flag", "name": f"./{name}", "revision": name}
    change_json(result / "manifest.json", config__model=model)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    benchmarco("export", result, "--mteb", tmp_path / "a/b/c", code=2 if name == "model_meta" else 0)
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert all(path.is_relative_to(tmp_path / "a/b/c/results") for path in written)
    assert len(written) == (0 if name == "model_meta" else 2)


def test_what_is_written_is_what_mteb_s_task_result_demands(
    suite: Path, whole: CollectionResult, tmp_path: Path
) -> None:
    """The fields of `mteb.results.TaskResult` 2.26, their types, and what its validators demand."""
    benchmarco("export", suite / "whole", "--mteb", tmp_path)
    path = tmp_path / "results" / "bm25_k1_0.9_b_0.4" / "no_revision_available" / "whole.json"
    assert json.loads((path.parent / "model_meta.json").read_text()) == {
        "name": "bm25 (k1=0.9, b=0.4)", "revision": "no_revision_available"
    }  # fmt: skip
    written = read_json(path)
    seconds = written.pop("evaluation_time")
    assert isinstance(seconds, float)
    ((entry,),) = (written["scores"].pop("test"),)
    assert written == {
        "dataset_revision": "no_revision_available", "task_name": "whole", "mteb_version": None,
        "scores": {}, "kg_co2_emissions": None,
    }  # fmt: skip
    metrics = whole.record.metrics
    assert entry == {
        "ndcg_at_10": metrics["ndcg@10"], "recall_at_100": metrics["recall@100"],
        "hit_rate_at_5": metrics["success@5"], "main_score": metrics["ndcg@10"],
        "hf_subset": "default", "languages": [],
    }  # fmt: skip


def of_config(result: CollectionResult, model: dict[str, Any], **more: Any) -> CollectionResult:
    """A result, as if a config with another model had led to it."""
    other = {**result.manifest.config, "model": model, **more}
    return replace(result, manifest=result.manifest.model_copy(update={"config": other}))


def test_results_of_several_models_and_two_of_one_collection_are_refused(
    whole: CollectionResult, suite: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="another result are both of whole/test/default"):
        write_mteb([whole, whole], tmp_path)
    both = [whole, read_result(suite / "part").only_collection()]
    assert len(write_mteb(both, tmp_path)) == 2
    mixed = [whole, of_config(both[1], {"backend": "bm25", "k1": 1.2})]
    for write in (lambda: write_mteb(mixed, tmp_path), lambda: model_index(mixed)):
        with pytest.raises(InputError, match=r"are of 2 models: bm25 \(k1=0.9, b=0.4\); bm25 \(k1=1.2"):
            write()


MINILM = {"backend": "flag", "name": "all-minilm-l6-v2"}


SMALL = {"precision": "bf16", "truncate_dim": 64, "vector_precision": "binary"}
JUDGE = {"backend": "flag", "name": "/home/me/judge", "precision": "bf16"}


@pytest.mark.parametrize(
    ("model", "more", "name"),
    [
        ({"backend": "bm25", "name": "all-minilm-l6-v2"}, {}, "bm25 (k1=0.9, b=0.4)"),
        (MINILM | SMALL, {}, "all-minilm-l6-v2 (bf16, 64 dimensions, binary vectors)"),
        (MINILM, {"index": {"factory": "IVF16,Flat"}}, "all-minilm-l6-v2, index IVF16,Flat"),
        (MINILM | {"name": "/home/me/models/mine"}, {}, "mine"),
        ({"backend": "bm25"}, {"rerank": JUDGE}, "bm25 (k1=0.9, b=0.4), reranked by judge (bf16)"),
        ({"backend": "precomputed", "passages": "/p.npy", "queries": "/q.npy"}, {}, "whole"),
    ],
)
def test_a_result_is_attributed_to_what_made_it(
    model: dict[str, Any], more: dict[str, Any], name: str, whole: CollectionResult
) -> None:
    card = model_index([of_config(whole, model, **more, data={"source": "beir", "path": "/home/me/data"})])
    (entry,) = card["model-index"]
    assert entry["name"] == name
    assert "/home" not in json.dumps(card)


def test_shipped_collections_are_tasks_of_mteb() -> None:
    def task(**data: Any) -> dict[str, Any] | None:
        found = task_of(data)
        return found[0].model_dump(exclude_unset=True) if found else None

    swahili = {"source": "beir", "path": "mteb/MIRACLRetrieval", "split": "dev", "queries": None}
    assert task(**swahili, subset="sw") == {"task": "MIRACLRetrieval", "languages": ("swa-Latn",)}
    assert task(**swahili, subset=None) is None
    assert task(**{**swahili, "queries": 50}, subset="sw") is None
    bright = {"source": "bright", "path": "mteb/BRIGHT", "domain": "pony"}
    bright |= {"split": "examples", "subset": None}
    short, long = task(**bright, documents="short"), task(**bright, documents="long")
    assert short == {"task": "BrightPonyRetrieval", "split": "standard", "languages": ("eng-Latn",)}
    assert long == {"task": "BrightPonyLongRetrieval", "split": "long", "languages": ("eng-Latn",)}
    assert task(source="sample", split="test") is None


def test_a_model_card_says_the_results(suite: Path, whole: CollectionResult) -> None:
    printed = benchmarco("export", suite / "whole", "--model-index").stdout
    _, header, _ = printed.split("---\n")
    name, results = model_index_to_eval_results(yaml.safe_load(header)["model-index"])
    assert name == "bm25 (k1=0.9, b=0.4)"
    found = {result.metric_type: result.metric_value for result in results}
    assert found["ndcg_at_10"] == whole.record.metrics["ndcg@10"]
    assert {(each.task_type, each.dataset_type, each.dataset_split) for each in results} == {
        ("Retrieval", "sample", "test")
    }
    refused = benchmarco("export", suite / "whole", code=2)
    assert "neither --mteb nor --model-index" in refused.stderr


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
    found = lint_files([tmp_path])
    assert (found.files, {each.file for each in found.contradictions}) == (300, set(planted))
    for path, identity in planted.items():
        said = {each.identity for each in found.contradictions if each.file == path}
        named = {"ndcg@1 = precision@1": "ndcg@1 <= precision@1"}.get(identity, identity)
        assert named in said


def written(folder: Path, task: str, **values: Any) -> None:
    """A result file of MTEB with one set of scores."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"task_name": task, "mteb_version": "1.29.7", "scores": {"test": [values]}}
    (folder / f"{task}.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_main_score_is_a_copy(tmp_path: Path) -> None:
    """As in a stored result: all values have four digits, and the main score is none of them."""
    folder = tmp_path / "model" / "revision"
    written(folder, "Task", ndcg_at_10=0.475, main_score=0.475)
    assert lint_files([tmp_path]).contradictions == []
    written(folder, "Task", ndcg_at_10=0.4263, main_score=0.4264)
    (found,) = lint_files([tmp_path]).contradictions
    assert found.identity == "main score is one of the measures"


def test_what_the_files_tell_of_a_cause_is_named(tmp_path: Path) -> None:
    written(tmp_path / "tied" / "r", "Task", mrr_at_1=0.5, precision_at_1=0.4, ndcg_at_1=0.4)
    written(tmp_path / "none" / "r", "Task", mrr_at_1=0.0, mrr_at_10=0.0, precision_at_1=0.4)
    written(tmp_path / "cut" / "r", "Task", recall_at_10=0.5, recall_at_100=0.0)
    few = {"precision_at_100": 0.0113, "precision_at_1000": 0.0011, "ndcg_at_10": 0.5123}
    written(tmp_path / "percent" / "r", "Task", **few)
    (tmp_path / "deep.json").write_text("[" * 100_000)  # as a stranger's folder may hold
    os.mkfifo(tmp_path / "pipe.json")
    causes = {Path(each.file).parts[-3]: each.cause for each in lint_files([tmp_path]).contradictions}
    assert causes.keys() == {"tied", "none", "cut"}  # a tenth of 0.0113 may be 0.0011 in four digits
    assert "mteb 2.18.19" in causes["tied"]
    assert causes["none"] == "mrr@1 is 0: not computed"
    assert causes["cut"] == "recall@100 is 0: not computed"


def test_the_command_finds_nothing_in_our_own_results_and_what_is_altered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measures = ["mrr@1", "precision@1", "success@1", "ndcg@1", "recall@1", "recall@10", "map@10"]
    data, model = {"source": "sample"}, {"backend": "bm25"}
    run_benchmark({"name": "own", "data": data, "model": model, "evaluate": {"measures": measures}})
    assert document("verify", "--lint", "results")["contradictions"] == []
    for form in ([], ["--markdown"]):
        assert benchmarco("verify", "--lint", "results", *form).stdout == "0 contradictions in 1 file\n"
    written(
        tmp_path / "mteb" / "model" / "revision",
        "Task",
        **(scores(np.random.default_rng(1)) | {"mrr_at_1": 0.9}),
    )
    assert "mrr@1 = precision@1" in benchmarco("verify", "--lint", "mteb", code=3).stdout
    page = benchmarco("verify", "--lint", "mteb", "--markdown", code=3)
    assert "| identity | values | reason | cause | file | split | subset |" in page.stdout.splitlines()
    (tmp_path / "mteb" / "cut.json").write_text('{"scores": {"test"')
    for refused in (["--lint"], ["--lint", "missing.json"], ["--lint", ".", "--why"], ["--lint", "mteb"]):
        benchmarco("verify", *refused, code=2)
