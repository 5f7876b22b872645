"""Packing of a torch network's weights in int16 for the kernels.

Matrices of all layers are scaled, rounded and reordered by `integers`. Linear layers of the same input are
joined (keys and values, both halves of a gated feed-forward), and constants are folded in: 1 / sqrt(width of
a head) into the query projection, and the embedding of token type 0, which every token has, into the
position embeddings. To widths that the kernels do not compute, columns of zeros are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipeline.core.records import Float32
from pipeline.native.architectures import Affine, Layer, Network, affine, take_apart
from pipeline.native.attention import EVERYWHERE
from pipeline.native.integers import pack_blocks
from pipeline.native.layers import GELU, SILU
from pipeline.native.reference import MATRICES

WIDTH, HEAD = 64, 32  # a layer's width is rounded up to a multiple of the first, a head's to the second
ACTIVATIONS = {"gelu": GELU, "silu": SILU}


def network_arrays(body: Any) -> dict[str, Any]:
    """All arrays of a network, by the names that `PackedNetwork` and `Fp32Model` read."""
    network = take_apart(body)
    width, size = network.words.shape[1], len(network.layers[0].query.weight) // network.heads
    positions = network.positions if len(network.positions) else np.zeros((1, width), np.float32)
    norms = {
        "attn_norm": [layer.attn_norm or _nothing(width) for layer in network.layers],
        "output": [layer.output for layer in network.layers],
    }
    return {
        "words": _columns(network.words, WIDTH),
        "positions": _columns(positions + network.types[0], WIDTH),  # every token has type 0
        "padding": np.int64(network.padding),
        "longest": np.int64(network.longest),
        "embedding_norm.weight": _columns(network.embedding_norm.weight, WIDTH),
        "embedding_norm.bias": _columns(network.embedding_norm.bias, WIDTH),
        **{name: array for kind, each in norms.items() for name, array in _norms(kind, each).items()},
        **{
            name: array
            for kind in MATRICES
            for name, array in _packed(kind, _matrices(kind, network)).items()
        },
        "layout.width": np.int64(width),
        "layout.heads": np.int64(network.heads),
        "layout.size": np.int64(size + -size % HEAD),
        "layout.epsilon": np.float32(network.epsilon),
        **_variant(network),
    }


def _variant(network: Network) -> dict[str, Any]:
    """The arrays of `layers.LayerVariant`; none for a network whose layers are BERT's."""
    layers = network.layers
    gated, windowed = layers[0].other is not None, any(layer.window < EVERYWHERE for layer in layers)
    more = [part for part in (network.last, network.rope, network.biases) if part is not None]
    if not (gated or windowed or more):
        return {}
    rope, biases = network.rope, network.biases
    return {
        "variant.before": np.bool_(network.last is not None),
        "variant.normalized": np.array([layer.attn_norm is not None for layer in layers], np.int64),
        **_norms("variant.last", [network.last or _nothing(network.words.shape[1])]),
        "variant.gate": np.int64(ACTIVATIONS[network.activation] if gated else -1),
        "variant.windows": np.array([layer.window for layer in layers], np.int64),
        "variant.rope": np.ones((0, 1, 2), np.float32) if rope is None else rope,
        "variant.tables": np.array([layer.table for layer in layers], np.int64),
        "variant.biases": np.ones((0, 1), np.float32) if biases is None else biases,
    }


def _norms(name: str, norms: list[Affine]) -> dict[str, Any]:
    """One kind of normalization, of all layers."""
    return {
        f"{name}.{part}": np.stack([_columns(getattr(norm, part), WIDTH) for norm in norms])
        for part in Affine._fields
    }


def _nothing(width: int) -> Affine:
    """Stands where there is no normalization."""
    return Affine(*np.zeros((2, width), np.float32))


def splade_arrays(transform: Any, norm: Any, decoder: Any, logarithms: int) -> dict[str, Any]:
    """The arrays of a masked language model's head, by the names that `PackedSplade` and `Fp32Splade` read.

    Args:
        transform: Its first layer, a torch module.
        norm: The normalization of its outputs.
        decoder: The layer from there to words.
        logarithms: How many logarithms a weight goes through.

    Raises:
        ValueError: The head's width is no multiple of WIDTH; zeros are added to the layers below it alone.
    """
    first = affine(transform)
    _check_width(first.weight)
    return {
        "logarithms": np.int64(logarithms),
        **_norms("transformed", [affine(norm)]),
        "transform.fp32": first.weight,
        **_packed("transform", [first]),
        **_packed("decoder", [_rounded(affine(decoder))]),
    }


