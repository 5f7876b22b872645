"""Adapters of peft, with a base model that is found by path or beside them, merged or refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from shipped import RANK, change_adapter, train_adapter
from transformers import AutoModel
from workplaces import BAR, benchmarco, document, on_one_line, read_json

from pipeline import InputError
from pipeline.encoders import Encoder, Usage
from pipeline.storage import Store

Opened = Callable[..., Encoder]
WEIGHTS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
TEXTS = ["how to bake bread at home without an oven", "the capital of France is Paris", "bread " * 80]


def vectors(encoder: Encoder) -> Any:
    rows = encoder.encode(TEXTS, "passages", Usage(), BAR)
    assert isinstance(rows, np.ndarray)
    return rows


@pytest.fixture(scope="module")
def lora(bge_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_adapter(bge_folder, tmp_path_factory.mktemp("adapters") / "lora")


@pytest.fixture(scope="module")
def merged(lora: Path, bge_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base model with the adapter in its weights."""
    folder = Path(shutil.copytree(bge_folder, tmp_path_factory.mktemp("merged") / "model"))
    network = PeftModel.from_pretrained(AutoModel.from_pretrained(bge_folder), str(lora)).merge_and_unload()
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def expected(merged: Path, opened: Opened, store: Store) -> Any:
    return vectors(opened(store, name=merged, backend="flag"))


def beside(base: Path, lora: Path, folder: Path) -> Path:
    """The adapter names a path of another machine, and its base is in a folder beside it."""
    shutil.copytree(base, folder / "base")
    return change_adapter(
        Path(shutil.copytree(lora, folder / "lora")), base_model_name_or_path="/home/trainer/base"
    )


