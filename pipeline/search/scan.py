"""How are all vectors read once for many queries? Block by block: read, multiply, select (for `exact`).

One block is read while the one before is multiplied and the products before those are selected from.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core.progress import Bar
from pipeline.core.records import Array, Embeddings, Float32, Int64, Ranking
from pipeline.search import candidates
from pipeline.search.product import error_bound, products
from pipeline.search.scores import Metric, for_metric
from pipeline.storage import vectors

QUERIES = 512  # multiplied at once
TILE = 1 << 21  # products made at once
BLOCK = 16384  # most rows read at once
SPARE = 512  # room for candidates beyond 3k
_CANDIDATE_BYTES = 12
_PAIR_BYTES = 80  # of a pair to score, with what sorting it takes


def sizes(dimension: int, k: int, n_queries: int, memory_mb: int | None) -> tuple[int, int]:
    """How many rows make a block, and how many queries one reading of all vectors serves."""
    n_queries = max(n_queries, 1)
    tile = min(QUERIES, n_queries)
    block = min(TILE // tile, BLOCK)
    if memory_mb is None:
        return block, n_queries
    memory = memory_mb * 1_000_000
    row_bytes = 18 * dimension + 16 * tile  # one block read, one in use, one let go; and their products
    block = min(block, max(memory // 2 // row_bytes, 256))
    query_bytes = _CANDIDATE_BYTES * (3 * k + SPARE) + 2 * _PAIR_BYTES * k + 16 * dimension
    return block, min(max((memory - block * row_bytes) // query_bytes, 1), n_queries)


def spans(n: int, first: int, most: int) -> list[tuple[int, int]]:
    """Cut n rows: short blocks first, while thresholds are low and most rows pass them."""
    cut, start = [], 0
    while start < n:
        stop = min(start + min(max(start, first), most), n)
        cut.append((start, stop))
        start = stop
    return cut


class Scan:
    """One reading of all vectors for one group of queries.

    A candidate is a row whose product is at least the k-th best product so far less twice the error. No
    other can be among the best k: k rows have scores of at least the k-th product less the error, and its
    own is below that. Candidates are kept in arrays [queries, room], the first `count` of each row in use.

    Args:
        embeddings: At least k passages' vectors.
        queries: float32 [queries, dimension], at least one, as the metric compares them.
        k: Hits kept for each.
        ids: Arrow strings, the ids of the passages.
        metric: What a score is.
    """

    def __init__(
        self, embeddings: Embeddings, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
    ) -> None:
        self.embeddings, self.queries, self.k, self.ids, self.metric = embeddings, queries, k, ids, metric
        self.tiles = products(queries, QUERIES, len(embeddings))
        self.longest = self.moved = 0.0  # of the passages' vectors so far, see `error_bound`
        room = min(3 * k + SPARE, len(embeddings))
        self.rows = np.empty((len(queries), room), np.int64)
        self.products = np.empty((len(queries), room), np.float32)
        self.count = np.zeros(len(queries), np.int64)
        self.kth = np.full(len(queries), -np.inf)  # best product, or less

    def read(self, block: int, bar: Bar) -> None:
        """Find the candidates: read, multiply and select, each while the others go on."""
        n, seen = len(self.embeddings), 0
        cut = spans(n, min(2 * self.k, block), block)
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as selector:
            selecting: Future[None] = selector.submit(lambda: None)
            ahead = reader.submit(self._block, *cut[0])
            for (start, stop), upcoming in zip(cut, [*cut[1:], (n, n)], strict=True):
                rows, halves, longest, moved = ahead.result()
                ahead = reader.submit(self._block, *upcoming)
                for tile in range(len(self.tiles)):
                    products = self.tiles[tile](rows)
                    selecting.result()
                    self.longest, self.moved = max(self.longest, longest), max(self.moved, moved)
                    selecting = selector.submit(self._select, tile, start, products, halves)
                vectors.forget(self.embeddings, start, stop)
                done = len(self.queries) * stop // n
                bar.update(done - seen)
                seen = done
            selecting.result()

    def _block(self, start: int, stop: int) -> tuple[Array, Float32 | None, float, float]:
        """Rows [start, stop) to multiply, half their squared lengths where those count, and two bounds."""
        rows = for_metric(vectors.read(self.embeddings, start, stop), self.metric)
        squares = np.einsum("ij,ij->i", rows, rows)
        longest = 1.001 * float(np.sqrt(squares.max(initial=0)))
        operand, moved = self.tiles[0].prepare(rows)
        return operand, squares / 2 if self.metric == "l2" else None, longest, moved

    def _thresholds(self, tile: int) -> Float32:
        """float32: the least product of a candidate of each query of a tile."""
        queries = slice(tile * QUERIES, (tile + 1) * QUERIES)
        dimension = self.queries.shape[1]
        error = error_bound(self.tiles[tile], self.longest, self.moved, dimension, self.metric)
        lowest = (self.kth[queries] - 2 * error).astype(np.float32)
        return np.nextafter(lowest, np.float32(-np.inf))

    def _select(self, tile: int, start: int, products: Float32, halves: Float32 | None) -> None:
        """Add the candidates among products [rows from `start`, queries of the tile]."""
        if halves is not None:
            products = products - halves[:, None]
        n_queries = products.shape[1]
        hits = np.flatnonzero(products >= self._thresholds(tile))
        row = hits // n_queries
        query = (hits - row * n_queries).astype(np.min_scalar_type(n_queries))
        by_query = np.argsort(query, kind="stable")
        query, rows = query[by_query].astype(np.int64), row[by_query] + start
        values = products.ravel()[hits[by_query]]
        first = tile * QUERIES
        counts = self.count[first : first + n_queries]
        found = np.bincount(query, minlength=n_queries)
        ends = np.cumsum(found)
        full = counts + found > self.rows.shape[1]
        fits = ~full[query]
        place = (counts - (ends - found))[query] + np.arange(len(hits))
        self.rows[query[fits] + first, place[fits]] = rows[fits]
        self.products[query[fits] + first, place[fits]] = values[fits]
        counts += np.where(full, 0, found)
        for number in np.flatnonzero(full):
            span = slice(ends[number] - found[number], ends[number])
            self._cut(tile, int(number), rows[span], values[span])

    def _cut(self, tile: int, number: int, rows: Int64, products: Float32) -> None:
        """Join more to a query's candidates, raise its threshold, and drop what falls below it."""
        query = tile * QUERIES + number
        count = self.count[query]
        rows = np.concatenate([self.rows[query, :count], rows])
        products = np.concatenate([self.products[query, :count], products])
        self.kth[query] = np.partition(products, len(products) - self.k)[-self.k]
        keep = np.flatnonzero(products >= self._thresholds(tile)[number])
        if len(keep) > self.rows.shape[1] - SPARE // 2:  # so many tie that only scores and ids can tell
            keep = keep[np.isin(rows[keep], self._best_of(query, rows[keep]))]
        self.count[query] = len(keep)
        self.rows[query, : len(keep)], self.products[query, : len(keep)] = rows[keep], products[keep]

    def _best_of(self, query: int, rows: Int64) -> Int64:
        own, asking = self.queries[query : query + 1], np.zeros(len(rows), np.int64)
        scores = candidates.score(self.embeddings, rows, own, asking, self.metric)
        return candidates.rank(rows[None], scores[None], self.k, self.ids).passages

    def finish(self) -> Ranking:
        """Score the candidates that are left when all is read; the best k of each query."""
        n_queries, room = self.rows.shape
        self.products[np.arange(room) >= self.count[:, None]] = -np.inf
        for query in range(n_queries):
            self.kth[query] = np.partition(self.products[query], room - self.k)[-self.k]
        lowest = np.concatenate([self._thresholds(tile) for tile in range(len(self.tiles))])
        lowest = np.maximum(lowest, np.finfo(np.float32).min)
        asking, place = np.nonzero(self.products >= lowest[:, None])
        rows = self.rows[asking, place]
        scores = candidates.score(self.embeddings, rows, self.queries, asking, self.metric)
        return candidates.rank(*candidates.lay_out(rows, scores, asking, n_queries), self.k, self.ids)
