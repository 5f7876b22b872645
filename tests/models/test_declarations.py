"""What a model's files declare beside its network changes its vectors and their comparison."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workplaces import BAR, hits, read_json

from pipeline import InputError, run_benchmark
from pipeline.config import BACKENDS
from pipeline.encoders import Usage, resolve
from pipeline.models import token_counter
from pipeline.storage import Store

Edit = Callable[..., Path]
UNSCALED = {
    "modules.json": [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
}
TEXTS = ["how do pilots guide ships", "", "word " * 700]


def without_end(folder: Path) -> bytes:
    """A tokenizer.json that puts no token after a text."""
    content = read_json(folder / "tokenizer.json")
    number = next(token["id"] for token in content["added_tokens"] if token["content"] == "[CLS]")
    single: list[object] = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    ]  # fmt: skip
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [number], "tokens": ["[CLS]"]}},
    }
    return json.dumps(content).encode()


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers", "openvino"])
def test_mteb_5237_the_end_token_that_the_settings_declare_is_pooled(
    backend: str, bge_folder: Path, edited: Edit, tmp_path: Path
) -> None:
    """Version 4 of transformers appended it to texts of e5-mistral and its kind, and version 5 does not."""
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "add_eos_token": True, "eos_token": "[SEP]"}
    folder = edited({"tokenizer.json": without_end(bge_folder), "tokenizer_config.json": settings})

    def vectors(name: Path) -> Any:
        opener = resolve(BACKENDS.make(backend=backend, name=str(name), pooling="last_token"))
        return opener.open(Store(tmp_path)).encode(TEXTS, "passages", Usage(), BAR)

    assert np.allclose(vectors(folder), vectors(bge_folder), atol=1e-5)


def test_tokens_that_the_settings_declare_are_counted(bge_folder: Path, edited: Edit) -> None:
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "add_eos_token": True}
    settings |= {"eos_token": {"__type": "AddedToken", "content": "[SEP]"}}
    folder = edited({"tokenizer.json": without_end(bge_folder), "tokenizer_config.json": settings})
    models = [
        resolve(BACKENDS.make(backend="flag", name=str(folder), pooling=pooling)).model
        for pooling in ("last_token", "cls")
    ]
    counts = [token_counter(model.tokenizer)(TEXTS) for model in models]
    assert [one - other for one, other in zip(*counts, strict=True)] == [1, 1, 1]


@pytest.fixture
def best(tmp_path: Path) -> Callable[..., list[tuple[str, str, float]]]:
    """The hits of a model on the sample."""

    def run(folder: Path, index: dict[str, str], **settings: Any) -> list[tuple[str, str, float]]:
        result = run_benchmark(
            {
                "name": "t", "data": {"source": "sample", "queries": 10}, "search": {"top_k": 5},
                "model": {"backend": "flag", "name": str(folder), **settings}, "index": index,
                "evaluate": {"measures": ["ndcg@5"]},
                "cache": str(tmp_path / "cache"), "output": str(tmp_path / "results"),
            }
        )  # fmt: skip
        return hits(result.folder)

    return run


def test_vectors_of_a_model_for_dot_products_keep_their_lengths(
    edited: Edit, best: Callable[..., list[tuple[str, str, float]]]
) -> None:
    folder = edited({"config_sentence_transformers.json": {"similarity_fn_name": "dot"}, **UNSCALED})
    declared = best(folder, {})
    assert declared == best(folder, {}, normalize=False)
    assert declared != best(folder, {}, normalize=True)


@pytest.mark.parametrize(("similarity", "metric"), [("dot", "l2"), ("manhattan", "inner_product")])
def test_an_index_that_compares_otherwise_than_the_model_declares_is_refused(
    similarity: str, metric: str, edited: Edit, best: Callable[..., Any]
) -> None:
    declared = {"config_sentence_transformers.json": {"similarity_fn_name": similarity}}
    with pytest.raises(InputError, match=f"similarity {similarity}, and index.metric is {metric}"):
        best(edited({**declared, **UNSCALED}), {"metric": metric})


@pytest.mark.parametrize("backend", ["flag", "sentence-transformers"])
def test_a_text_without_tokens_is_refused_instead_of_pooling_padding(
    backend: str, bge_folder: Path, edited: Edit, tmp_path: Path
) -> None:
    content = {**read_json(bge_folder / "tokenizer.json"), "post_processor": None}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    folder = edited({"tokenizer.json": json.dumps(content).encode(), "tokenizer_config.json": settings})
    encoder = resolve(BACKENDS.make(backend=backend, name=str(folder))).open(Store(tmp_path))
    with pytest.raises(InputError, match="a text has no tokens for model"):
        encoder.encode(TEXTS, "passages", Usage(), BAR)
