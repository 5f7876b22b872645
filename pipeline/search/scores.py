"""What is a score?

The score of a pair is its inner product (or minus its squared distance) summed in double precision and
rounded to float32. It depends on the two vectors alone: not on batch, block, thread or matrix kernel, on
which the last bits of a float32 product do depend.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipeline.core.records import Float32, Float64, Int64

Metric = Literal["inner_product", "cosine", "l2"]

_PIECE = 64  # pairs held in double precision at once; they stay in the processor's cache


def unit(rows: Float32) -> Float32:
    """float32 [n, dimension]: copies of length 1; rows of zeros stay so."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    np.divide(wide, lengths, out=wide, where=lengths > 0)
    return wide.astype(np.float32)


def for_metric(rows: Float32, metric: Metric) -> Float32:
    """Vectors as the metric compares them: for cosine of length 1, else as they are."""
    return unit(rows) if metric == "cosine" else rows


def score_pairs(queries: Float64, query: Int64, passages: Float32, metric: Metric) -> Float32:
    """float32 [n]: the score of each passage with a query.

    Args:
        queries: float64 [queries, dimension], of length 1 if the metric is cosine.
        query: int64 [n], with which each passage is paired.
        passages: float32 [n, dimension], likewise.
        metric: What a score is; more is nearer, so l2 is minus the squared distance.
    """
    scores = np.empty(len(passages), np.float32)
    wide, other = (np.empty((_PIECE, passages.shape[1])) for _ in range(2))
    for start in range(0, len(passages), _PIECE):
        count = min(_PIECE, len(passages) - start)
        piece, left, right = slice(start, start + count), wide[:count], other[:count]
        left[:] = passages[piece]
        np.take(queries, query[piece], axis=0, out=right, mode="clip")
        if metric == "l2":
            left -= right
            scores[piece] = 0.0 - np.einsum("ij,ij->i", left, left)
        else:
            scores[piece] = np.einsum("ij,ij->i", left, right)
    return scores
