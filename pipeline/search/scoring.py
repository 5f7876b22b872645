"""The score of a query and a passage: its metrics, its exact value, and how far fast products can be off.

A score is the inner product, or minus the squared distance, summed in float64 and rounded once to float32.
The product of two float32 numbers fits a float64 exactly (24 + 24 bits of 53), and each pair is summed by
itself along its two rows. So a score depends on the two vectors alone, and a ranking does not depend on
batches, blocks, threads or machines. BLAS chooses the order of its sums by the shapes of the matrices: its
float32 products change with the batch, and only find candidates here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.order import sort_hits
from pipeline.core.records import Embeddings, Float32, Float64, Int64, Ranking
from pipeline.storage import vector_shards
from pipeline.storage.vector_shards import unit_vectors

Metric = Literal["inner_product", "cosine", "l2"]

PAIRS = 2048  # that one thread scores at a time
_PIECE = 64  # pairs scored at once: in float64 they still fit the processor's cache
ROUNDOFF = 2.0**-24  # of float32


def for_metric(rows: Float32, metric: Metric) -> Float32:
    """The vectors that a metric compares: scaled to length 1 for cosine, unchanged for the others."""
    return unit_vectors(rows) if metric == "cosine" else rows


def score_pairs(queries: Float64, query: Int64, passages: Float32, metric: Metric) -> Float32:
    """float32 [n]: the score of each passage with one query; higher is nearer.

    `queries` are float64 [queries, dimension] and `passages` float32 [n, dimension], of length 1 if the
    metric is cosine; `query` is int64 [n], the row in `queries` for each passage. l2 is minus the squared
    distance.
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


def rank_candidates(passages: Int64, scores: Float32, k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best k candidates of each query, in the contract's order.

    `passages` and `scores` are int64 and float32 [queries, candidates]: rows of passages in any order, -1 for
    padding. `ids` are the passages' ids as Arrow strings.
    """
    passages, scores = sort_hits(passages, scores, ids)
    return Ranking(np.ascontiguousarray(passages[:, :k]), np.ascontiguousarray(scores[:, :k]))


def rank_pairs(
    rows: Int64, scores: Float32, query: Int64, n_queries: int, k: int, ids: pa.ChunkedArray
) -> Ranking:
    """`rank_candidates` of candidates in one list: they are laid out as a padded row for each query.

    `rows` (of passages), `scores` and `query` are int64, float32 and int64 [pairs], `query` ascending.
    """
    counts = np.bincount(query, minlength=n_queries)
    column = np.arange(len(rows)) - (np.cumsum(counts) - counts)[query]
    shape = (n_queries, int(counts.max(initial=k)))
    passages = np.full(shape, -1, np.int64)
    padded_scores = np.full(shape, -np.inf, np.float32)
    passages[query, column] = rows
    padded_scores[query, column] = scores
    return rank_candidates(passages, padded_scores, k, ids)


def score_candidates(
    embeddings: Embeddings, rows: Int64, queries: Float32, query: Int64, metric: Metric
) -> Float32:
    """float32 [pairs]: exact scores of pairs of a passage and a query, int64 [pairs] rows of each.

    `queries` are float32 [queries, dimension], of length 1 if the metric is cosine.
    """
    wide = queries.astype(np.float64)

    def score(rows: Int64, query: Int64) -> Float32:
        passages = for_metric(vector_shards.gather_rows(embeddings, rows), metric)
        return score_pairs(wide, query, passages, metric)

    return score_as_stored(rows, query, score, min(machine.cores(), 8))


def score_as_stored(
    rows: Int64,
    query: Int64,
    score: Callable[[Int64, Int64], Float32],
    threads: int,
    pieces: Callable[[Int64], Sequence[tuple[int, int]]] | None = None,
) -> Float32:
    """float32 [pairs]: scores of pairs in any order, whose passages are read in the order they are stored in.

    Args:
        rows: int64 [pairs], the passage of each.
        query: int64 [pairs].
        score: Scores some pairs, their rows ascending; called in several threads.
        threads: How many.
        pieces: Divides ascending rows into ranges [start, stop) that one thread scores at a time; None takes
            PAIRS each.
    """
    order = np.argsort(rows)
    rows, query = rows[order], query[order]
    starts = range(0, len(rows), PAIRS)
    ranges = pieces(rows) if pieces else [(start, start + PAIRS) for start in starts]
    scores = np.empty(len(rows), np.float32)

    def score_piece(ends: tuple[int, int]) -> None:
        piece = slice(*ends)
        scores[order[piece]] = score(rows[piece], query[piece])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score_piece, ranges))
    return scores


def error_bound(norms: Float64, longest: float, dimension: int, metric: Metric) -> Float64:
    """float64 [queries]: how far a float32 product can be from what orders passages p for a query q.

    That value is q.p, or for l2 q.p - |p|^2/2 = (|q|^2 - |q - p|^2)/2, which falls as the distance grows; |v|
    is the length of v. A float32 sum of d products, in any order, is off by at most gamma_d sum(|q_i p_i|),
    where gamma_n = n u / (1 - n u) and u = 2^-24 (Higham, *Accuracy and Stability of Numerical Algorithms*,
    2nd edition, 2002, section 3.1). By the Cauchy-Schwarz inequality, that sum is at most |q||p|.

    Args:
        norms: float64 [queries], at least the length of each query.
        longest: At least the length of the longest row.
        dimension: d.
        metric: The metric.
    """
    # halving, subtracting and rounding the score are four roundings at most: d + 4
    gamma = (dimension + 4) * ROUNDOFF / (1 - (dimension + 4) * ROUNDOFF)
    # for l2, (|q| + |p|)^2 takes the place of |q||p|, and covers |p|^2/2 and the score as well
    size = (norms + longest) ** 2 if metric == "l2" else norms * longest
    # each of the d terms may lose up to the smallest normal float32
    underflow = dimension * float(np.finfo(np.float32).tiny) * (1 + norms) * (1 + longest)
    return gamma * size + underflow


def norm_bounds(rows: Float32) -> Float64:
    """float64 [n]: at least the length of each row: 0.1% is added for rounding in float32."""
    squares: Float32 = np.einsum("ij,ij->i", rows, rows)
    return 1.001 * np.sqrt(squares).astype(np.float64)
