"""A model that is an object in this process: its vectors are scored, and nothing of it is kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inside import resize

from pipeline import InputError, evaluate_model, run_benchmark
from pipeline.config import as_config
from pipeline.storage import unit_vectors
from pipeline.studies.collection import export_data

SIZE = 256
MEASURES = ["ndcg@10", "recall@20"]


class Hashed:
    """Words drawn into a few dimensions, as FlagEmbedding's methods are called; counts its calls."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.called = seed, 0

    def encode_queries(self, texts: list[str]) -> Any:
        self.called += 1
        vectors = np.zeros((len(texts), SIZE), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                vectors[row, (sum(word.encode()) * 31 + len(word) + self.seed) % SIZE] += 1
        return vectors

    encode_corpus = encode_queries


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    """A config without a model."""
    return {
        "name": "object", "data": {"source": "sample", "corpus": 200, "queries": 40},
        "search": {"top_k": 50}, "evaluate": {"measures": MEASURES},
        "cache": str(tmp_path / "indexes"), "output": str(tmp_path / "results"),
    }  # fmt: skip


def test_its_measures_are_those_of_its_vectors_and_only_the_collection_is_kept(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, texts_at_once=64)
    model = Hashed()
    result = evaluate_model(config, model)
    assert result.folder == tmp_path / "results" / "object"
    assert model.called > 4
    assert {path.name for path in (tmp_path / "indexes").iterdir()} - {".locks"} == {"data"}

    whole = as_config({**config, "model": {"backend": "bm25"}})
    export_data(whole, tmp_path / "texts")
    for role in ("passages", "queries"):
        lines = (tmp_path / "texts" / f"{role}.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["text"] for line in lines]
        rows = model.encode_queries(texts)
        np.save(tmp_path / f"{role}.npy", unit_vectors(rows))
    files = {role: str(tmp_path / f"{role}.npy") for role in ("passages", "queries")}
    same = run_benchmark({**config, "name": "files", "model": {"backend": "precomputed", **files}})
    assert result.metrics == same.metrics


def test_another_state_of_it_is_never_taken_for_an_earlier_one(config: dict[str, Any]) -> None:
    model = Hashed()
    before = evaluate_model(config, model, name="before")
    model.seed = 7
    model.encode_corpus = lambda texts: -np.abs(Hashed(3).encode_queries(texts)) - 1  # type: ignore[method-assign]
    after = evaluate_model(config, model, name="after")
    assert before.document["name"] == "before"
    assert after.metrics != before.metrics


def test_a_module_that_trains_goes_on_training(config: dict[str, Any]) -> None:
    import torch

    class Bag(torch.nn.Module):
        """Sentences by `encode`, in evaluation mode as sentence-transformers leaves its models."""

        def __init__(self) -> None:
            super().__init__()
            self.frozen = torch.nn.Dropout().eval()
            self.words = torch.nn.EmbeddingBag(SIZE, 32)

        def encode(self, texts: list[str]) -> list[torch.Tensor]:
            self.eval()
            return [self.words(torch.tensor([[*text.encode()][:60]]))[0] for text in texts]

    model = Bag()
    result = evaluate_model({**config, "model": {"truncate_dim": 16, "name": "any"}}, model)
    assert 0 <= result.metrics["ndcg@10"] <= 1
    assert model.training
    assert model.words.training
    assert not model.frozen.training


class Wrong:
    """Encodes texts as a function does."""

    def __init__(self, encode: Any) -> None:
        self.encode = encode


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        (object(), {}, "no method that encodes texts"),
        (Hashed(), {"model": {"name": "x", "query_instruction": "q: "}}, "query_instruction"),
        (Hashed(), {"model": {"output": "sparse", "name": "x"}}, "output: sparse"),
        (Hashed(), {"data": {"collections": {"a": {"source": "sample"}}}}, "a suite"),
        (Hashed(), {"name": "no/name"}, "'name'"),
        (Wrong(lambda texts: np.ones(3)), {}, "shape"),
        (Wrong(lambda texts: np.full((len(texts), 3), np.nan)), {}, "infinite or not a number"),
        (Wrong(lambda texts: "text"), {}, "returned"),
    ],
    ids=["no method", "instruction", "sparse", "suite", "name", "one vector", "no numbers", "text"],
)
def test_what_cannot_be_scored_is_refused(
    config: dict[str, Any], model: Any, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        evaluate_model({**config, **change}, model)
    assert not (tmp_path / "results").exists()


def test_a_suite_is_not_overwritten(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "results/object").mkdir(parents=True)
    (tmp_path / "results/object/suite.json").write_text("{}")
    with pytest.raises(InputError, match="holds a result of a suite"):
        evaluate_model(config, Hashed())
