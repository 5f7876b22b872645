"""A packed network of the native backend: token ids in, hidden states, vectors or word weights out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from pipeline.core.records import Float32, Int64
from pipeline.encoders.native.forward import forward
from pipeline.encoders.native.heads import largest_logits
from pipeline.encoders.native.layers import LayerNorm, Layout, Linear, Parts, Weights


class PackedNetwork:
    """A network read from an `.npz` of the arrays of `packing.network_arrays`."""

    def __init__(self, path: Path) -> None:
        with np.load(path, allow_pickle=False) as stored:

            def load(name: str, kind: Any) -> Any:
                if kind not in (Layout, LayerNorm, Linear, Parts):
                    value = stored[name]
                    is_array = value.ndim or kind is Any  # a float32 stays one
                    return value[()] if is_array else value.item()
                kinds = get_type_hints(kind).items()
                return kind(*(load(f"{name}.{field}", field_kind) for field, field_kind in kinds))

            self.weights = Weights(*(load(name, kind) for name, kind in get_type_hints(Weights).items()))
            self.layout: Layout = load("layout", Layout)
            self.parts: Parts | None = load("parts", Parts) if "parts.gate" in stored else None
            self.read(stored, load)
            self.padding = int(stored["padding"])  # -1 unless positions are counted from the padding id
            self.longest = int(stored["longest"])  # largest number of tokens of a text
        self.vocabulary, self.dimension = len(self.weights.words), self.layout.width
        self.positions = len(self.weights.positions)

    def read(self, stored: Any, load: Callable[[str, Any], Any]) -> None:
        """Read what a subclass needs besides, from the file or by `load(name, type)`."""

    def hidden(self, ids: Int64, mask: Int64, only_first: bool) -> tuple[Float32, Int64]:
        """The last hidden states of a batch's tokens; padding is not computed.

        Args:
            ids: int64 [b, tokens].
            mask: int64 [b, tokens], 1 at a token and 0 at padding.
            only_first: Whether those of each text's first token are wanted alone.

        Returns:
            The states float32 [n, dimension], one text after another, and the row in them of each text's
            first token with the end, int64 [b + 1]; or float32 [b, dimension] with `only_first`.
        """
        kept = _kept(mask)
        texts: Int64 = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        positions = self._positions(ids)
        hidden: Float32 = forward(
            ids[kept], positions[kept], texts, self.weights, self.layout, self.parts, only_first
        )
        return np.ascontiguousarray(hidden[:, : self.dimension]), texts

    def compile(self) -> None:
        """Compile `forward` for this network, or load it from disk, by computing one token."""
        one = np.ones((1, 1), np.int64)
        self.hidden(one - 1, one, only_first=False)

    def kept_ids(self, ids: Int64, mask: Int64) -> Int64:
        """The ids of a batch's tokens, int64 [n], in the order of `hidden`."""
        kept: Int64 = ids[_kept(mask)]
        return kept

    def compared(self, ids: Int64, mask: Int64) -> Float32:
        """What is compared with torch of each text of a batch, float32 [b, numbers], when it is packed."""
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


def _kept(mask: Int64) -> Any:
    """The tokens that are computed, bool [b, tokens]: a text without tokens keeps one."""
    kept = mask.astype(bool)
    kept[:, 0] = True
    return kept


class PackedModel(PackedNetwork):
    """A model read from the `.npz` that `packing.pack_model` wrote, with the pooling of a `Model`."""

    def __init__(self, path: Path, pooling: str) -> None:
        super().__init__(path)
        self.pooling = pooling

    def vectors(self, ids: Int64, mask: Int64) -> Float32:
        """Token ids and mask [b, tokens] to vectors float32 [b, dimension]; padding is not computed."""
        hidden, texts = self.hidden(ids, mask, self.pooling == "cls")
        if self.pooling == "mean":
            sums: Float32 = np.add.reduceat(hidden, texts[:-1], dtype=np.float32)
            hidden = np.divide(sums, np.diff(texts)[:, None], dtype=np.float32)
        elif self.pooling == "last_token":
            hidden = hidden[texts[1:] - 1]
        return hidden

    compared = vectors


class PackedSplade(PackedNetwork):
    """A masked language model read from the `.npz` that `packing.pack_model` wrote, as a SPLADE."""

    def read(self, stored: Any, load: Callable[[str, Any], Any]) -> None:
        """See `PackedNetwork.read`."""
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

    compared = vectors
