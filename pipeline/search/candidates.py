"""Which candidates are the best? Each is scored on its own, and they are put in the contract's order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Embeddings, Float32, Int64, Ranking
from pipeline.search.scores import Metric, for_metric, score_pairs
from pipeline.storage import vectors

PAIRS = 2048  # that a thread scores at once


def rank(passages: Int64, scores: Float32, k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best k of each row.

    Args:
        passages: int64 [queries, candidates], rows of passages in any order, -1 where there is none.
        scores: float32 [queries, candidates].
        k: Hits kept of each.
        ids: Arrow strings, the ids of the collection's passages; they decide between equal scores.
    """
    passages, scores = sort_hits_by_id(passages, scores, ids)
    return Ranking(np.ascontiguousarray(passages[:, :k]), np.ascontiguousarray(scores[:, :k]))


def score(embeddings: Embeddings, rows: Int64, queries: Float32, query: Int64, metric: Metric) -> Float32:
    """float32 [pairs]: the scores of passages with queries, as `scores` defines them.

    Args:
        embeddings: The passages' vectors.
        rows: int64 [pairs], whose.
        queries: float32 [queries, dimension], as the metric compares them.
        query: int64 [pairs], with which query.
        metric: What a score is.
    """
    order = np.argsort(rows)  # vectors are read in the order they are stored in
    rising, asking = rows[order], query[order]
    wide, scores = queries.astype(np.float64), np.empty(len(rows), np.float32)

    def part(start: int) -> None:
        piece = slice(start, start + PAIRS)
        passages = for_metric(vectors.pick(embeddings, rising[piece]), metric)
        scores[order[piece]] = score_pairs(wide, asking[piece], passages, metric)

    with ThreadPoolExecutor(min(machine.cores(), 8)) as pool:
        list(pool.map(part, range(0, len(rows), PAIRS)))
    return scores


def lay_out(rows: Int64, scores: Float32, query: Int64, n_queries: int) -> tuple[Int64, Float32]:
    """Pairs as a row per query: int64 [queries, most], padded with -1, and float32, with -inf.

    Args:
        rows: int64 [pairs], of passages.
        scores: float32 [pairs].
        query: int64 [pairs], rising: the query of each.
        n_queries: How many queries.
    """
    found = np.bincount(query, minlength=n_queries)
    column = np.arange(len(rows)) - (np.cumsum(found) - found)[query]
    shape = (n_queries, int(found.max(initial=0)))
    passages, laid_out = np.full(shape, -1, np.int64), np.full(shape, -np.inf, np.float32)
    passages[query, column], laid_out[query, column] = rows, scores
    return passages, laid_out