def with_modules(base: Path, lora: Path, folder: Path, place: str = "") -> Path:
    """A folder of sentence-transformers: its modules, and the adapter in the root or in a module's folder."""
    target = folder / "model"
    shutil.copytree(base, target, ignore=shutil.ignore_patterns("*.safetensors"))
    (target / "config.json").unlink()
    (target / place).mkdir(exist_ok=True)
    for name in (WEIGHTS, SETTINGS):
        shutil.copy(lora / name, target / place)
    for path in target.glob("*"):
        if (
            place
            and path.is_file()
            and ("token" in path.name or path.name in ("vocab.txt", "sentence_bert_config.json"))
        ):
            shutil.move(path, target / place)
    modules = [
        {"idx": number, "name": str(number), "type": f"sentence_transformers.models.{kind}", "path": path}
        for number, (kind, path) in enumerate((("Transformer", place), ("Pooling", "1_Pooling")))
    ]
    (target / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    return target


def in_transformer(base: Path, lora: Path, folder: Path) -> Path:
    return with_modules(base, lora, folder, "0_Transformer")


def of_a_head(base: Path, lora: Path, folder: Path) -> Path:
    """The adapter was trained on the network below a head, so its weights have another prefix."""
    target = Path(shutil.copytree(lora, folder / "lora"))
    weights = load_file(target / WEIGHTS)
    prefix = "base_model.model."
    save_file(
        {name.replace(prefix, f"{prefix}bert."): each for name, each in weights.items()}, target / WEIGHTS
    )
    return target


@pytest.mark.parametrize(
    ("layout", "backend"),
    [
        (None, "flag"), (None, "sentence-transformers"), (beside, "flag"), (with_modules, "flag"),
        (with_modules, "sentence-transformers"), (in_transformer, "sentence-transformers"),
        (of_a_head, "flag"),
    ],
)  # fmt: skip
def test_an_adapter_gives_the_vectors_of_merge_and_unload(
    layout: Callable[..., Path] | None, backend: str, bge_folder: Path, lora: Path, expected: Any,
    opened: Opened, store: Store, tmp_path: Path,
) -> None:  # huggingface/sentence-transformers#3865, #3052  # fmt: skip
    folder = layout(bge_folder, lora, tmp_path) if layout else lora
    encoder = opened(store, name=folder, backend=backend)
    np.testing.assert_allclose(vectors(encoder), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    base = vectors(opened(store, name=bge_folder, backend=backend))
    assert np.abs(base - expected).max() > 0.01
    assert str(encoder.model.decided["adapter"].value).startswith(f"LORA of rank {RANK}, of ")


def test_the_key_has_the_content_of_both(
    bge_folder: Path, lora: Path, opened: Opened, store: Store, tmp_path: Path
) -> None:
    folder = beside(bge_folder, lora, tmp_path)

    def key() -> object:
        return opened(store, name=folder, backend="flag").model.recipe("passages")

    keys = [key()]
    for path in (folder / WEIGHTS, tmp_path / "base" / "model.safetensors"):
        weights = load_file(path)
        save_file({name: weight + 0.01 for name, weight in weights.items()}, path, metadata={"format": "pt"})
        keys.append(key())
    assert keys[0] != keys[1] != keys[2]


def other_rank(folder: Path) -> None:
    change_adapter(folder, r=8)


def other_target(folder: Path) -> None:
    change_adapter(folder, target_modules=["gate_proj"])


def other_layers(folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    save_file(
        {name.replace("layer.1.", "layer.7."): each for name, each in weights.items()}, folder / WEIGHTS
    )


def more_tokens(folder: Path) -> None:  # huggingface/sentence-transformers#3052
    weights = load_file(folder / WEIGHTS)
    name = "base_model.model.embeddings.word_embeddings.weight"
    save_file({**weights, name: torch.zeros(30526, 128)}, folder / WEIGHTS)


def no_base(folder: Path) -> None:
    change_adapter(folder, base_model_name_or_path="/home/trainer/absent")


def own_weights(folder: Path) -> None:
    save_file({"a": torch.zeros(1)}, folder / "model.safetensors")


def of_tokens(folder: Path) -> None:
    change_adapter(folder, peft_type="PROMPT_TUNING", num_virtual_tokens=4, task_type="FEATURE_EXTRACTION")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            other_rank,
            r"does not fit its base .*lora_A\S* has the shape \[4, 128\], and is declared as \[8, 128\]",
        ),
        (other_target, r"does not fit its base .*gate_proj"),
        (other_layers, r"does not fit its base .*weights .*such as .*layer\.7"),
        (more_tokens, r"does not fit its base .*has embeddings of 30526 tokens, and its base has 30522"),
        (no_base, r"adapter of '/home/trainer/absent', which is not found"),
        (own_weights, r"its folder has weights of its own, model\.safetensors"),
        (of_tokens, r"of the type PROMPT_TUNING, of tokens before"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    fault: Callable[[Path], None], said: str, lora: Path, opened: Opened, store: Store, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(lora, tmp_path / "lora"))
    fault(folder)
    with pytest.raises(InputError, match=said):
        opened(store, name=folder, backend="flag")


@pytest.mark.parametrize("backend", ["native", "openvino", "onnx"])
def test_backends_that_merge_nothing_refuse_an_adapter_by_name(
    backend: str, lora: Path, opened: Opened, store: Store
) -> None:
    with pytest.raises(InputError, match=rf"is a PEFT adapter, which backend '{backend}' does not support"):
        opened(store, name=lora, backend=backend)


def test_a_run_merges_an_adapter_and_compare_finds_one_that_changes_nothing(
    bge_folder: Path, lora: Path, tmp_path: Path
) -> None:  # QwenLM/Qwen3-Embedding#167
    idle = Path(shutil.copytree(lora, tmp_path / "idle"))
    weights = load_file(idle / WEIGHTS)
    save_file({name: weight * ("lora_A" in name) for name, weight in weights.items()}, idle / WEIGHTS)
    config = {"data": {"source": "sample", "queries": 5, "corpus": 40}, "cache": str(tmp_path / "indexes")}
    config |= {
        "output": str(tmp_path / "results"),
        "search": {"top_k": 10},
        "evaluate": {"measures": ["ndcg@10"]},
    }
    config["sweep"] = [
        {"name": name, "model": {"name": str(path), "backend": backend}}
        for name, path, backend in (
            ("base", bge_folder, "flag"),
            ("tuned", lora, "auto"),
            ("idle", idle, "flag"),
        )
    ]
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    document("run", tmp_path / "c.yaml")
    said = on_one_line(
        benchmarco("compare", *(tmp_path / "results" / name for name in ("base", "tuned", "idle")))
    )
    assert "base and idle have the same values for all queries" in said
    assert "base and tuned have" not in said
    (model,) = read_json(tmp_path / "results" / "tuned" / "manifest.json")["models"]
    assert model["settings"]["backend"] == {"value": "flag", "source": "auto"}
