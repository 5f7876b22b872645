"""The score of a query and a passage: its metrics, and its exact value, on which rankings are based.

A score is the inner product, or minus the squared distance, summed in float64 and rounded once to float32.
The product of two float32 numbers fits a float64 exactly (24 + 24 bits of 53), and each pair is summed by
itself along its own two rows. So a score depends on the two vectors alone, and a ranking does not depend on
batches, blocks, threads or machines. A float32 matrix product is different: BLAS chooses the order of its
sums by the shapes of the matrices, so that its last bits change with the batch, and with them the order of
passages that are almost equally near. Matrix products are only used to find candidates (`product`).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipeline.core.records import Float32, Float64, Int64
from pipeline.storage.vector_forms import unit_vectors

Metric = Literal["inner_product", "cosine", "l2"]

_PIECE = 64  # pairs scored at once: in float64 they still fit the processor's cache


def for_metric(rows: Float32, metric: Metric) -> Float32:
    """The vectors that a metric compares: scaled to length 1 for cosine, unchanged for the others."""
    return unit_vectors(rows) if metric == "cosine" else rows


def score_pairs(queries: Float64, query: Int64, passages: Float32, metric: Metric) -> Float32:
    """float32 [n]: the score of each passage with one query; higher is nearer.

    Args:
        queries: float64 [queries, dimension], of length 1 if the metric is cosine.
        query: int64 [n], the row in `queries` for each passage.
        passages: float32 [n, dimension], of length 1 if the metric is cosine.
        metric: The metric; l2 is minus the squared distance.
    """
    scores = np.empty(len(passages), np.float32)
    wide, other = (np.empty((_PIECE, passages.shape[1])) for _ in range(2))
    for start in range(0, len(passages), _PIECE):
        count = min(_PIECE, len(passages) - start)
        piece = slice(start, start + count)
        left, right = wide[:count], other[:count]
        left[:] = passages[piece]
        np.take(queries, query[piece], axis=0, out=right, mode="clip")
        if metric == "l2":
            left -= right
            scores[piece] = 0.0 - np.einsum("ij,ij->i", left, left)
        else:
            scores[piece] = np.einsum("ij,ij->i", left, right)
    return scores
