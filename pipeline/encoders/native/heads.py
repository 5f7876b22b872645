"""What is made of last hidden states by one more matrix product in int16: word weights, projections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from pipeline.core.records import Float32, Int64
from pipeline.encoders.native import layers, rows
from pipeline.encoders.native.layers import BLOCK, LayerNorm, Linear, linear, multiply_rows
from pipeline.encoders.native.rows import normalize
from pipeline.kernels.compiling import compiled
from pipeline.kernels.functions import larger
from pipeline.kernels.int16 import PANEL, Workspace, round_rows

SOURCES = (layers.__file__, rows.__file__)  # of which the kernels use code


def _largest_logits(
    hidden: Float32, owners: Int64, texts: int, transform: Linear, norm: LayerNorm, decoder: Linear,
    width: int, epsilon: float,
) -> Float32:  # fmt: skip
    """For each text and each word of the vocabulary the largest logit of a masked language model.

    Logits are made for BLOCK tokens and 64 words at a time, and the largest of each text are kept: they stay
    in the processor's cache, and the matrix of all tokens and words never exists.

    Args:
        hidden: float32 [tokens, k], the last hidden states of all texts' tokens.
        owners: int64 [tokens], the text of each token.
        texts: How many texts there are.
        transform: The head's first layer, before GELU, as the one layer of a `Linear`.
        norm: Its normalization, float32 [1, columns].
        decoder: The layer from there to words, their number rounded up to a multiple of 64.
        width: The number of outputs of the first layer; its columns are rounded up to a multiple of 64.
        epsilon: float32, of the normalization.

    Returns:
        float32 [texts, words].
    """
    tokens, columns = len(hidden), transform.factors.shape[1]
    words = decoder.factors.shape[1]
    out = np.full((texts, words), np.float32(-1e30), np.float32)
    space = Workspace(
        np.zeros(BLOCK * columns, np.int16),
        np.empty(BLOCK, np.float32),
        np.empty(BLOCK * max(columns, PANEL), np.int32),
    )
    made, pairs = np.empty((BLOCK, columns), np.float32), columns // 2
    weights, factors, bias = decoder.pairs[0], decoder.factors[0], decoder.bias[0]
    for start in range(0, tokens, BLOCK):
        n = min(BLOCK, tokens - start)
        rows = made[:n]
        linear(hidden[start : start + n], transform, 0, True, space, rows)
        normalize(rows, norm.weight[0], norm.bias[0], width, epsilon, rows)
        round_rows(rows, space)
        packed = space.rows.view(np.int32)
        for panel in range(0, words, PANEL):
            multiply_rows(space.sums, n, PANEL, packed, pairs, weights[panel * pairs :])
            for i in range(n):
                sums, factor = space.sums[i * PANEL : (i + 1) * PANEL], space.factors[i]
                best = out[owners[start + i], panel : panel + PANEL]
                for j in range(PANEL):
                    best[j] = larger(best[j], float32(sums[j]) * factor)
    for text in range(texts):
        for j in range(words):
            out[text, j] = out[text, j] * factors[j] + bias[j]
    return out


def _project(x: Float32, layer: Linear) -> Float32:
    """The one layer of a `Linear` applied to x float32 [tokens, k]: float32 [tokens, n]."""
    tokens, width = x.shape
    n = layer.factors.shape[1]
    out = np.empty((tokens, n), np.float32)
    space = Workspace(
        np.zeros(BLOCK * width, np.int16), np.empty(BLOCK, np.float32), np.empty(BLOCK * n, np.int32)
    )
    for start in range(0, tokens, BLOCK):
        end = min(start + BLOCK, tokens)
        linear(x[start:end], layer, 0, False, space, out[start:end])
    return out


largest_logits: Any = compiled(_largest_logits, *SOURCES)
project: Any = compiled(_project, *SOURCES)


def compile_projection() -> None:
    """Compile `project`, or load it from disk."""
    ones = np.ones((1, PANEL), np.float32)
    project(ones, Linear(np.zeros((1, PANEL * PANEL // 2), np.int32), ones, ones))


def compile_logits() -> None:
    """Compile `largest_logits`, or load it from disk."""
    ones = np.ones((1, PANEL), np.float32)
    layer = Linear(np.zeros((1, PANEL * PANEL // 2), np.int32), ones, ones)
    owners = np.zeros(1, np.int64)
    largest_logits(ones, owners, 1, layer, LayerNorm(ones, ones), layer, PANEL, np.float32(1))
