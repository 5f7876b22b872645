"""Exact search: the best passages of each query among stored vectors, or by way of another exact search.

The ranking does not depend on how the vectors are split or where they are: in memory, on disk, or spread over
machines. `candidates` explains why nothing is lost, `similarity` why scores are always the same.

ranking = exact_search(open_embeddings(artifact), queries, 1000, ids, "inner_product", bar, memory_mb=700)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from pipeline.core.progress import Bar, silent
from pipeline.core.records import Embeddings, Float32, Int64, Ranking
from pipeline.search import rescoring
from pipeline.search.documents import Documents, empty_ranking, set_rows
from pipeline.search.product import Float32Product, Int16Product, error_bound, integers_pay, norm_bounds
from pipeline.search.similarity import Metric, for_metric
from pipeline.search.streaming_scan import StreamingScan, block_and_group_sizes
from pipeline.storage import vector_shards

NearestRows = Callable[[Float32, int], tuple[Int64, Float32]]
"""(float32 queries, k) -> rows int64 [queries, k], -1 for padding, and scores float32, falling."""

EXTRA_HITS = 64  # fetched beyond k from another search, so that it leaves few queries undecided


def exact_search(
    embeddings: Embeddings,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    bar: Bar,
    *,
    memory_mb: int | None = None,
    documents: Documents | None = None,
) -> Ranking:
    """The best passages of each query.

    Args:
        embeddings: Vectors of n passages, or of the chunks of n documents.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each query.
        ids: Arrow strings [n], the passages' ids, by which ties are ordered.
        metric: The metric.
        bar: Counts queries, in proportion to the rows read.
        memory_mb: Limit of the memory used, in 10^6 bytes; None reads all vectors once.
        documents: Where the vectors are those of chunks: the documents that are ranked.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order.
    """
    queries = np.ascontiguousarray(for_metric(queries, metric))
    k = min(top_k, len(embeddings if documents is None else documents))
    integers = integers_pay(queries, len(embeddings))
    if integers and documents is None:
        return _filtered_search(embeddings, queries, k, ids, metric, bar, memory_mb)
    block, group = block_and_group_sizes(embeddings.dimension, k, len(queries), memory_mb)
    ranking = empty_ranking(len(queries), k, documents)
    for start in range(0, len(queries), group):
        part = slice(start, start + group)
        kind = Int16Product if integers else Float32Product
        scan = StreamingScan(embeddings, queries[part], k, ids, metric, documents, kind)
        scan.collect(block, bar)
        set_rows(ranking, part, scan.candidates.best_hits())
    return ranking


def _filtered_search(
    embeddings: Embeddings,
    queries: Float32,
    k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    bar: Bar,
    memory_mb: int | None,
) -> Ranking:
    """`exact_search` of passages by `FilteredScan`, for queries as the metric wants them."""
    from pipeline.search import filtered_scan  # imports Numba, which a small search does not need

    sizes = filtered_scan.Sizes.of(embeddings.dimension, k, len(queries), memory_mb)
    ranking = empty_ranking(len(queries), k, None)
    for start in range(0, len(queries), sizes.group):
        part = slice(start, start + sizes.group)
        scan = filtered_scan.FilteredScan(embeddings, queries[part], k, ids, metric)
        scan.collect(sizes.piece, sizes.threads, bar)
        set_rows(ranking, part, scan.candidates.best_hits())
    return ranking


def prepare(queries: Float32, n_rows: int) -> None:
    """Import and compile what a search of `n_rows` rows uses, so that no measured time holds that."""
    if integers_pay(queries, n_rows):
        one = np.ones((1, queries.shape[1]), np.float32)
        with silent("", None, "") as unseen:
            _filtered_search(Embeddings((one,)), one, 1, pa.chunked_array([["a"]]), "l2", unseen, None)
        Int16Product(one)(one)


def merge_rankings(parts: Sequence[Ranking], top_k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best passages of each query, from those of all parts of a collection; rows are the collection's."""
    passages = np.concatenate([part.passages for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    return rescoring.rank_candidates(passages, scores, top_k, ids)


def exact_search_via(
    nearest: NearestRows,
    embeddings: Embeddings,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    bar: Bar,
    *,
    batch_size: int = 256,
    max_hits: int | None = None,
) -> Ranking:
    """`exact_search` by way of another exact search in float32, such as that of Faiss on a GPU.

    Its scores are float32 products, so its hits are only candidates, as in `candidates`: those within
    twice the error of the k-th are scored exactly. If the last hit fetched is still that near, others that
    were not fetched may be as well, and the query is searched again by `exact_search`.

    `nearest` is the other search, of the same vectors. It gets `batch_size` queries at once, and is asked for
    at most `max_hits` hits (at least `top_k`; None sets no limit). The metric is inner_product, also for
    cosine if all vectors have length 1, or l2.
    """
    n = len(embeddings)
    k, fetched = min(top_k, n), min(top_k + EXTRA_HITS, max_hits or n, n)
    blocks = ((start, min(start + (1 << 14), n)) for start in range(0, n, 1 << 14))
    longest = max(norm_bounds(vector_shards.read_rows(embeddings, *block)).max() for block in blocks)
    ranking = Ranking(np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32))
    for start in range(0, len(queries), batch_size):
        part = slice(start, start + batch_size)
        batch = np.ascontiguousarray(queries[part])
        rows, products = nearest(batch, fetched)
        # twice, as a squared distance is twice the value that the bound is for
        error = 2 * error_bound(Float32Product(batch), float(longest), batch.shape[1], metric)
        near = products >= (products[:, k - 1] - 2 * error)[:, None]
        query, column = np.nonzero(near)
        candidates = rows[query, column]
        scores = rescoring.score_candidates(embeddings, candidates, batch, query, metric)
        found = rescoring.rank_pairs(candidates, scores, query, len(batch), k, ids)
        undecided = np.flatnonzero(near[:, -1]) if fetched < n else np.empty(0, np.int64)
        if len(undecided):
            with silent("", None, "") as unseen:
                again = exact_search(embeddings, batch[undecided], k, ids, metric, unseen)
            found.passages[undecided], found.scores[undecided] = again.passages, again.scores
        ranking.passages[part], ranking.scores[part] = found.passages, found.scores
        bar.update(len(batch))
    return ranking
