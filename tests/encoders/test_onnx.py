"""ONNX files: taken by name, with their own inputs and outputs, and compared with the model's library."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shipped import INPUTS, export, quantize
from workplaces import BAR, document, read_json

from pipeline import InputError
from pipeline.encoders import Encoder, Usage
from pipeline.storage import Store

Opened = Callable[..., Encoder]
TEXTS = ["a", "how to bake bread at home without an oven", "the capital of France is Paris", "bread " * 80]


@pytest.fixture(scope="module")
def folder(bge_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its network in three ONNX files: fp32, int8, and one that pools by itself."""
    folder = tmp_path_factory.mktemp("onnx") / "bge-small-en-v1.5"
    shutil.copytree(bge_folder, folder)
    quantize(export(bge_folder, folder / "onnx" / "model.onnx"))
    export(
        bge_folder,
        folder / "pooled.onnx",
        INPUTS[:2],
        "sentence_embedding",
        lambda states, mask: 3 * states[:, 0],
    )
    return folder


def vectors(encoder: Encoder) -> Any:
    rows = encoder.encode(TEXTS, "passages", Usage(), BAR)
    assert isinstance(rows, np.ndarray)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cosines(a: Any, b: Any) -> Any:
    return (a * b).sum(axis=1)


def changed(folder: Path, target: Path, *names: str) -> Path:
    """A copy of a model's folder without its files of some names."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*names), copy_function=shutil.copy)
    return target


@pytest.fixture(scope="module")
def alone(folder: Path) -> Path:
    """The same without its weights, so that nothing is compared."""
    return changed(folder, folder.parent / "alone", "*.safetensors")


@pytest.mark.parametrize("pooling", ["cls", "mean", "last_token"])
def test_an_fp32_file_gives_the_vectors_of_the_network(
    pooling: str, folder: Path, alone: Path, opened: Opened, store: Store
) -> None:
    own, flag = (
        vectors(opened(store, name=name, backend=backend, pooling=pooling))
        for name, backend in ((alone, "onnx"), (folder, "flag"))
    )
    assert cosines(own, flag).min() > 0.999999


def test_a_file_that_pools_by_itself_is_taken_as_it_is(folder: Path, opened: Opened, store: Store) -> None:
    encoder = opened(store, name=folder, backend="onnx", file="pooled.onnx")
    assert encoder.model.decided["pooling"].value == "sentence_embedding"
    assert cosines(vectors(encoder), vectors(opened(store, name=folder, backend="flag"))).min() > 0.999999
    with pytest.raises(
        InputError, match=r"pooling 'mean'.* pooled\.onnx gives sentence_embedding.*leave out model"
    ):
        opened(store, name=folder, backend="onnx", file="pooled.onnx", pooling="mean")


def test_positions_are_given_where_the_file_declares_them(
    folder: Path, opened: Opened, store: Store, tmp_path: Path
) -> None:
    other = changed(folder, tmp_path / "model", "onnx", "*.onnx", "*.safetensors")
    export(folder, other / "model.onnx", ("input_ids", "attention_mask", "position_ids"))
    own = vectors(opened(store, name=other, backend="onnx"))
    assert cosines(own, vectors(opened(store, name=folder, backend="flag"))).min() > 0.999999


def test_an_int8_file_is_run_only_by_its_name_and_its_distance_is_a_figure(
    folder: Path, opened: Opened, tmp_path: Path
) -> None:  # michaelfeil/infinity#634
    alone = changed(folder, tmp_path / "model", "model.onnx", "pooled.onnx")
    with pytest.raises(
        InputError, match=r"no model\.onnx .*Allowed: onnx/model_quantized\.onnx\. Set model\.file"
    ):
        opened(Store(tmp_path / "store"), name=alone, backend="onnx")
    config = {
        "name": "int8",
        "data": {"source": "sample", "queries": 5, "corpus": 40},
        "cache": str(tmp_path),
    }
    config |= {
        "output": str(tmp_path / "results"),
        "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10"]},
    }
    config["model"] = {"name": str(alone), "backend": "onnx", "file": "onnx/model_quantized.onnx"}
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    document("run", tmp_path / "c.yaml")
    (model,) = read_json(tmp_path / "results" / "int8" / "manifest.json")["models"]
    assert 0.5 < model["comparison"]["lowest_cosine"] < model["comparison"]["mean_cosine"] < 0.99999
    assert "int8" in model["settings"]["precision"]["value"]
    (record,) = document("doctor", tmp_path / "c.yaml")["models"]
    assert record["comparison"] == model["comparison"]


def test_an_fp32_file_of_another_network_is_refused(folder: Path, opened: Opened, tmp_path: Path) -> None:
    from transformers import AutoModel

    torch.manual_seed(1)
    other = changed(folder, tmp_path / "model", "pooled.onnx")
    network = AutoModel.from_pretrained(other)
    torch.nn.init.normal_(network.embeddings.word_embeddings.weight)
    network.save_pretrained(other)
    with pytest.raises(
        InputError, match=r"backend onnx does not run .* as its library does.*xport the model again"
    ):
        opened(Store(tmp_path / "store"), name=other, backend="onnx")


def test_a_folder_without_other_weights_says_that_nothing_is_compared(
    alone: Path, opened: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    opened(Store(tmp_path / "store"), name=alone, backend="onnx")
    assert "not compared with its library: the model's folder has no other weights" in caplog.text
    with pytest.raises(InputError, match=r"no weights \(.*but an ONNX file.* Set model\.backend to onnx"):
        opened(Store(tmp_path / "store"), name=alone, backend="flag")


def test_files_that_cannot_be_run_are_refused_in_a_sentence(
    folder: Path, opened: Opened, tmp_path: Path
) -> None:
    other = changed(folder, tmp_path / "model", "*.onnx")
    whole = (folder / "onnx" / "model.onnx").read_bytes()
    (other / "cut.onnx").write_bytes(whole[:100_000])
    (other / "text.onnx").write_bytes(b"not a model of any kind")
    (other / "cache.onnx").write_bytes(whole.replace(b"token_type_ids", b"past_key_value"))
    (other / "logits.onnx").write_bytes(whole.replace(b"last_hidden_state", b"vocabulary_logits"))
    for file, said in {
        "cut.onnx": "is no ONNX file",
        "text.onnx": "is no ONNX file|has no",
        "cache.onnx": "has the input past_key_value",
        "logits.onnx": "gives vocabulary_logits",
        "onnx/absent.onnx": r"has no onnx/absent\.onnx.*Allowed: cache\.onnx, cut",
        "../model.onnx": "a path inside the model's folder",
    }.items():
        with pytest.raises(InputError, match=said):
            opened(Store(tmp_path / "store"), name=other, backend="onnx", file=file)


def test_a_token_beyond_the_embeddings_is_refused(folder: Path, opened: Opened, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    other = changed(folder, tmp_path / "model", "*.safetensors")
    tokenizer = Tokenizer.from_file(str(other / "tokenizer.json"))
    tokenizer.add_tokens(["[NEW]"])
    tokenizer.save(str(other / "tokenizer.json"))
    encoder = opened(Store(tmp_path / "store"), name=other, backend="onnx")
    with pytest.raises(InputError, match=r"gives token 30522"):
        encoder.encode(["what is [NEW]"], "queries", Usage(), BAR)


def test_a_changed_file_leads_to_other_keys(folder: Path, opened: Opened, tmp_path: Path) -> None:
    other = changed(folder, tmp_path / "model", "*.safetensors")
    store = Store(tmp_path / "store")
    before = opened(store, name=other, backend="onnx").model.recipe("passages")
    shutil.copy(folder / "onnx" / "model_quantized.onnx", other / "onnx" / "model.onnx")
    assert opened(store, name=other, backend="onnx").model.recipe("passages") != before
