"""Search of a Faiss index with ties in the contract's order.

Faiss orders hits by score, and equal scores in its own way. So one hit more than k is fetched. If its score
equals that of the k-th, more passages may tie with them, and the query is searched again for twice as many
hits, until a lower score appears or no passage is left. Then all hits are sorted, and the first k are kept.
"""

from __future__ import annotations

import faiss
import numpy as np
import pyarrow as pa

from pipeline.core.display import Bar
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Float32, Int64, Ranking
from pipeline.search.scoring import Metric, for_metric


def search_index(
    index: faiss.Index,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    batch_size: int,
    bar: Bar,
) -> Ranking:
    """The best passages of each query that the index finds.

    Args:
        index: A faiss index of n vectors.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each query; fewer if the index holds or finds fewer.
        ids: Arrow strings [n], the passages' ids.
        metric: The metric that the index was built for.
        batch_size: Queries given to Faiss at once.
        bar: Counts queries.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order, also those across the last rank.
    """
    queries = for_metric(queries, metric)
    k = min(top_k, index.ntotal)
    passages = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries), batch_size):
        batch = slice(start, start + batch_size)
        passages[batch], scores[batch] = _search_batch(index, queries[batch], k, ids, metric)
        bar.update(len(queries[batch]))
    return Ranking(passages, scores)


def nearest(index: faiss.Index, queries: Float32, k: int, metric: Metric) -> tuple[Int64, Float32]:
    """The hits of Faiss itself: rows int64 [queries, k], -1 for padding, and scores float32, falling."""
    scores, passages = index.search(queries, k)
    return passages, 0 - scores if metric == "l2" else scores


def _search_batch(
    index: faiss.Index, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
) -> tuple[Int64, Float32]:
    """The best k of one batch of queries: passages and scores."""
    passages, scores = _in_order(*nearest(index, queries, min(k + 1, index.ntotal), metric), ids)
    if scores.shape[1] > k:
        ties_cut = (scores[:, k - 1] == scores[:, k]) & (passages[:, k] >= 0)
        for row in np.flatnonzero(ties_cut):
            query = queries[row : row + 1]
            passages[row, :k], scores[row, :k] = _with_all_ties(index, query, k, ids, metric)
    return passages[:, :k], scores[:, :k]


def _with_all_ties(
    index: faiss.Index, query: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
) -> tuple[Int64, Float32]:
    """The best k of one query, if other passages share its k-th score."""
    fetched = k + 1
    while True:
        fetched = min(2 * fetched, index.ntotal)
        passages, scores = nearest(index, query, fetched, metric)
        if fetched == index.ntotal or passages[0, -1] < 0 or scores[0, -1] < scores[0, k - 1]:
            passages, scores = _in_order(passages, scores, ids)
            return passages[0, :k], scores[0, :k]


def _in_order(passages: Int64, scores: Float32, ids: pa.ChunkedArray) -> tuple[Int64, Float32]:
    """Hits in the contract's order without duplicates: an NSG graph may return a passage twice."""
    ascending = np.sort(passages, axis=1)
    duplicate = (ascending[:, 1:] == ascending[:, :-1]) & (ascending[:, 1:] >= 0)
    for row in np.flatnonzero(duplicate.any(axis=1)):
        _, first = np.unique(passages[row], return_index=True)
        passages[row, np.delete(np.arange(passages.shape[1]), first)] = -1
    return sort_hits_by_id(passages, scores, ids)
