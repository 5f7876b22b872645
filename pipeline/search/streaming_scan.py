"""The streaming scan: one reading of all vectors that finds the exact best passages of a group of queries.

The vectors may be larger than memory, and to score every pair in float64 would take too long. So a block of
rows is read at a time and multiplied with the queries, fast and inexactly (`product`). A row whose product is
large enough becomes a candidate of that query. After the last block, the candidates that are left, few more
than k for each query, are scored exactly (`rescoring`), and the best k are the result.

How large is large enough? Let e be the bound on the error of a product, and t a value that the products of
at least k rows reach: the k-th best so far. Those k rows have true values of at least t - e. A row whose
product is below the threshold t - 2e has a true value below t - e, so k rows are better, and it can be
dropped: nothing that belongs to the best k is lost, and neither is a row that ties with the k-th. As more
is read, t rises. e may grow too, with the longest vector read. That changes nothing for a row dropped
earlier: the k rows that were better than it had been read by then, and the smaller e held for all of them.

Each query has room for 3k candidates and some more. Only when new ones do not fit is t computed again and
what is below the threshold dropped; otherwise a product costs one comparison. At first t is -inf and every
row passes. So blocks start short and grow, each as long as all before it together, up to the full length: if
rows are in random order, about k of a block pass.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core.progress import Bar
from pipeline.core.records import Array, Embeddings, Float32, Int64, Ranking
from pipeline.search import rescoring
from pipeline.search.product import error_bound, tile_products
from pipeline.search.similarity import Metric, for_metric
from pipeline.storage import vector_shards

QUERIES = 512  # queries of a tile: those multiplied at once
TILE = 1 << 21  # products made at once
BLOCK = 16384  # rows of the longest block
SPARE = 512  # room for candidates beyond 3k
_CANDIDATE_BYTES = 12
_PAIR_BYTES = 80  # memory to score one pair and sort it


def block_and_group_sizes(dimension: int, k: int, n_queries: int, memory_mb: int | None) -> tuple[int, int]:
    """Rows of a block, and queries of a group, for which all vectors are read once."""
    n_queries = max(n_queries, 1)
    tile = min(QUERIES, n_queries)
    block = min(TILE // tile, BLOCK)
    if memory_mb is None:
        return block, n_queries
    memory = memory_mb * 1_000_000
    row_bytes = 18 * dimension + 16 * tile  # one block being read, one in use, one being released; products
    block = min(block, max(memory // 2 // row_bytes, 256))
    query_bytes = _CANDIDATE_BYTES * (3 * k + SPARE) + 2 * _PAIR_BYTES * k + 16 * dimension
    return block, min(max((memory - block * row_bytes) // query_bytes, 1), n_queries)


def growing_blocks(n: int, first: int, longest: int) -> list[tuple[int, int]]:
    """Blocks [start, stop) of n rows: the first is short, each next one as long as all before it together."""
    blocks = []
    start = 0
    while start < n:
        stop = min(start + min(max(start, first), longest), n)
        blocks.append((start, stop))
        start = stop
    return blocks


class StreamingScan:
    """One reading of all vectors for one group of queries: `collect`, then `best_hits`.

    The candidates are arrays [queries, room], of which the first `count` of each row are in use.

    Args:
        embeddings: At least k passages' vectors.
        queries: float32 [queries, dimension], at least one, of length 1 if the metric is cosine.
        k: Hits kept for each query.
        ids: Arrow strings, the ids of the passages.
        metric: The metric.
    """

    def __init__(
        self, embeddings: Embeddings, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
    ) -> None:
        self.embeddings, self.queries, self.k, self.ids, self.metric = embeddings, queries, k, ids, metric
        self.tiles = tile_products(queries, QUERIES, len(embeddings))
        self.longest = 0.0  # length of the longest vector so far
        self.row_error = 0.0  # largest distance of a vector so far to its operand, see `error_bound`
        room = min(3 * k + SPARE, len(embeddings))
        self.rows = np.empty((len(queries), room), np.int64)
        self.products = np.empty((len(queries), room), np.float32)
        self.count = np.zeros(len(queries), np.int64)
        self.kth = np.full(len(queries), -np.inf)  # at most the k-th best product so far

    def collect(self, block: int, bar: Bar) -> None:
        """Read all vectors and collect the candidates.

        Three threads work at once: one reads the next block, this one multiplies, and one selects from the
        products before. A product's memory is used again by the call after the next, so a selection has to
        end before the one after it begins.

        Args:
            block: Rows of the longest block.
            bar: Counts queries, in proportion to the rows read.
        """
        n = len(self.embeddings)
        counted = 0
        blocks = growing_blocks(n, min(2 * self.k, block), block)
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as selector:
            selecting: Future[None] = selector.submit(lambda: None)
            reading = reader.submit(self._read_block, *blocks[0])
            for (start, stop), upcoming in zip(blocks, [*blocks[1:], (n, n)], strict=True):
                operand, halves, longest, row_error = reading.result()
                reading = reader.submit(self._read_block, *upcoming)
                for tile in range(len(self.tiles)):
                    products = self.tiles[tile](operand)
                    selecting.result()
                    self.longest = max(self.longest, longest)
                    self.row_error = max(self.row_error, row_error)
                    selecting = selector.submit(self._select, tile, start, products, halves)
                vector_shards.release_memory(self.embeddings, start, stop)
                done = len(self.queries) * stop // n
                bar.update(done - counted)
                counted = done
            selecting.result()

    def _read_block(self, start: int, stop: int) -> tuple[Array, Float32 | None, float, float]:
        """Rows [start, stop): the operand, half the squared lengths for l2, largest length and row error."""
        rows = for_metric(vector_shards.read_rows(self.embeddings, start, stop), self.metric)
        squares = np.einsum("ij,ij->i", rows, rows)
        longest = 1.001 * float(np.sqrt(squares.max(initial=0)))
        operand, row_error = self.tiles[0].to_operand(rows)
        return operand, squares / 2 if self.metric == "l2" else None, longest, row_error

    def _thresholds(self, tile: int) -> Float32:
        """float32: the smallest product of a candidate, for each query of a tile; rounded down."""
        queries = slice(tile * QUERIES, (tile + 1) * QUERIES)
        dimension = self.queries.shape[1]
        error = error_bound(self.tiles[tile], self.longest, self.row_error, dimension, self.metric)
        lowest = (self.kth[queries] - 2 * error).astype(np.float32)
        return np.nextafter(lowest, np.float32(-np.inf))

    def _select(self, tile: int, start: int, products: Float32, halves: Float32 | None) -> None:
        """Add the candidates among `products`, [rows from `start` on, queries of the tile].

        The hits are sorted by query, so that each query's new candidates are next to each other: the last one
        ends at `ends`, and they go to the columns after the `count` that are in use. Queries without enough
        room for theirs are passed to `_drop_below_threshold`, one by one.
        """
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
        column = (counts - (ends - found))[query] + np.arange(len(hits))
        self.rows[query[fits] + first, column[fits]] = rows[fits]
        self.products[query[fits] + first, column[fits]] = values[fits]
        counts += np.where(full, 0, found)
        for number in np.flatnonzero(full):
            span = slice(ends[number] - found[number], ends[number])
            self._drop_below_threshold(tile, int(number), rows[span], values[span])

    def _drop_below_threshold(self, tile: int, number: int, rows: Int64, products: Float32) -> None:
        """Add candidates to the query `number` of a tile, raise its threshold, and drop all below it."""
        query = tile * QUERIES + number
        count = self.count[query]
        rows = np.concatenate([self.rows[query, :count], rows])
        products = np.concatenate([self.products[query, :count], products])
        self.kth[query] = np.partition(products, len(products) - self.k)[-self.k]
        keep = np.flatnonzero(products >= self._thresholds(tile)[number])
        if len(keep) > self.rows.shape[1] - SPARE // 2:  # too many are this close: exact scores decide
            own = self.queries[query : query + 1]
            same_query = np.zeros(len(keep), np.int64)
            scores = rescoring.score_candidates(self.embeddings, rows[keep], own, same_query, self.metric)
            best = rescoring.rank_candidates(rows[keep][None], scores[None], self.k, self.ids)
            keep = keep[np.isin(rows[keep], best.passages)]
        self.count[query] = len(keep)
        self.rows[query, : len(keep)] = rows[keep]
        self.products[query, : len(keep)] = products[keep]

    def best_hits(self) -> Ranking:
        """The best k of each query, after `collect`: the candidates that are left are scored exactly."""
        n_queries, room = self.rows.shape
        self.products[np.arange(room) >= self.count[:, None]] = -np.inf
        for query in range(n_queries):
            self.kth[query] = np.partition(self.products[query], room - self.k)[-self.k]
        lowest = np.concatenate([self._thresholds(tile) for tile in range(len(self.tiles))])
        lowest = np.maximum(lowest, np.finfo(np.float32).min)
        query_of, column = np.nonzero(self.products >= lowest[:, None])
        rows = self.rows[query_of, column]
        scores = rescoring.score_candidates(self.embeddings, rows, self.queries, query_of, self.metric)
        return rescoring.rank_pairs(rows, scores, query_of, n_queries, self.k, self.ids)
