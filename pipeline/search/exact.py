"""Which passages are nearest, exactly? Every vector is read once and the best k of each query are kept.

Most pairs only get a float32 matrix product. It differs from their score (`scores`) by less than a bound
that is proven, and pairs that close to the k-th best are scored as such, so that the ranking is the same
however the vectors are cut and wherever they are: in memory, on disk, or spread over machines.

ranking = best(open_embeddings(artifact), queries, 1000, ids, "inner_product", bar, memory_mb=700)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from pipeline.core.progress import Bar, silent
from pipeline.core.records import Embeddings, Float32, Int64, Ranking
from pipeline.search import candidates
from pipeline.search.product import Float32Product, error_bound, norms
from pipeline.search.scan import Scan, sizes, spans
from pipeline.search.scores import Metric, for_metric
from pipeline.storage import vectors

Find = Callable[[Float32, int], tuple[Int64, Float32]]
"""Of float32 queries and k: rows int64 [queries, k], -1 where there is none, and scores float32, falling."""

MORE = 64  # hits beyond k asked of another search, so that few queries are left open


def best(
    embeddings: Embeddings,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    bar: Bar,
    *,
    memory_mb: int | None = None,
    first_row: int = 0,
) -> Ranking:
    """The best passages of each query.

    Args:
        embeddings: n passages' vectors.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each query.
        ids: Arrow strings, the ids of the collection's passages; they decide between equal scores.
        metric: What a score is.
        bar: Told of queries, by the share of the vectors that is read.
        memory_mb: Megabytes to work in; None reads the vectors once, whatever that takes.
        first_row: The collection's row of the first vector, where these are a part of it.

    Returns:
        [queries, min(top_k, n)], rows of the collection, ties in the contract's order.
    """
    queries = np.ascontiguousarray(for_metric(queries, metric))
    k = min(top_k, len(embeddings))
    block, group = sizes(embeddings.dimension, k, len(queries), memory_mb)
    own = ids.slice(first_row, len(embeddings))
    parts = [_none(k)]
    for start in range(0, len(queries), group):
        scan = Scan(embeddings, queries[start : start + group], k, own, metric)
        scan.read(block, bar)
        parts.append(scan.finish())
    ranking = _joined(parts)
    ranking.passages[ranking.passages >= 0] += first_row
    return ranking


def merge(parts: Sequence[Ranking], top_k: int, ids: pa.ChunkedArray) -> Ranking:
    """The best passages of each query from those of parts of one collection.

    Args:
        parts: `best` of each part, of the same queries, with the same `top_k` and `ids`.
        top_k: Hits kept for each query.
        ids: Arrow strings, the ids of the collection's passages.

    Returns:
        What `best` of the whole collection is.
    """
    passages = np.concatenate([part.passages for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    return candidates.rank(passages, scores, top_k, ids)


def best_via(
    find: Find,
    embeddings: Embeddings,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    metric: Metric,
    bar: Bar,
    *,
    batch_size: int = 256,
    most: int | None = None,
) -> Ranking:
    """What `best` of the same is, by way of another exact search in float32, such as Faiss' on a GPU.

    Args:
        find: That search. Where its hits leave open which are the best, `best` decides.
        embeddings: What it searches; cosine is the inner product of vectors of length 1.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each query.
        ids: Arrow strings, the ids of the collection's passages.
        metric: inner_product or l2.
        bar: Told of every query searched.
        batch_size: Queries given to `find` at once.
        most: Hits that are asked of it for a query, where it is slow or unable beyond; at least `top_k`.
    """
    n = len(embeddings)
    k, fetched = min(top_k, n), min(top_k + MORE, most or n, n)
    longest = max(norms(vectors.read(embeddings, *span)).max() for span in spans(n, 1 << 14, 1 << 14))
    parts = [_none(k)]
    for start in range(0, len(queries), batch_size):
        batch = np.ascontiguousarray(queries[start : start + batch_size])
        rows, products = find(batch, fetched)
        error = 2 * error_bound(Float32Product(batch), float(longest), 0.0, batch.shape[1], metric)
        near = products >= (products[:, k - 1] - 2 * error)[:, None]
        query, place = np.nonzero(near)
        scores = candidates.score(embeddings, rows[query, place], batch, query, metric)
        part = candidates.rank(*candidates.lay_out(rows[query, place], scores, query, len(batch)), k, ids)
        open_ = np.flatnonzero(near[:, -1]) if fetched < n else np.empty(0, np.int64)
        if len(open_):
            with silent("", None, "") as own:
                again = best(embeddings, batch[open_], k, ids, metric, own)
            part.passages[open_], part.scores[open_] = again.passages, again.scores
        parts.append(part)
        bar.update(len(batch))
    return _joined(parts)


def _none(k: int) -> Ranking:
    return Ranking(np.empty((0, k), np.int64), np.empty((0, k), np.float32))


def _joined(parts: Iterable[Ranking]) -> Ranking:
    """Rankings of one query group after another, as one."""
    groups = list(parts)
    passages = np.concatenate([group.passages for group in groups])
    return Ranking(passages, np.concatenate([group.scores for group in groups]))
