"""SPLADE models in int16: the weights that torch gives, whatever the company; which models are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from workplaces import BAR

from pipeline import InputError
from pipeline.core import RaggedRows
from pipeline.encoders import Encoder, Usage
from pipeline.native import Fp32Splade
from pipeline.storage import Store

SHAPE = {
    "vocab_size": 30522, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 128, "initializer_range": 0.3, "pad_token_id": 0, "max_position_embeddings": 300,
}  # fmt: skip
NATIVE = {"backend": "native", "output": "sparse", "precision": "int16"}
Opened = Callable[..., Encoder]
Saved = Callable[..., Path]


def masked(kind: str, **changed: Any) -> Any:
    """A masked language model with random weights."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SHAPE, **changed})
    model = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
    torch.nn.init.normal_(model.get_output_embeddings().bias, std=0.2)
    return model


def as_splade_pooling(folder: Path, own: dict[str, Any], **settings: Any) -> None:
    """Declare the modules of a SparseEncoder of sentence-transformers, and settings of its own."""
    modules = [
        {"name": "0", "path": "", "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"},
        {
            "name": "1",
            "path": "1_SpladePooling",
            "type": "sentence_transformers.sparse_encoder.models.SpladePooling",
        },
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    own = {"model_type": "SparseEncoder", **own}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(own), encoding="utf-8")
    (folder / "1_SpladePooling").mkdir()
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(settings), encoding="utf-8")


def encoded(encoder: Encoder, texts: list[str]) -> Any:
    """float32 [texts, words]."""
    rows: RaggedRows = encoder.encode(texts, "passages", Usage(), BAR)
    assert (rows.columns[1] > 0).all()
    whole = np.zeros((len(texts), SHAPE["vocab_size"]), np.float32)
    whole[np.repeat(np.arange(len(texts)), rows.lengths), rows.columns[0]] = rows.columns[1]
    return whole


@pytest.mark.parametrize(
    ("kind", "activation"),
    [("Bert", None), ("Bert", "log1p_relu"), ("XLMRoberta", "relu"), ("DistilBert", None)],
)
def test_weights_are_torch_s(
    kind: str, activation: str | None, saved: Saved, opened: Opened, own_models: Path, passages: list[str]
) -> None:
    network = masked(kind, **({"hidden_dim": 128} if kind == "DistilBert" else {}))
    folder = saved(network)
    if activation:
        as_splade_pooling(folder, {}, pooling_strategy="max", activation_function=activation)
    texts = [*passages[:6], "a", "word " * 400]
    encoder = opened(Store(own_models), name=folder, **NATIVE)
    together = encoded(encoder, texts)
    assert (np.concatenate([encoded(encoder, [text]) for text in texts]) == together).all()
    (weights,) = own_models.glob("native/*/weights.npz")
    reference = Fp32Splade(weights)
    for text, row in zip(texts, together, strict=True):
        ids = torch.tensor([encoder.backend.tokenizer.encode(text).ids])
        with torch.inference_mode():
            found = network(ids).logits[0].relu().log1p().amax(dim=0)
        expected = (found.log1p() if activation == "log1p_relu" else found).numpy()
        assert row @ expected > 0.99999 * np.linalg.norm(row) * np.linalg.norm(expected)
        assert np.abs(row - expected).max() < 5e-3
        assert np.abs(reference.vector(ids[0].numpy()) - expected).max() < 5e-5


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tie_word_embeddings": False}, "not that of its embeddings"),
        ({"hidden_size": 96}, "the width of its head, 96, is no multiple of 64"),
    ],
)
def test_another_model_is_refused(
    changed: dict[str, Any], said: str, saved: Saved, opened: Opened, store: Store
) -> None:
    folder = saved(masked("Bert", **changed))
    with pytest.raises(InputError, match=rf"{said}.*backend to sentence-transformers"):
        opened(store, name=folder, **NATIVE)


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
    settings: dict[str, str], own: dict[str, Any], said: str, saved: Saved, opened: Opened, store: Store
) -> None:
    folder = saved(masked("Bert"))
    as_splade_pooling(folder, own, **settings)
    with pytest.raises(InputError, match=said):
        opened(store, name=folder, **NATIVE)
