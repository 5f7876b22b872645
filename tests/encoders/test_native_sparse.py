"""SPLADE models in int16: the weights that torch gives, whatever the company; which models are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import BACKENDS
from pipeline.core.display import silent
from pipeline.core.errors import InputError
from pipeline.core.records import Ragged
from pipeline.encoders import Encoder, Network, Usage, resolve
from pipeline.encoders import native_packing as packing
from pipeline.encoders.conversion import Settings
from pipeline.encoders.native_packing import splade_network
from pipeline.native.vectors import Fp32Splade
from pipeline.storage.store import Store

pytestmark = pytest.mark.usefixtures("quick_conversion")

SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 128, "initializer_range": 0.3, "pad_token_id": 0, "max_position_embeddings": 300,
}  # fmt: skip
NATIVE = {"backend": "native", "output": "sparse", "precision": "int16"}
SETTINGS = Settings("it", "", 0, False, "sparse")


@pytest.fixture
def saved(bge_folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a masked language model of a kind, with the tokenizer of another model."""

    def save(kind: str, **changed: Any) -> Path:
        import torch
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **changed})
        folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
        shutil.rmtree(folder / "1_Pooling")
        model = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
        torch.nn.init.normal_(model.get_output_embeddings().bias, std=0.2)
        model.save_pretrained(folder)
        return folder

    return save


def as_splade_pooling(folder: Path, **settings: Any) -> None:
    """Declare the modules of sentence-transformers."""
    modules = [
        {"path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
        {"path": "1_SpladePooling", "type": "sentence_transformers.sparse_encoder.models.SpladePooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_SpladePooling").mkdir()
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(settings), encoding="utf-8")


def opened(folder: Path, store: Store) -> Encoder:
    config = BACKENDS.make(name=str(folder), **NATIVE)
    model = resolve(config)
    return Encoder(config, model, Network(config, model).prepare(store).folder)


def encoded(encoder: Encoder, texts: list[str]) -> Any:
    """float32 [texts, words]."""
    with silent("", None, "") as bar:
        rows: Ragged = encoder.encode(texts, "passages", Usage(), bar)
    assert (rows.columns[1] > 0).all()
    whole = np.zeros((len(texts), SHAPE["vocab_size"]), np.float32)
    whole[np.repeat(np.arange(len(texts)), rows.lengths), rows.columns[0]] = rows.columns[1]
    return whole


@pytest.mark.parametrize(
    ("kind", "activation"),
    [("Bert", None), ("Bert", "log1p_relu"), ("XLMRoberta", "relu"), ("DistilBert", None)],
)
def test_weights_are_torch_s(
    kind: str, activation: str | None, saved: Callable[..., Path], own_models: Path, passages: list[str]
) -> None:
    import torch

    folder = saved(kind, **({"hidden_dim": 128} if kind == "DistilBert" else {}))
    if activation:
        as_splade_pooling(folder, pooling_strategy="max", activation_function=activation)
    texts = [*passages[:6], "a", "word " * 400]
    encoder = opened(folder, Store(own_models))
    together = encoded(encoder, texts)
    assert (np.concatenate([encoded(encoder, [text]) for text in texts]) == together).all()
    (weights,) = own_models.glob("native/*/weights.npz")
    network, reference = splade_network(folder, SETTINGS), Fp32Splade(weights)
    for text, row in zip(texts, together, strict=True):
        ids = torch.tensor([encoder.backend.tokenizer.encode(text).ids])
        with torch.inference_mode():
            expected = network(ids, torch.ones_like(ids))[0].numpy()
        assert row @ expected > 0.99999 * np.linalg.norm(row) * np.linalg.norm(expected)
        assert np.abs(row - expected).max() < 5e-3
        assert np.abs(reference.vector(ids[0].numpy()) - expected).max() < 5e-5


def test_another_model_is_refused(saved: Callable[..., Path], tmp_path: Path) -> None:
    folder = saved("Bert", hidden_act="relu")
    with pytest.raises(ValueError, match="BertModel with relu"):
        packing.pack_model(folder, tmp_path / "weights.npz", SETTINGS)
    shutil.rmtree(folder)
    folder = saved("Bert", tie_word_embeddings=False)
    with pytest.raises(InputError, match=r"not those of its embeddings.*backend to sentence-transformers"):
        opened(folder, Store(tmp_path / "store"))


@pytest.mark.parametrize(
    ("settings", "own", "said"),
    [
        ({"pooling_strategy": "sum"}, {}, "pooling strategy is sum"),
        ({"activation_function": "gelu"}, {}, "activation is gelu"),
        ({}, {"max_active_dims": 9}, "limits the number of words"),
        ({}, {"similarity_fn_name": "cosine"}, "scales weights to length 1"),
    ],
)
def test_another_head_is_refused(
    settings: dict[str, str], own: dict[str, Any], said: str, bge_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(bge_folder, tmp_path / "model"))
    as_splade_pooling(folder, **settings)
    (folder / "config_sentence_transformers.json").write_text(json.dumps(own), encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        splade_network(folder, SETTINGS)
