"""How does a packed model turn token ids into vectors?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import Float32, Int64
from pipeline.encoders.native import kernels as int16
from pipeline.encoders.native.kernels import Linear, Norm, Weights


class Packed:
    """A packed model, loaded.

    Args:
        path: What `packing.write` wrote.
        pooling: `cls`, `mean` or `last_token`.
        normalize: Whether vectors are scaled to length 1.
    """

    def __init__(self, path: Path, pooling: str, normalize: bool) -> None:
        self.pooling, self.normalize = pooling, normalize
        with np.load(path, allow_pickle=False) as stored:

            def part(kind: Any, name: str) -> Any:
                return kind(*(stored[f"{name}.{field}"] for field in kind._fields))

            self.weights = Weights(
                words=stored["words"],
                positions=stored["positions"],
                embedded=part(Norm, "embedded"),
                query=part(Linear, "query"),
                key_value=part(Linear, "key_value"),
                mixed=part(Linear, "mixed"),
                attended=part(Norm, "attended"),
                up=part(Linear, "up"),
                down=part(Linear, "down"),
                output=part(Norm, "output"),
            )
            self.heads, self.epsilon = int(stored["heads"]), np.float32(stored["epsilon"])
            self.padding = int(stored["padding"])
        self.vocabulary, self.dimension = self.weights.words.shape
        self.longest = len(self.weights.positions) - self.padding - 1  # tokens of a text

    def vectors(self, ids: Int64, mask: Int64) -> Float32:
        """Token ids and mask [b, tokens] to vectors [b, dimension]; padding is left out, not computed."""
        kept = mask.astype(bool)
        kept[:, 0] = True  # of a text without tokens
        texts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        cls = self.pooling == "cls"
        hidden: Float32 = int16.forward(
            ids[kept], self._positions(ids)[kept], texts, self.weights, self.heads, self.epsilon, cls
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
        """Of each token, int64 [b, tokens]: BERT counts from 0, RoBERTa what is not padding, from there."""
        if self.padding < 0:
            return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
        real = (ids != self.padding).astype(np.int64)
        counted: Int64 = np.cumsum(real, axis=1) * real + self.padding
        return counted
