"""Public interface to vectors: networks packed in int16, which compute token batches.

A packed network is an `.npz`: `network_arrays` of a torch network, and the arrays of its head. `Fp32Model`,
`Fp32Splade` and `Fp32M3` compute the same from the same files in fp32, without the kernels, to compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from typing_extensions import override

from pipeline.core import machine
from pipeline.core.records import Float32, Int64
from pipeline.native.compiling import compiling
from pipeline.native.forward import compile_forward, forward, largest_logits, project
from pipeline.native.layers import LayerNorm, LayerVariant, Layout, Linear, Weights
from pipeline.native.packing import network_arrays, network_matrices, splade_arrays, token_arrays
from pipeline.native.reference import MATRICES, Fp32M3, Fp32Model, Fp32Splade

__all__ = [
    "MATRICES", "Fp32M3", "Fp32Model", "Fp32Splade", "Linear", "PackedM3", "PackedModel", "PackedNetwork",
    "PackedSplade", "compile_forward", "network_arrays", "network_matrices", "project",
    "splade_arrays", "token_arrays",
]  # fmt: skip


class PackedNetwork:
    """A network read from an `.npz` of the arrays of `network_arrays`."""

    def __init__(self, path: Path) -> None:
        on_tiles = machine.has_amx()
        with np.load(path, allow_pickle=False) as stored:

            def load(name: str, kind: Any) -> Any:
                if kind not in (Layout, LayerNorm, Linear, LayerVariant):
                    value = stored[name]
                    is_array = value.ndim or kind is Any  # a float32 stays one
                    return value[()] if is_array else value.item()
                kinds = [each for each in get_type_hints(kind).items() if each[0] != "planes"]
                made = kind(*(load(f"{name}.{field}", field_kind) for field, field_kind in kinds))
                return made.on_tiles() if kind is Linear and on_tiles else made

            self.weights = Weights(*(load(name, kind) for name, kind in get_type_hints(Weights).items()))
            self.layout: Layout = load("layout", Layout)
            self.variant: LayerVariant | None = (
                load("variant", LayerVariant) if "variant.gate" in stored else None
            )
            self.read(stored, load)
            self.padding = int(stored["padding"])  # -1 unless positions are counted from the padding id
            self.longest = int(stored["longest"])  # largest number of tokens of a text
        self.vocabulary, self.dimension = len(self.weights.words), self.layout.width
        self.positions = len(self.weights.positions)

    def read(self, stored: Any, load: Callable[[str, Any], Any]) -> None:
        """Read the head from the file, or by `load(name, type)`."""

    def hidden(self, ids: Int64, mask: Int64, only_first: bool) -> tuple[Float32, Int64]:
        """The last hidden states of a batch's tokens; padding is not computed.

        Args:
            ids: int64 [b, tokens].
            mask: int64 [b, tokens], 1 at a token and 0 at padding.
            only_first: Whether to compute those of each text's first token alone.

        Returns:
            The states float32 [n, dimension], one text after another, and the row in them of each text's
            first token with the end, int64 [b + 1]; or float32 [b, dimension] with `only_first`.
        """
        is_token = _computed(mask)
        texts: Int64 = np.concatenate([[0], np.cumsum(is_token.sum(axis=1))])
        positions = self._positions(ids)
        hidden: Float32 = forward(
            ids[is_token], positions[is_token], texts, self.weights, self.layout, self.variant, only_first
        )
        return np.ascontiguousarray(hidden[:, : self.dimension]), texts

    def compile(self) -> None:
        """Compile the kernels for this network, or load them from disk, by computing one token."""
        one = np.ones((1, 1), np.int64)
        with compiling():
            self.run(one - 1, one)

    def run(self, ids: Int64, mask: Int64) -> Any:
        """What the network gives for a batch."""
        raise NotImplementedError

    def _positions(self, ids: Int64) -> Int64:
        """Positions int64 [b, tokens]: BERT's from 0, RoBERTa's from the padding id + 1, skipping padding."""
        if self.positions == 1:  # a row of zeros, for a network without position embeddings
            return np.zeros_like(ids)
        if self.padding < 0:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = (ids != self.padding).astype(np.int64)
        counted: Int64 = np.cumsum(real, axis=1) * real + self.padding
        return counted


def _computed(mask: Int64) -> Any:
    """The tokens that are computed, bool [b, tokens]: a text without tokens keeps one."""
    is_token = mask.astype(bool)
    is_token[:, 0] = True
    return is_token


class PackedModel(PackedNetwork):
    """A model whose vector is pooled from its hidden states; `pooling` is that of a `Model`."""

    def __init__(self, path: Path, pooling: str) -> None:
        super().__init__(path)
        self.pooling = pooling

    def vectors(self, ids: Int64, mask: Int64) -> Float32:
        """Token ids and mask [b, tokens] to vectors float32 [b, dimension]."""
        hidden, texts = self.hidden(ids, mask, self.pooling == "cls")
        if self.pooling == "mean":
            sums: Float32 = np.add.reduceat(hidden, texts[:-1], dtype=np.float32)
            hidden = np.divide(sums, np.diff(texts)[:, None], dtype=np.float32)
        elif self.pooling == "last_token":
            hidden = hidden[texts[1:] - 1]
        return hidden

    run = vectors


class PackedSplade(PackedNetwork):
    """A masked language model as a SPLADE, with the arrays of `splade_arrays`."""

    @override
    def read(self, stored: Any, load: Callable[[str, Any], Any]) -> None:
        self.transform, self.norm = load("transform", Linear), load("transformed", LayerNorm)
        self.decoder = load("decoder", Linear)
        self.logarithms = int(stored["logarithms"])

    def vectors(self, ids: Int64, mask: Int64) -> Float32:
        """Token ids and mask [b, tokens] to weights float32 [b, words], most of them 0.

        A word's weight is log(1 + max(logit, 0)) of its largest logit over a text's tokens, of which some
        models take the logarithm twice.
        """
        hidden, texts = self.hidden(ids, mask, only_first=False)
        owners = np.repeat(np.arange(len(ids)), np.diff(texts))
        found = largest_logits(
            hidden, owners, len(ids), self.transform, self.norm, self.decoder, self.dimension,
            self.layout.epsilon,
        )  # fmt: skip
        weights: Float32 = found[:, : self.vocabulary]
        np.maximum(weights, 0, out=weights)
        for _ in range(self.logarithms):
            np.log1p(weights, out=weights, where=weights > 0)
        return weights

    run = vectors


class PackedM3(PackedNetwork):
    """BGE-M3 with the head of its word weights or token vectors: a number, or a vector, for each token.

    The file holds `head.weight` and `head.bias` besides, and for token vectors also `token_arrays` of them.
    """

    @override
    def read(self, stored: Any, load: Callable[[str, Any], Any]) -> None:
        self.weight, self.bias = stored["head.weight"], stored["head.bias"]
        self.linear = load("packed", Linear) if "packed.pairs" in stored else None
        self.unused = stored.get("head.unused")  # tokens without a weight

    def numbers(self, ids: Int64, mask: Int64) -> tuple[Float32, Int64, Int64]:
        """The head's numbers of all tokens, float32 [n, outputs]; the second result as that of `hidden`.

        The last result are the tokens' ids, int64 [n].
        """
        hidden, texts = self.hidden(ids, mask, only_first=False)
        if self.linear is None:
            # one output: `einsum` adds the products of a row in the same order whatever the number of rows
            numbers: Float32 = (np.einsum("tw,w->t", hidden, self.weight[0]) + self.bias)[:, None]
        else:
            numbers = project(hidden, self.linear)[:, : len(self.weight)]
        return numbers, texts, ids[_computed(mask)]

    run = numbers
