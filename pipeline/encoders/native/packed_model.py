"""A packed model of the native backend: token ids in, vectors out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from pipeline.core.records import Float32, Int64
from pipeline.encoders.native.kernels import Weights, forward


class PackedModel:
    """A model read from the `.npz` that `packing.pack_model` wrote, with settings of a `Model`."""

    def __init__(self, path: Path, pooling: str, normalize: bool) -> None:
        self.pooling, self.normalize = pooling, normalize
        with np.load(path, allow_pickle=False) as stored:

            def load(name: str, kind: Any) -> Any:
                if kind is Any:
                    return stored[name]
                return kind(*(stored[f"{name}.{field}"] for field in kind._fields))

            self.weights = Weights(*(load(name, kind) for name, kind in get_type_hints(Weights).items()))
            self.heads = int(stored["heads"])
            self.epsilon = np.float32(stored["epsilon"])
            self.padding = int(stored["padding"])  # -1 unless positions are counted from the padding id
        self.vocabulary, self.dimension = self.weights.words.shape
        self.longest = len(self.weights.positions) - self.padding - 1  # largest number of tokens of a text

    def vectors(self, ids: Int64, mask: Int64) -> Float32:
        """Token ids and mask [b, tokens] to vectors float32 [b, dimension]; padding is not computed."""
        kept = mask.astype(bool)
        kept[:, 0] = True  # a text without tokens keeps one
        texts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        only_first = self.pooling == "cls"
        positions = self._positions(ids)[kept]
        hidden: Float32 = forward(
            ids[kept], positions, texts, self.weights, self.heads, self.epsilon, only_first
        )
        if self.pooling == "mean":
            sums: Float32 = np.add.reduceat(hidden, texts[:-1], dtype=np.float32)
            hidden = np.divide(sums, np.diff(texts)[:, None], dtype=np.float32)
        elif self.pooling == "last_token":
            hidden = hidden[texts[1:] - 1]
        if self.normalize:
            hidden = hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), np.float32(1e-12))
        return hidden

    def _positions(self, ids: Int64) -> Int64:
        """Positions int64 [b, tokens]: BERT's from 0, RoBERTa's from the padding id + 1, skipping padding."""
        if self.padding < 0:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = (ids != self.padding).astype(np.int64)
        counted: Int64 = np.cumsum(real, axis=1) * real + self.padding
        return counted