def token_arrays(weight: Float32, bias: Float32) -> dict[str, Any]:
    """A linear layer [n, k] for each token in int16, by the names that `PackedM3` reads.

    Raises:
        ValueError: k is no multiple of WIDTH.
    """
    _check_width(weight)
    return _packed("packed", [_rounded(Affine(weight, bias))])


def _check_width(weight: Float32) -> None:
    if weight.shape[1] % WIDTH:
        raise ValueError(f"the width of its head, {weight.shape[1]}, is no multiple of {WIDTH}")


def network_matrices(body: Any) -> Iterator[tuple[str, Float32]]:
    """The matrices in fp32 that `reference` reads: their file in `MATRICES`, float32 [layers, n, k]."""
    network = take_apart(body)
    for kind, name in MATRICES.items():
        yield name, np.stack([matrix.weight for matrix in _matrices(kind, network)])


def _query(layer: Layer, heads: int) -> Affine:
    size = len(layer.query.weight) // heads
    divided = Affine(*(part * np.float32(size**-0.5) for part in layer.query))
    return _rounded(_of_heads(divided, heads))


def _out_proj(layer: Layer, heads: int) -> Affine:
    transposed = Affine(layer.out_proj.weight.T, np.zeros(layer.out_proj.weight.shape[1], np.float32))
    return _rounded(Affine(_of_heads(transposed, heads).weight.T, layer.out_proj.bias))


_JOINED: dict[str, Callable[[Layer, int], Affine]] = {
    "query": _query,
    "key_value": lambda layer, heads: _stacked(
        [_rounded(_of_heads(each, heads)) for each in (layer.key, layer.value)]
    ),
    "out_proj": _out_proj,
    "up": lambda layer, heads: _stacked(
        [_rounded(each) for each in (layer.up, layer.other) if each is not None]
    ),
    "down": lambda layer, heads: _rounded(layer.down),
}
"""By kind of linear layer what it is of a layer with a number of heads: several joined, columns added."""


def _matrices(kind: str, network: Network) -> list[Affine]:
    """One kind of linear layer, of all layers."""
    return [_JOINED[kind](layer, network.heads) for layer in network.layers]


def _of_heads(matrix: Affine, heads: int) -> Affine:
    """A matrix with heads of rows, to each of which rows of zeros are added, to a multiple of `HEAD`."""
    weight, bias = (part.reshape(heads, -1, *part.shape[1:]) for part in matrix)
    more = -weight.shape[1] % HEAD
    weight, bias = np.pad(weight, ((0, 0), (0, more), (0, 0))), np.pad(bias, ((0, 0), (0, more)))
    return Affine(weight.reshape(-1, weight.shape[2]), bias.reshape(-1))


def _rounded(matrix: Affine) -> Affine:
    """A matrix with rows and columns of zeros added, to multiples of `WIDTH`."""
    weight = _columns(_columns(matrix.weight, WIDTH).T, WIDTH).T
    return Affine(np.ascontiguousarray(weight), _columns(matrix.bias, WIDTH))


def _stacked(matrices: list[Affine]) -> Affine:
    """Matrices with the same inputs, one below the other."""
    return Affine(*(np.concatenate(parts) for parts in zip(*matrices, strict=True)))


def _columns(array: Float32, multiple: int) -> Float32:
    """An array [..., n] with zeros added at the end of each row, to a multiple of a number."""
    more = [(0, 0)] * (array.ndim - 1) + [(0, -array.shape[-1] % multiple)]
    padded: Float32 = np.pad(array, more) if more[-1][1] else array
    return padded


def _packed(name: str, layers: list[Affine]) -> dict[str, Any]:
    """One kind of linear layer, of all layers."""
    packed = [pack_blocks(matrix.weight) for matrix in layers]
    return {
        f"{name}.pairs": np.stack([pairs for pairs, _ in packed]),
        f"{name}.factors": np.stack([factors for _, factors in packed]),
        f"{name}.bias": np.stack([matrix.bias for matrix in layers]),
    }
