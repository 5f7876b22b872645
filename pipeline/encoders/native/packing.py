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
from pipeline.encoders.agreement import torch_vectors
from pipeline.encoders.conversion import Settings, pooled_network
from pipeline.encoders.native import abilities
from pipeline.encoders.native.kernels import PANEL, pack_rows
from pipeline.encoders.native.m3 import m3_network
from pipeline.encoders.native.reference import LINEAR, matrix_file
from pipeline.encoders.native.splade import splade_network
from pipeline.encoders.torch.first_token import is_standard_bert
from pipeline.encoders.torch.m3 import WORD_HEAD
from pipeline.models.tokenizer import write_tokenizer

TORCH_VECTORS = "torch_vectors.npz"  # for the check of the packed model


def pack_model(folder: Path, target: Path, settings: Settings) -> None:
    """Write the model in `folder` as `PackedModel` reads it, used with these settings.

    `target` is the `.npz` to write. Beside it go the tokenizer as `tokenizer.json`, torch's vectors of a few
    texts as `torch_vectors.npz`, and the matrices of linear layers in fp32, as `reference` reads them.
    """
    name, pad_id = settings.name, settings.pad_id
    tokenizer = write_tokenizer(folder, target.with_name("tokenizer.json"), name, settings.trust_remote_code)
    network, more = _network(folder, settings)
    np.savez(target, **network_arrays(network.body), **more)
    for kind in LINEAR:
        matrices = _matrices(kind, list(network.body.encoder.layer))
        np.save(target.with_name(matrix_file(kind)), matrices, allow_pickle=False)
    expected = torch_vectors(network, name, tokenizer, pad_id)
    np.savez(target.with_name(TORCH_VECTORS), **expected._asdict())


def _network(folder: Path, settings: Settings) -> tuple[Any, dict[str, Any]]:
    """The network of an output in torch, and the arrays of its head."""
    if settings.output == "dense":
        return pooled_network(folder, settings), {}
    if (folder / WORD_HEAD).is_file():
        of_m3 = m3_network(folder, settings)
        return of_m3, of_m3.arrays
    splade = splade_network(folder, settings)
    return splade, splade_arrays(splade)


def network_arrays(body: Any, of_pairs: bool = False) -> dict[str, Any]:
    """All arrays of a network, by the names that `PackedNetwork` reads.

    With `of_pairs` tokens may be of any type: the position embeddings are stored once for each type, with
    that type's embedding added.
    """
    config = body.config
    if not is_standard_bert(body) or config.hidden_act != "gelu":
        raise ValueError(f"it is a {type(body).__name__} with {getattr(config, 'hidden_act', 'no GELU')}")
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    if not abilities.fits(width, inner, heads):
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
        **_linear("query", layers),
        **_linear("key_value", layers),
        **_linear("mixed", layers),
        **_norm("attended", layers, lambda layer: layer.attention.output.LayerNorm),
        **_linear("up", layers),
        **_linear("down", layers),
        **_norm("output", layers, lambda layer: layer.output.LayerNorm),
    }


def splade_arrays(network: Any) -> dict[str, Any]:
    """The arrays of a `splade_network`'s head, by the names that `PackedSplade` and `Fp32Splade` read."""
    transform, norm, decoder = network.head
    words = _array(decoder)
    padded = np.pad(words, ((0, -len(words) % PANEL), (0, 0)))
    bias = np.pad(_array(decoder, "bias"), (0, -len(words) % PANEL))
    layers = {
        "transform": (_array(transform), _array(transform, "bias")),
        "decoder": (padded, bias),
    }
    found: dict[str, Any] = {
        "logarithms": np.int64(network.logarithms),
        "transformed.weight": _array(norm)[None],
        "transformed.bias": _array(norm, "bias")[None],
        "transform.fp32": _array(transform),
    }
    for name, (matrix, own_bias) in layers.items():
        pairs, factors = pack_rows(matrix)
        found |= {
            f"{name}.pairs": pairs[None],
            f"{name}.factors": factors[None],
            f"{name}.bias": own_bias[None],
        }
    return found


_MODULES: dict[str, Callable[[Any], list[Any]]] = {
    "query": lambda layer: [layer.attention.self.query],
    "key_value": lambda layer: [layer.attention.self.key, layer.attention.self.value],
    "mixed": lambda layer: [layer.attention.output.dense],
    "up": lambda layer: [layer.intermediate.dense],
    "down": lambda layer: [layer.output.dense],
}
"""By kind of linear layer the modules of a layer that are joined, one below the other."""


def _joined(kind: str, layer: Any, part: str) -> Float32:
    """The weights or biases of one kind of linear layer; a query is divided by the root of a head's width."""
    joined: Float32 = np.concatenate([_array(module, part) for module in _MODULES[kind](layer)])
    if kind == "query":
        joined = joined * np.float32(layer.attention.self.attention_head_size**-0.5)
    return joined


def _matrices(kind: str, layers: list[Any]) -> Float32:
    """The weights of one kind of linear layer, float32 [layers, n, k]."""
    return np.stack([_joined(kind, layer, "weight") for layer in layers])


def _linear(name: str, layers: list[Any]) -> dict[str, Any]:
    """One kind of linear layer, packed, of all layers."""
    packed = [pack_rows(matrix) for matrix in _matrices(name, layers)]
    return {
        f"{name}.pairs": np.stack([pairs for pairs, _ in packed]),
        f"{name}.factors": np.stack([factors for _, factors in packed]),
        f"{name}.bias": np.stack([_joined(name, layer, "bias") for layer in layers]),
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
