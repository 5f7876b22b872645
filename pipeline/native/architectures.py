"""How the layers of each architecture are made: a torch network, taken apart into what the kernels read.

An architecture is a function here from the network, as transformers loads it, to a `Network`, and a line of
`ARCHITECTURES`. Layers differ in where normalization stands, in the feed-forward layer, in how the place of a
token enters and in which tokens see each other; `Network` and `Layer` have a field for each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32
from pipeline.native.attention import EVERYWHERE


class Affine(NamedTuple):
    """A linear layer, or a layer normalization."""

    weight: Float32  # [outputs, inputs], or [width]
    bias: Float32  # [outputs], or [width]


class Layer(NamedTuple):
    """A layer of a network."""

    query: Affine
    key: Affine
    value: Affine
    out_proj: Affine  # output projection of attention
    attn_norm: Affine | None  # after the sum of attention and its input, or before attention; None is neither
    up: Affine  # first feed-forward layer, which is activated
    other: Affine | None  # what the activated numbers are multiplied by; None for a plain feed-forward
    down: Affine
    output: Affine  # after the sum of feed-forward and its input, or before the feed-forward
    window: int = EVERYWHERE  # the largest distance of two tokens that see each other
    table: int = 0  # which of `Network.rope` gives the angles of positions


class Network(NamedTuple):
    """A network, taken apart."""

    words: Float32  # token embeddings [vocabulary, width]
    positions: Float32  # position embeddings [positions, width], of no rows if there are none
    types: Float32  # embeddings of token types [types, width]
    embedding_norm: Affine  # of their sum
    layers: Sequence[Layer]
    heads: int
    epsilon: float
    longest: int  # the largest number of tokens
    padding: int = -1  # positions are counted from this id + 1, as RoBERTa's; -1 counts from 0
    activation: str = "gelu"
    last: Affine | None = None  # of the last hidden states, if normalization comes before attention
    rope: Float32 | None = None  # [tables, longest, size of a head]: cosines, then sines, of rotary positions
    biases: Float32 | None = None  # of attention [heads, 2 longest - 1], by how far a key is ahead


def take_apart(body: Any) -> Network:
    """The parts of a network that transformers loaded.

    Raises:
        ValueError: It is of another architecture, or some of its settings are not supported.
    """
    kind = f"{type(body).__module__}.{type(body).__name__}".removeprefix("transformers.models.")
    if kind not in ARCHITECTURES:
        raise ValueError(f"it is a {type(body).__name__}")
    if body.config._attn_implementation not in ("sdpa", "eager"):
        raise ValueError(f"its attention is {body.config._attn_implementation}")
    network = ARCHITECTURES[kind](body)
    allowed = ("gelu",) if network.layers[0].other is None else ("gelu", "silu")
    if network.activation not in allowed:
        raise ValueError(f"it is a {type(body).__name__} with {network.activation}")
    return network


def _bert(body: Any) -> Network:
    """BERT, and RoBERTa and its kin, whose positions are counted from the padding id + 1."""
    config, embeddings = body.config, body.embeddings
    if config.is_decoder or getattr(config, "position_embedding_type", "absolute") != "absolute":
        raise ValueError("it is a decoder, or its positions are not absolute")
    counted = "Roberta" in type(body).__name__
    padding = embeddings.padding_idx if counted else -1

    def layer(module: Any) -> Layer:
        own = module.attention.self
        return Layer(
            affine(own.query), affine(own.key), affine(own.value), affine(module.attention.output.dense),
            affine(module.attention.output.LayerNorm), affine(module.intermediate.dense), None,
            affine(module.output.dense), affine(module.output.LayerNorm),
        )  # fmt: skip

    layers = [layer(module) for module in body.encoder.layer]
    longest = embeddings.position_embeddings.num_embeddings - padding - 1
    return _network(body, layers, config.hidden_act, longest, padding=padding)


def _distilbert(body: Any) -> Network:
    """DistilBERT: BERT without token types."""

    def layer(module: Any) -> Layer:
        own = module.attention
        return Layer(
            affine(own.q_lin), affine(own.k_lin), affine(own.v_lin), affine(own.out_lin),
            affine(module.sa_layer_norm), affine(module.ffn.lin1), None, affine(module.ffn.lin2),
            affine(module.output_layer_norm),
        )  # fmt: skip

    layers = [layer(module) for module in body.transformer.layer]
    longest = body.embeddings.position_embeddings.num_embeddings
    return _network(body, layers, body.config.activation, longest)


def _mpnet(body: Any) -> Network:
    """MPNet: RoBERTa without token types, with a bias of each head for the distance of two tokens."""
    import torch

    def layer(module: Any) -> Layer:
        own = module.attention.attn
        return Layer(
            affine(own.q), affine(own.k), affine(own.v), affine(own.o), affine(module.attention.LayerNorm),
            affine(module.intermediate.dense), None, affine(module.output.dense),
            affine(module.output.LayerNorm),
        )  # fmt: skip

    padding = body.embeddings.padding_idx
    longest = body.embeddings.position_embeddings.num_embeddings - padding - 1
    ahead = torch.arange(1 - longest, longest)
    buckets = body.encoder.relative_position_bucket(ahead).numpy()
    biases = np.ascontiguousarray(array_of(body.encoder.relative_attention_bias)[buckets].T)
    layers = [layer(module) for module in body.encoder.layer]
    return _network(body, layers, body.config.hidden_act, longest, padding=padding, biases=biases)


def _rotary(body: Any) -> Network:
    """Nomic-BERT and GTE: rotary positions, and a gated feed-forward."""
    config, rotary = body.config, body.rotary_emb

    def layer(module: Any) -> Layer:
        own, feed = module.self_attn, module.mlp
        return Layer(
            affine(own.q_proj), affine(own.k_proj), affine(own.v_proj), affine(own.o_proj),
            affine(module.post_attention_layernorm), affine(feed.gate_proj), affine(feed.up_proj),
            affine(feed.down_proj), affine(module.post_mlp_layernorm),
        )  # fmt: skip

    longest = config.max_position_embeddings
    rope = _rope(rotary.rope_type, rotary.inv_freq, rotary.attention_scaling, longest)
    layers = [layer(module) for module in body.layers]
    return _network(body, layers, config.hidden_act, longest, rope=rope[None])


def _modernbert(body: Any) -> Network:
    """ModernBERT: normalization first, rotary positions, a gated feed-forward, and windows in most layers."""
    config, rotary = body.config, body.rotary_emb
    kinds = sorted(set(config.layer_types))
    window = {"full_attention": EVERYWHERE, "sliding_attention": config.sliding_window}

    def layer(module: Any) -> Layer:
        query, key, value = _parts(affine(module.attn.Wqkv), 3)
        up, other = _parts(affine(module.mlp.Wi), 2)
        norm = affine(module.attn_norm) if hasattr(module.attn_norm, "weight") else None
        kind = module.attention_type
        return Layer(
            query, key, value, affine(module.attn.Wo), norm, up, other, affine(module.mlp.Wo),
            affine(module.mlp_norm), window[kind], kinds.index(kind),
        )  # fmt: skip

    words, longest = array_of(body.embeddings.tok_embeddings), config.max_position_embeddings
    rope = [
        _rope(
            rotary.rope_type[kind],
            getattr(rotary, f"{kind}_inv_freq"),
            getattr(rotary, f"{kind}_attention_scaling"),
            longest,
        )
        for kind in kinds
    ]
    return Network(
        words=words,
        positions=_zeros(words)[:0],
        types=_zeros(words),
        embedding_norm=affine(body.embeddings.norm),
        layers=[layer(module) for module in body.layers],
        heads=config.num_attention_heads,
        epsilon=config.norm_eps,
        longest=longest,
        activation=_named(config.hidden_activation),
        last=affine(body.final_norm),
        rope=np.stack(rope),
    )


ARCHITECTURES: dict[str, Callable[[Any], Network]] = {
    "bert.modeling_bert.BertModel": _bert,
    "roberta.modeling_roberta.RobertaModel": _bert,
    "xlm_roberta.modeling_xlm_roberta.XLMRobertaModel": _bert,
    "distilbert.modeling_distilbert.DistilBertModel": _distilbert,
    "mpnet.modeling_mpnet.MPNetModel": _mpnet,
    "nomic_bert.modeling_nomic_bert.NomicBertModel": _rotary,
    "gte.modeling_gte.GteModel": _rotary,
    "modernbert.modeling_modernbert.ModernBertModel": _modernbert,
}
"""By class of transformers the function that takes it apart.

