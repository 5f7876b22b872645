"""How does Faiss build, keep and search an index, so that ties come out in trec_eval's order?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.metrics.order import sort_hits
from pipeline.progress import Bar
from pipeline.records import Embeddings, Float32, Int64, Ranking

CHUNK = 65536  # vectors read and added at once
_DIVISIBLE = 2**8 * 3 * 5 * 7  # dimensions that nearly any product quantizer divides


def build(embeddings: Embeddings, factory: str, bar: Bar) -> Any:
    """Build an index over vectors that stay on disk until they are added.

    Args:
        embeddings: The passages' vectors; a hit's number is its row.
        factory: A faiss `index_factory` string.
        bar: Told of every vector added.

    Returns:
        The faiss index, by inner product.

    Raises:
        InputError: See `create`.
    """
    index = create(factory, embeddings.dimension)
    for chunk in _chunks(embeddings):
        index.add(chunk)
        bar.update(len(chunk))
    return index


def create(factory: str, dimension: int) -> Any:
    """An empty index.

    Raises:
        InputError: Faiss does not know the factory string, or cannot build it for this dimension.
    """
    import faiss

    try:
        return faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = re.split(r"\.(?:cpp|h):\d+: ", str(error).strip())[-1]
        raise InputError(
            f"index.factory: '{factory}': {reason}",
            allowed="a faiss index_factory string, such as Flat",
            fix="change index.factory",
        ) from None


def check(factory: str) -> None:
    """Refuse a factory string that Faiss cannot read, before there are vectors to build it for.

    Raises:
        InputError: See `create`.
    """
    create(factory, _DIVISIBLE)


def write(index: Any, path: Path) -> None:
    """Write an index to a file."""
    import faiss

    faiss.write_index(index, str(path))


def read(path: Path) -> Any:
    """Read an index that `write` wrote."""
    import faiss

    return faiss.read_index(str(path))


def search(index: Any, queries: Float32, top_k: int, id_rank: Int64, batch_size: int, bar: Bar) -> Ranking:
    """The best passages of each query.

    Args:
        index: A faiss index of n vectors.
        queries: float32 [queries, dimension].
        top_k: Hits kept for each; fewer where the index has or finds fewer.
        id_rank: int64 [n], `pipeline.metrics.order.descending_id_rank` of the passage ids.
        batch_size: Queries given to Faiss at once.
        bar: Told of every query searched.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order, also where they straddle the last rank:
        of passages with equal scores those that come first in the order are kept, whichever Faiss found.
    """
    if queries.shape[1] != index.d:
        raise InputError(
            f"the queries' vectors have {queries.shape[1]} dimensions and the index {index.d}",
            fix="give both the same model",
        )
    k = min(top_k, index.ntotal)
    passages = np.empty((len(queries), k), np.int64)
    scores = np.empty((len(queries), k), np.float32)
    for start in range(0, len(queries), batch_size):
        batch = slice(start, start + batch_size)
        passages[batch], scores[batch] = _search_batch(index, queries[batch], k, id_rank)
        bar.update(len(queries[batch]))
    return Ranking(passages, scores)


def _search_batch(index: Any, queries: Float32, k: int, id_rank: Int64) -> tuple[Int64, Float32]:
    """One batch. One hit more than k is fetched: if it scores as the last kept does, all that tie are."""
    scores, passages = index.search(queries, min(k + 1, index.ntotal))
    passages, scores = sort_hits(passages, scores, id_rank)
    if scores.shape[1] > k:
        cut = (scores[:, k - 1] == scores[:, k]) & (passages[:, k] >= 0)
        for row in np.flatnonzero(cut):
            passages[row, :k], scores[row, :k] = _all_ties(index, queries[row : row + 1], k, id_rank)
    return passages[:, :k], scores[:, :k]


def _all_ties(index: Any, query: Float32, k: int, id_rank: Int64) -> tuple[Int64, Float32]:
    """The best k of one query whose k-th score many passages share: fetch until a lower score shows."""
    fetched = k + 1
    while True:
        fetched = min(2 * fetched, index.ntotal)
        scores, passages = index.search(query, fetched)
        if fetched == index.ntotal or passages[0, -1] < 0 or scores[0, -1] < scores[0, k - 1]:
            passages, scores = sort_hits(passages, scores, id_rank)
            return passages[0, :k], scores[0, :k]


def _chunks(embeddings: Embeddings) -> Iterable[Float32]:
    for shard in embeddings.shards:
        for start in range(0, len(shard), CHUNK):
            yield np.ascontiguousarray(shard[start : start + CHUNK])
