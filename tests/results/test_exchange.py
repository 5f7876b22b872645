"""Results in MTEB's format and in model cards."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from comparison.made import benchmarco
from huggingface_hub.repocard_data import model_index_to_eval_results

from pipeline import InputError, run_benchmark
from pipeline.results.exchange import model_index, task_of, write_mteb
from pipeline.results.folder import SavedResult, read_result

MEASURES = ["ndcg@10", "recall@100", "success@5", "ndcg(gain=exp)@10", "map"]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result folder of a suite of two collections, searched with BM25."""
    folder = tmp_path_factory.mktemp("exchange")
    sample = {"source": "sample"}
    config = {
        "name": "mine", "data": {"collections": {"whole": sample, "part": sample | {"queries": 40}}},
        "model": {"backend": "bm25"}, "evaluate": {"measures": MEASURES}, "cache": str(folder / "i"),
        "output": str(folder / "out"),
    }  # fmt: skip
    run_benchmark(config)
    return folder / "out" / "mine"


@pytest.fixture
def whole(suite: Path) -> SavedResult:
    return read_result(suite / "whole")


def test_what_is_written_is_what_mteb_s_task_result_demands(
    suite: Path, whole: SavedResult, tmp_path: Path
) -> None:
    """The fields of `mteb.results.TaskResult` 2.26, their types, and what its validators demand."""
    done = benchmarco("export", suite / "whole", "--mteb", tmp_path)
    assert done.exit_code == 0, done.stderr
    path = tmp_path / "results" / "bm25_k1_0.9_b_0.4" / "no_revision_available" / "whole.json"
    assert json.loads((path.parent / "model_meta.json").read_text()) == {
        "name": "bm25 (k1=0.9, b=0.4)", "revision": "no_revision_available"
    }  # fmt: skip
    written = json.loads(path.read_text(encoding="utf-8"))
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


def of_config(result: SavedResult, model: dict[str, Any], **more: Any) -> SavedResult:
    """A result, as if a config with another model had led to it."""
    config = {**result.manifest.config, "model": model, **more}
    return replace(result, manifest=result.manifest.model_copy(update={"config": config}))


def test_results_of_several_models_and_two_of_one_collection_are_refused(
    whole: SavedResult, suite: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="another result are both of whole/test/default"):
        write_mteb([whole, whole], tmp_path)
    both = [whole, read_result(suite / "part")]
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
    model: dict[str, Any], more: dict[str, Any], name: str, whole: SavedResult
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


def test_a_model_card_says_the_results(suite: Path, whole: SavedResult) -> None:
    printed = benchmarco("export", suite / "whole", "--model-index").stdout
    _, header, _ = printed.split("---\n")
    name, results = model_index_to_eval_results(yaml.safe_load(header)["model-index"])
    assert name == "bm25 (k1=0.9, b=0.4)"
    found = {result.metric_type: result.metric_value for result in results}
    assert found["ndcg_at_10"] == whole.record.metrics["ndcg@10"]
    assert {(each.task_type, each.dataset_type, each.dataset_split) for each in results} == {
        ("Retrieval", "sample", "test")
    }
    refused = benchmarco("export", suite / "whole")
    assert refused.exit_code == 2
    assert "neither --mteb nor --model-index" in refused.stderr
