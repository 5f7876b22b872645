"""Packing of a torch model's weights in int16 for the native backend's kernels.

Matrices of all layers are scaled, rounded and reordered by `kernels.pack_rows`, and written together with
the embeddings, biases and normalizations, in fp32, to one `.npz`. Linear layers of the same input are joined
(keys and values), and constants are folded in: 1 / sqrt(width of a head) into the query projection, and the
embedding of token type 0, which every token has, into the position embeddings.

python -m pipeline.encoders.native.packing FOLDER OUT.npz SETTINGS

SETTINGS is the JSON of `pipeline.encoders.conversion.Settings`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import Float32
from pipeline.encoders.conversion import Settings, pooled_network, torch_vectors
from pipeline.encoders.native.kernels import PANEL, pack_rows
from pipeline.encoders.torch.first_token import is_standard_bert
from pipeline.models.tokenizer import write_tokenizer

TORCH_VECTORS = "torch_vectors.npz"  # for the check of the packed model
HEAD = 32  # a head's width must be a multiple of it


def pack_model(folder: Path, target: Path, settings: Settings) -> None:
    """Write the model in `folder` as `PackedModel` reads it, used with these settings.

    `target` is the `.npz` to write. The tokenizer goes beside it as `tokenizer.json`, and torch's vectors of
    a few texts as `torch_vectors.npz`.
    """
    write_tokenizer(folder, target.with_name("tokenizer.json"), settings.name, settings.trust_remote_code)
    network = pooled_network(folder, settings)
    np.savez(target, **network_arrays(network.body))
    np.savez(target.with_name(TORCH_VECTORS), **torch_vectors(network, settings.pad_id)._asdict())


def network_arrays(body: Any, of_pairs: bool = False) -> dict[str, Any]:
    """All arrays of a network, by the names that `PackedNetwork` reads.

    With `of_pairs` tokens may be of any type: the position embeddings are stored once for each type, with
    that type's embedding added.
    """
    config = body.config
    if not is_standard_bert(body) or config.hidden_act != "gelu":
        raise ValueError(f"it is a {type(body).__name__} with {getattr(config, 'hidden_act', 'no GELU')}")
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    if width % PANEL or inner % PANEL or width // heads % HEAD:
        raise ValueError(f"its layers are {width} and {inner} wide, with {heads} heads")
    embeddings = body.embeddings
    layers = list(body.encoder.layer)
    types = _array(embeddings.token_type_embeddings)
    positions = _array(embeddings.position_embeddings)
    every_type = {"types": np.int64(len(types))} if of_pairs else {}
    is_roberta = "Roberta" in type(body).__name__
    return {
        "words": _array(embeddings.word_embeddings),
        "positions": np.concatenate([positions + each for each in (types if of_pairs else types[:1])]),
        **every_type,
        "heads": np.int64(heads),
        "epsilon": np.float32(config.layer_norm_eps),
        "padding": np.int64(embeddings.padding_idx if is_roberta else -1),
        "embedded.weight": _array(embeddings.LayerNorm),
        "embedded.bias": _array(embeddings.LayerNorm, "bias"),
        **_linear("query", layers, lambda layer: [layer.attention.self.query], (width // heads) ** -0.5),
        **_linear("key_value", layers, lambda layer: [layer.attention.self.key, layer.attention.self.value]),
        **_linear("mixed", layers, lambda layer: [layer.attention.output.dense]),
        **_norm("attended", layers, lambda layer: layer.attention.output.LayerNorm),
        **_linear("up", layers, lambda layer: [layer.intermediate.dense]),
        **_linear("down", layers, lambda layer: [layer.output.dense]),
        **_norm("output", layers, lambda layer: layer.output.LayerNorm),
    }


def _linear(
    name: str, layers: list[Any], modules: Callable[[Any], list[Any]], factor: float = 1.0
) -> dict[str, Any]:
    """One kind of linear layer, of all layers: some modules below each other, times a factor."""

    def joined(layer: Any, part: str) -> Float32:
        return np.concatenate([_array(module, part) for module in modules(layer)]) * np.float32(factor)

    packed = [pack_rows(joined(layer, "weight")) for layer in layers]
    return {
        f"{name}.pairs": np.stack([pairs for pairs, _ in packed]),
        f"{name}.factors": np.stack([factors for _, factors in packed]),
        f"{name}.bias": np.stack([joined(layer, "bias") for layer in layers]),
    }


def _norm(name: str, layers: list[Any], module: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        f"{name}.{part}": np.stack([_array(module(layer), part) for layer in layers])
        for part in ("weight", "bias")
    }


def _array(module: Any, part: str = "weight") -> Float32:
    array: Float32 = getattr(module, part).detach().float().numpy()
    return array


if __name__ == "__main__":
    pack_model(Path(sys.argv[1]), Path(sys.argv[2]), Settings(**json.loads(sys.argv[3])))
