"""Candidates of a search: their exact scores, and the best of them in the contract's order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Embeddings, Float32, Int64, Ranking
from pipeline.search.similarity import Metric, for_metric, score_pairs
from pipeline.storage import vector_shards

PAIRS = 2048  # that one thread scores at a time


def rank_candidates(passages: Int64, scores: Float32, k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best k candidates of each query, in the contract's order.

    `passages` and `scores` are int64 and float32 [queries, candidates]: rows of passages in any order, -1 for
    padding. `ids` are the passages' ids as Arrow strings.
    """
    passages, scores = sort_hits_by_id(passages, scores, ids)
    return Ranking(np.ascontiguousarray(passages[:, :k]), np.ascontiguousarray(scores[:, :k]))


def rank_pairs(
    rows: Int64, scores: Float32, query: Int64, n_queries: int, k: int, ids: pa.ChunkedArray
) -> Ranking:
    """`rank_candidates` of candidates in one list: they are laid out as a padded row for each query.

    `rows` (of passages), `scores` and `query` are int64, float32 and int64 [pairs], `query` ascending.
    """
    counts = np.bincount(query, minlength=n_queries)
    column = np.arange(len(rows)) - (np.cumsum(counts) - counts)[query]
    shape = (n_queries, int(counts.max(initial=0)))
    passages = np.full(shape, -1, np.int64)
    padded_scores = np.full(shape, -np.inf, np.float32)
    passages[query, column] = rows
    padded_scores[query, column] = scores
    return rank_candidates(passages, padded_scores, k, ids)


def score_candidates(
    embeddings: Embeddings, rows: Int64, queries: Float32, query: Int64, metric: Metric
) -> Float32:
    """float32 [pairs]: exact scores of pairs of a passage and a query (see `similarity`).

    Args:
        embeddings: The passages' vectors.
        rows: int64 [pairs], the passage's row in `embeddings`.
        queries: float32 [queries, dimension], of length 1 if the metric is cosine.
        query: int64 [pairs], the query's row in `queries`.
        metric: The metric.
    """
    order = np.argsort(rows)  # vectors are read in the order in which they are stored
    sorted_rows, sorted_query = rows[order], query[order]
    wide = queries.astype(np.float64)
    scores = np.empty(len(rows), np.float32)

    def score_piece(start: int) -> None:
        piece = slice(start, start + PAIRS)
        passages = for_metric(vector_shards.gather_rows(embeddings, sorted_rows[piece]), metric)
        scores[order[piece]] = score_pairs(wide, sorted_query[piece], passages, metric)

    with ThreadPoolExecutor(min(machine.cores(), 8)) as pool:
        list(pool.map(score_piece, range(0, len(rows), PAIRS)))
    return scores
