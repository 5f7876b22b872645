"""A packed network as it was before it was packed: its forward pass in fp32, by NumPy, one text at a time.

It is the standard that the kernels are compared with while they encode, and shares no code with them. Its
weights stay on disk, mapped into memory, so that opening it takes neither time nor memory.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import Float32, Int32, Int64

MATRICES = {kind: f"{kind}.fp32.npy" for kind in ("query", "key_value", "out_proj", "up", "down")}
"""By kind of linear layer the file of its matrices, float32 [layers, n, k], beside the `.npz`."""


class Fp32Model:
    """The model whose packed weights are in `weights`, an `.npz`, and whose matrices lie beside it."""

    def __init__(self, weights: Path, pooling: str) -> None:
        from scipy.special import erf  # here, so that no import falls into the time of encoding

        self.pooling, self.erf = pooling, erf
        self.words = _mapped(weights, "words")
        with np.load(weights, allow_pickle=False) as stored:
            self.small = {
                name: stored[name]
                for name in stored.files
                if name != "words" and not name.endswith((".pairs", ".factors"))
            }
        paths = {kind: weights.with_name(name) for kind, name in MATRICES.items()}
        self.matrices = {
            kind: np.load(path, mmap_mode="r", allow_pickle=False) for kind, path in paths.items()
        }
        self.heads, self.size, self.width = (
            int(self.small[f"layout.{name}"]) for name in ("heads", "size", "width")
        )
        self.layers = len(self.matrices["query"])
        self.padding, self.before = int(self.small["padding"]), bool(self.small.get("variant.before", False))

    def vector(self, ids: Int32) -> Float32:
        """The vector float32 [dimension] of a text's token ids, int [tokens]; not normalized."""
        hidden = self.words[ids] + self.small["positions"][self._positions(ids)]
        norm = (self.small[f"embedding_norm.{part}"] for part in ("weight", "bias"))
        hidden = self._normalized(hidden, *norm)
        for layer in range(self.layers):
            hidden = self._layer(hidden, layer)
        if self.before:
            hidden = self._norm("variant.last", hidden, 0)
        return self._read(hidden[:, : self.width], ids)

    def _read(self, hidden: Float32, ids: Int32) -> Float32:
        """The vector, of the last hidden states [tokens, width] of some tokens."""
        pooled: Float32 = {
            "cls": lambda: hidden[0],
            "last_token": lambda: hidden[-1],
            "mean": lambda: hidden.mean(axis=0),
        }[self.pooling]()
        return pooled

    def _positions(self, ids: Int32) -> Int64:
        """BERT's count from 0; RoBERTa's from the padding id + 1, and padding tokens have that of its id."""
        if len(self.small["positions"]) == 1:
            return np.zeros(len(ids), np.int64)
        if self.padding < 0:
            return np.arange(len(ids))
        real = (ids != self.padding).astype(np.int64)
        counted: Int64 = np.cumsum(real) * real + self.padding
        return counted

    def _layer(self, hidden: Float32, layer: int) -> Float32:
        """One layer: attention and feed-forward, each added to its input; normalized before or after."""
        seen = hidden
        if self.before and self.small["variant.normalized"][layer]:
            seen = self._norm("attn_norm", hidden, layer)
        hidden = hidden + self._linear("out_proj", self._attention(seen, layer), layer)
        if not self.before:
            hidden = self._norm("attn_norm", hidden, layer)
        seen = self._norm("output", hidden, layer) if self.before else hidden
        hidden = hidden + self._linear("down", self._between(seen, layer), layer)
        return hidden if self.before else self._norm("output", hidden, layer)

    def _attention(self, seen: Float32, layer: int) -> Float32:
        """The weighted sums of values of all heads, [tokens, columns]."""
        tokens, small = len(seen), self.small
        query = self._heads(self._linear("query", seen, layer))  # divided by the root of a head's width
        keys, values = (self._heads(half) for half in np.split(self._linear("key_value", seen, layer), 2, 1))
        if len(small.get("variant.rope", ())):
            rope = small["variant.rope"][small["variant.tables"][layer]]
            query, keys = (self._rotated(each, rope) for each in (query, keys))
        scores = query @ keys.transpose(0, 2, 1)  # [heads, tokens, tokens]
        ahead = np.arange(tokens) - np.arange(tokens)[:, None]
        if len(small.get("variant.biases", ())):
            scores = scores + small["variant.biases"][:, ahead + small["variant.biases"].shape[1] // 2]
        if "variant.windows" in small:
            scores = np.where(np.abs(ahead) <= small["variant.windows"][layer], scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        weighted_sum = (weights @ values).transpose(1, 0, 2).reshape(tokens, -1)
        made: Float32 = np.pad(
            weighted_sum, ((0, 0), (0, self.matrices["out_proj"].shape[2] - weighted_sum.shape[1]))
        )
        return made

    def _between(self, seen: Float32, layer: int) -> Float32:
        """What the second layer of the feed-forward is given."""
        made = self._linear("up", seen, layer)
        gate = self.small.get("variant.gate", -1)
        if gate < 0:
            return self._gelu(made)
        left, right = np.split(made, 2, axis=1)
        is_gelu = gate == 0
        gated: Float32 = (self._gelu(left) if is_gelu else left / (1 + np.exp(-left))) * right
        return gated

    def _rotated(self, heads: Float32, rope: Float32) -> Float32:
        """Heads [heads, tokens, size] with each point turned by the angles of its token's position."""
        half = rope.shape[1] // 2
        cosines, sines = np.split(rope[: heads.shape[1]], 2, axis=1)
        left, right, rest = np.split(heads, [half, 2 * half], axis=2)
        return np.concatenate([left * cosines - right * sines, right * cosines + left * sines, rest], axis=2)

    def _linear(self, kind: str, x: Float32, layer: int) -> Float32:
        product: Float32 = x @ self.matrices[kind][layer].T + self.small[f"{kind}.bias"][layer]
        return product

    def _heads(self, x: Float32) -> Float32:
        """[tokens, columns] as [heads, tokens, size]; there may be more columns."""
        return x[:, : self.heads * self.size].reshape(len(x), self.heads, -1).transpose(1, 0, 2)

    def _gelu(self, x: Float32) -> Float32:
        """Multiply x by the normal distribution function of x."""
        result: Float32 = x * (0.5 * (1 + self.erf(x * np.float32(2**-0.5))))
        return result

    def _norm(self, kind: str, x: Float32, layer: int) -> Float32:
        weight, bias = (self.small[f"{kind}.{part}"][layer] for part in ("weight", "bias"))
        return self._normalized(x, weight, bias)

    def _normalized(self, x: Float32, weight: Float32, bias: Float32) -> Float32:
        """Rows normalized, but for the columns that were added, which stay 0."""
        used = x[:, : self.width]
        centred = used - used.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        scaled = centred / np.sqrt(variance + self.small["layout.epsilon"])
        more = ((0, 0), (0, x.shape[1] - self.width))
        normalized: Float32 = np.pad(scaled, more) * weight[: x.shape[1]] + bias[: x.shape[1]]
        return normalized


class Fp32Splade(Fp32Model):
    """The same of a SPLADE; its vector has a weight for each word of the vocabulary."""

    def __init__(self, weights: Path) -> None:
        super().__init__(weights, "")

    def _read(self, hidden: Float32, ids: Int32) -> Float32:
        small = self.small
        made = self._gelu(hidden @ small["transform.fp32"].T + small["transform.bias"][0])
        made = self._normalized(made, small["transformed.weight"][0], small["transformed.bias"][0])
        found: Float32 = (made @ self.words[:, : self.width].T).max(axis=0)
        found = np.maximum(found + small["decoder.bias"][0, : len(found)], 0)
        for _ in range(int(small["logarithms"])):
            found = np.log1p(found)
        return found


class Fp32M3(Fp32Model):
    """The same of BGE-M3; its vector has a weight for each word, or is all tokens' vectors in one row."""

    def __init__(self, weights: Path, output: str) -> None:
        super().__init__(weights, "")
        self.output = output

    def _read(self, hidden: Float32, ids: Int32) -> Float32:
        numbers: Float32 = hidden @ self.small["head.weight"].T + self.small["head.bias"]
        if self.output == "sparse":
            words = np.zeros(len(self.words), np.float32)
            np.maximum.at(words, ids, numbers[:, 0])
            words[self.small["head.unused"]] = 0
            return words
        vectors = numbers[1:]
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors.reshape(-1)


def _mapped(path: Path, name: str) -> Any:
    """An array of an `.npz` that `np.savez` wrote, mapped into memory: its `.npy` lies in it as it is."""
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo(f"{name}.npy").header_offset
    with open(path, "rb") as file:
        file.seek(start + 26)  # of the entry's header: the lengths of its name and of its extra field
        file.seek(start + 30 + sum(struct.unpack("<HH", file.read(4))))
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        return np.memmap(path, dtype, "r", file.tell(), shape)
