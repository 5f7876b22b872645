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

LINEAR = ("query", "key_value", "mixed", "up", "down")
"""The kinds of linear layers; `matrix_file` holds the matrices of each, float32 [layers, n, k]."""


def matrix_file(kind: str) -> str:
    """The name of the file of a kind's matrices."""
    return f"{kind}.fp32.npy"


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
        paths = {kind: weights.with_name(matrix_file(kind)) for kind in LINEAR}
        self.matrices = {
            kind: np.load(path, mmap_mode="r", allow_pickle=False) for kind, path in paths.items()
        }
        self.heads, self.padding = int(self.small["heads"]), int(self.small["padding"])

    def vector(self, ids: Int32) -> Float32:
        """The vector float32 [dimension] of a text's token ids, int [tokens]; not normalized."""
        hidden = self.words[ids] + self.small["positions"][self._positions(ids)]
        hidden = self._normalized(hidden, self.small["embedded.weight"], self.small["embedded.bias"])
        for layer in range(len(self.matrices["query"])):
            hidden = self._layer(hidden, layer)
        return self._read(hidden, ids)

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
        if self.padding < 0:
            return np.arange(len(ids))
        real = (ids != self.padding).astype(np.int64)
        counted: Int64 = np.cumsum(real) * real + self.padding
        return counted

    def _layer(self, hidden: Float32, layer: int) -> Float32:
        """One layer: attention and feed-forward, each added to its input and normalized."""
        query = self._heads(self._linear("query", hidden, layer))  # divided by the root of a head's width
        keys, values = np.split(self._linear("key_value", hidden, layer), 2, axis=1)
        scores = query @ self._heads(keys).transpose(0, 2, 1)  # [heads, tokens, tokens]
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        mixed = (weights @ self._heads(values)).transpose(1, 0, 2).reshape(hidden.shape)
        hidden = self._added("attended", hidden, self._linear("mixed", mixed, layer), layer)
        inner = self._gelu(self._linear("up", hidden, layer))
        return self._added("output", hidden, self._linear("down", inner, layer), layer)

    def _linear(self, kind: str, x: Float32, layer: int) -> Float32:
        product: Float32 = x @ self.matrices[kind][layer].T + self.small[f"{kind}.bias"][layer]
        return product

    def _heads(self, x: Float32) -> Float32:
        """[tokens, width] as [heads, tokens, width of a head]."""
        return x.reshape(len(x), self.heads, -1).transpose(1, 0, 2)

    def _gelu(self, x: Float32) -> Float32:
        """Multiply x by the normal distribution function of x."""
        result: Float32 = x * (0.5 * (1 + self.erf(x * np.float32(2**-0.5))))
        return result

    def _added(self, kind: str, x: Float32, more: Float32, layer: int) -> Float32:
        weight, bias = (self.small[f"{kind}.{part}"][layer] for part in ("weight", "bias"))
        return self._normalized(x + more, weight, bias)

    def _normalized(self, x: Float32, weight: Float32, bias: Float32) -> Float32:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = (centred * centred).mean(axis=1, keepdims=True)
        normalized: Float32 = centred / np.sqrt(variance + self.small["epsilon"]) * weight + bias
        return normalized


class Fp32Splade(Fp32Model):
    """The same of a SPLADE; its vector has a weight for each word of the vocabulary."""

    def __init__(self, weights: Path) -> None:
        super().__init__(weights, "")

    def _read(self, hidden: Float32, ids: Int32) -> Float32:
        small = self.small
        made = self._gelu(hidden @ small["transform.fp32"].T + small["transform.bias"][0])
        made = self._normalized(made, small["transformed.weight"][0], small["transformed.bias"][0])
        found: Float32 = (made @ self.words.T).max(axis=0)
        found = np.maximum(found + small["decoder.bias"][0, : len(found)], 0)
        for _ in range(int(small["logarithms"])):
            found = np.log1p(found)
        return found


class Fp32M3(Fp32Model):
    """The same of BGE-M3; its vector has a weight for each word, or is all tokens' vectors in one row."""

    def __init__(self, weights: Path, output: str, normalize: bool) -> None:
        super().__init__(weights, "")
        self.output, self.normalize = output, normalize

    def _read(self, hidden: Float32, ids: Int32) -> Float32:
        numbers: Float32 = hidden @ self.small["head.weight"].T + self.small["head.bias"]
        if self.output == "sparse":
            words = np.zeros(len(self.words), np.float32)
            np.maximum.at(words, ids, numbers[:, 0])
            words[self.small["head.unused"]] = 0
            return words
        vectors = numbers[1:]
        if self.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
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