Full names are compared because a model's own Python files may define classes of the same name."""


def _network(body: Any, layers: Sequence[Layer], activation: Any, longest: int, **others: Any) -> Network:
    """A network whose embeddings are named as BERT's; `others` are fields of `Network`."""
    embeddings = body.embeddings
    words = array_of(embeddings.word_embeddings)
    positions, types = (getattr(embeddings, f"{n}_embeddings", None) for n in ("position", "token_type"))
    return Network(
        words=words,
        positions=_zeros(words)[:0] if positions is None else array_of(positions),
        types=_zeros(words) if types is None else array_of(types),
        embedding_norm=affine(embeddings.LayerNorm),
        layers=layers,
        heads=body.config.num_attention_heads,
        epsilon=embeddings.LayerNorm.eps,
        longest=longest,
        activation=_named(activation),
        **others,
    )


def _rope(kind: str, frequencies: Any, scaling: float, longest: int) -> Float32:
    """Cosines and sines of the angles of each position, as transformers computes them."""
    import torch

    if kind not in ("default", "linear"):
        raise ValueError(f"its rotary positions are of the type {kind}")
    angles = torch.arange(longest)[:, None].float() * frequencies.float()
    rope: Float32 = (torch.cat([angles.cos(), angles.sin()], dim=1) * scaling).numpy()
    return rope


def _parts(joined: Affine, count: int) -> list[Affine]:
    """Linear layers that lie in one, one below the other."""
    pairs = zip(np.split(joined.weight, count), np.split(joined.bias, count), strict=True)
    return [Affine(weight, bias) for weight, bias in pairs]


def affine(module: Any) -> Affine:
    """A torch module; its bias is zeros where it has none."""
    weight = array_of(module)
    bias = np.zeros(len(weight), np.float32) if module.bias is None else array_of(module, "bias")
    return Affine(weight, bias)


def array_of(module: Any, part: str = "weight") -> Float32:
    """A parameter of a torch module."""
    array: Float32 = getattr(module, part).detach().float().numpy()
    return array


def _zeros(words: Float32) -> Float32:
    """One row of zeros, as wide as embeddings."""
    return np.zeros((1, words.shape[1]), np.float32)


def _named(activation: Any) -> str:
    return activation if isinstance(activation, str) else type(activation).__name__
