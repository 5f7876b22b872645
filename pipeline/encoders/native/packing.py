"""How are a torch model's weights packed in int16? Scaled row by row, in the order they are read in.

python -m pipeline.encoders.native.packing FOLDER OUT.npz '{"pooling": "cls", "normalize": true, "pad_id": 0}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import Float32
from pipeline.encoders.native.kernels import PANEL, pack
from pipeline.encoders.reference import expected, torch_network
from pipeline.encoders.torch.first_token import is_plain
from pipeline.models.loading import write_tokenizer

EXPECTED = "expected.npz"
HEAD = 32  # a head's width is a multiple of it


def write(
    folder: Path, target: Path, pooling: str, normalize: bool, pad_id: int, trust_remote_code: bool = False
) -> None:
    """Write a model as `packed.Packed` reads it.

    Args:
        folder: Of the model's files.
        target: The `.npz` to write. Beside it go the tokenizer that transformers makes of the model's files,
            as `tokenizer.json`, and what torch gives for a few texts, as `expected.npz`.
        pooling: `cls`, `mean` or `last_token`.
        normalize: Whether vectors are scaled to length 1.
        pad_id: The padding token.
        trust_remote_code: Whether Python files that come with the model may run.

    Raises:
        ValueError: The model is of another kind, or has no fast tokenizer.
    """
    write_tokenizer(folder, target.with_name("tokenizer.json"), trust_remote_code)
    network = torch_network(folder, pooling, normalize, trust_remote_code)
    np.savez(target, **_arrays(network.body))
    np.savez(target.with_name(EXPECTED), **expected(network, pad_id)._asdict())


def _arrays(body: Any) -> dict[str, Any]:
    """Everything of a model by the names that `packed.Packed` reads."""
    config = body.config
    if not is_plain(body) or config.hidden_act != "gelu":
        raise ValueError(f"it is a {type(body).__name__} with {getattr(config, 'hidden_act', 'no GELU')}")
    width, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    if width % PANEL or inner % PANEL or width // heads % HEAD:
        raise ValueError(f"its layers are {width} and {inner} wide, with {heads} heads")
    embeddings, layers = body.embeddings, list(body.encoder.layer)
    kinds = _array(embeddings.token_type_embeddings)[0]
    counts_on = "Roberta" in type(body).__name__
    return {
        "words": _array(embeddings.word_embeddings),
        "positions": _array(embeddings.position_embeddings) + kinds,
        "heads": np.int64(heads),
        "epsilon": np.float32(config.layer_norm_eps),
        "padding": np.int64(embeddings.padding_idx if counts_on else -1),
        "embedded.weight": _array(embeddings.LayerNorm),
        "embedded.bias": _array(embeddings.LayerNorm, "bias"),
        **_linear("query", layers, lambda of: [of.attention.self.query], (width // heads) ** -0.5),
        **_linear("key_value", layers, lambda of: [of.attention.self.key, of.attention.self.value]),
        **_linear("mixed", layers, lambda of: [of.attention.output.dense]),
        **_norm("attended", layers, lambda of: of.attention.output.LayerNorm),
        **_linear("up", layers, lambda of: [of.intermediate.dense]),
        **_linear("down", layers, lambda of: [of.output.dense]),
        **_norm("output", layers, lambda of: of.output.LayerNorm),
    }


def _linear(
    name: str, layers: list[Any], modules: Callable[[Any], list[Any]], factor: float = 1.0
) -> dict[str, Any]:
    """One linear layer of all layers; several modules are put below each other, all times a factor."""

    def joined(layer: Any, part: str) -> Float32:
        return np.concatenate([_array(module, part) for module in modules(layer)]) * np.float32(factor)

    packed = [pack(joined(layer, "weight")) for layer in layers]
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
    write(Path(sys.argv[1]), Path(sys.argv[2]), **json.loads(sys.argv[3]))
