"""Attention in fp32: for each token a mean of the values of all tokens that it sees, weighted by softmax.

So it is computed in networks in fp32; `integer_attention` computes that of networks in int16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32

from pipeline.core.records import Float32, Int64
from pipeline.kernels.compiling import inlined, merged
from pipeline.kernels.functions import exp, larger
from pipeline.kernels.tiles import FLOAT_WIDTH, TALL, float_tile

EVERYWHERE = 1 << 30  # the window of a layer whose tokens all see each other


@inlined
def _softmax(scores: Float32) -> None:
    """Softmax in place; the largest score is subtracted first, so `exp` is given x <= 0."""
    most, total = scores[0], float32(0)
    for j in range(len(scores)):
        most = larger(most, scores[j])
    for j in range(len(scores)):
        scores[j] = exp(scores[j] - most)
        total += scores[j]
    for j in range(len(scores)):
        scores[j] /= total


@merged
def attend(
    query: Float32, starts: Int64, key_value: Float32, texts: Int64, heads: int, size: int, window: int,
    biases: Any, out: Float32,
) -> None:  # fmt: skip
    """Attention within each text, in fp32, for one text and one head at a time.

    A head's keys are first copied to [size, tokens], transposed, so that a tile multiplies a query with the
    keys of neighbouring tokens, one per lane. Six queries' scores are computed together, with the keys that
    at least one of them sees, become shares by softmax, and are multiplied with the values, which are one per
    lane as they lie. Keys that one of the six does not see have the share 0. Widths are rounded up to whole
    tiles: what is computed beyond a text's tokens is never read. A tile may also write rows below a text's
    last one; those are the next text's, which are written later, or the 6 spare ones at the end.

    Args:
        query: float32 [n + 6, columns]; the queries of text t are the rows `starts[t]` to `starts[t + 1]`,
            and the first of them is the text's first token.
        starts: int64 [texts + 1].
        key_value: float32 [tokens, 2 columns], keys first.
        texts: int64 [texts + 1], the first row of each text in `key_value`, and the end.
        heads: Number of heads, one beside the other.
        size: Columns of a head.
        window: The largest distance of a key that a query sees.
        biases: See `Parts`.
        out: float32 [n + 6, columns].
    """
    width, most = query.shape[1], 0
    for text in range(len(texts) - 1):
        most = max(most, texts[text + 1] - texts[text])
    most = -(-most // FLOAT_WIDTH) * FLOAT_WIDTH
    keys, shares = np.empty(size * most + FLOAT_WIDTH, np.float32), np.empty(TALL * most, np.float32)
    for text in range(len(texts) - 1):
        start, length = texts[text], texts[text + 1] - texts[text]
        wide = -(-length // FLOAT_WIDTH) * FLOAT_WIDTH
        for head in range(heads):
            column = head * size
            for k in range(size):
                for j in range(length):
                    keys[k * wide + j] = key_value[start + j, column + k]
            for i in range(starts[text], starts[text + 1], TALL):
                place, rows = i - starts[text], min(TALL, starts[text + 1] - i)
                low, high = max(place - window, 0), min(place + rows + window, length)
                seen = high - low
                for j in range(0, seen, FLOAT_WIDTH):
                    float_tile(shares, j, wide, query, i * width + column, width, keys, low + j, wide, size)
                for row in range(rows):
                    share = shares[row * wide : row * wide + seen]
                    if biases is not None and len(biases):
                        own = biases[head, biases.shape[1] // 2 - (place + row) + low :]
                        for j in range(seen):
                            share[j] += own[j]
                    first = max(place + row - window, 0) - low
                    beyond = share[min(place + row + window + 1, length) - low :]
                    _softmax(share[first : seen - len(beyond)])
                    for j in range(first):
                        share[j] = float32(0)
                    for j in range(len(beyond)):
                        beyond[j] = float32(0)
                for j in range(0, size, FLOAT_WIDTH):
                    value = (start + low) * 2 * width + width + column + j
                    float_tile(
                        out, i * width + column + j, width, shares, 0, wide, key_value, value, 2 * width, seen
                    )
