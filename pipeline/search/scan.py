"""A scan: one reading of all vectors that finds the exact best passages of a group of queries.

The vectors may be larger than memory, and scoring every pair in float64 would take too long. So a block of
rows is multiplied with the queries in float32, inexactly. A row whose product is large enough becomes a
candidate of that query, and the candidates that are left at the end are scored exactly (`candidates` explains
what is large enough, and why nothing is lost).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Float32, Float64, Int64
from pipeline.search import candidates, scoring
from pipeline.search.candidates import Candidates
from pipeline.search.scoring import Metric, error_bound, for_metric, norm_bounds
from pipeline.storage import vector_shards

QUERIES = 512  # queries of a tile: those multiplied at once
TILE = 1 << 21  # products made at once
MOST_ROWS = 16384  # rows of the longest block


def block_and_group_sizes(dimension: int, k: int, n_queries: int, memory_mb: int | None) -> tuple[int, int]:
    """Rows of a block, and queries of a group, for which all vectors are read once."""
    n_queries = max(n_queries, 1)
    tile = min(QUERIES, n_queries)
    block = min(TILE // tile, MOST_ROWS)
    if memory_mb is None:
        return block, n_queries
    memory = memory_mb * 1_000_000
    row_bytes = 18 * dimension + 16 * tile  # one block being read, one in use, one being released; products
    block = min(block, max(memory // 2 // row_bytes, 256))
    query_bytes = (
        candidates.BYTES * candidates.room_per_query(k) + 2 * candidates.PAIR_BYTES * k + 16 * dimension
    )
    return block, min(max((memory - block * row_bytes) // query_bytes, 1), n_queries)


def growing_blocks(n: int, first: int, longest: int) -> list[tuple[int, int]]:
    """Blocks [start, stop) of n rows: the first is short, each next one as long as all before it together."""
    # At first every row is a candidate. With blocks that double, about k rows of each pass if rows are in
    # random order.
    blocks = []
    start = 0
    while start < n:
        stop = min(start + min(max(start, first), longest), n)
        blocks.append((start, stop))
        start = stop
    return blocks


class _Tile:
    """Some of the queries, and the memory for their products with rows."""

    def __init__(self, queries: Float32) -> None:
        self.norms = norm_bounds(queries)
        self._queries = np.ascontiguousarray(queries.T)
        self._results = [np.empty((0, len(queries)), np.float32)] * 2

    def __call__(self, rows: Float32) -> Float32:
        """Products float32 [rows, queries]; the memory is used again by the call after the next."""
        self._results.reverse()
        if len(self._results[0]) < len(rows):
            self._results[0] = np.empty((len(rows), len(self.norms)), np.float32)
        return np.matmul(rows, self._queries, out=self._results[0][: len(rows)])


class StreamingScan:
    """One reading of all vectors for one group of queries: `collect`, then `best_hits` of its `candidates`.

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
        self.embeddings, self.queries, self.k, self.metric = embeddings, queries, k, metric
        self.tiles = [_Tile(queries[start : start + QUERIES]) for start in range(0, len(queries), QUERIES)]
        self.longest = 0.0  # length of the longest vector so far
        self.candidates = Candidates(len(queries), len(embeddings), k, ids, self._error, self._score)

    def collect(self, block: int, bar: Bar) -> None:
        """Read all vectors and collect the candidates.

        Three threads work at once: one reads the next block, this one multiplies, and one selects from the
        products before. Blocks have up to `block` rows.
        """
        n = len(self.embeddings)
        counted = 0
        blocks = growing_blocks(n, min(2 * self.k, block), block)
        with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as selector:
            selecting: Future[None] = selector.submit(lambda: None)
            reading = reader.submit(self._read_block, *blocks[0])
            for (start, stop), upcoming in zip(blocks, [*blocks[1:], (n, n)], strict=True):
                rows, halves, longest = reading.result()
                reading = reader.submit(self._read_block, *upcoming)
                for tile in range(len(self.tiles)):
                    # a product's memory is used again by the call after the next: wait for its selection
                    products = self.tiles[tile](rows)
                    selecting.result()
                    self.longest = max(self.longest, longest)
                    selecting = selector.submit(self._select, tile, start, products, halves)
                vector_shards.release_memory(self.embeddings, start, stop)
                done = len(self.queries) * stop // n
                bar.update(done - counted)
                counted = done
            selecting.result()

    def _read_block(self, start: int, stop: int) -> tuple[Float32, Float32 | None, float]:
        """Rows [start, stop), half the squared lengths for l2, and the largest length."""
        rows = for_metric(vector_shards.read_rows(self.embeddings, start, stop), self.metric)
        squares = np.einsum("ij,ij->i", rows, rows)
        longest = 1.001 * float(np.sqrt(squares.max(initial=0)))
        return rows, squares / 2 if self.metric == "l2" else None, longest

    def _select(self, tile: int, start: int, products: Float32, halves: Float32 | None) -> None:
        """Select from `products`, [rows from `start` on, queries of the tile]."""
        if halves is not None:
            products = products - halves[:, None]
        self.candidates.select(tile * QUERIES, start, products)

    def _error(self, queries: slice) -> Float64:
        """See `candidates.ErrorBound`."""
        first = queries.start // QUERIES
        dimension = self.queries.shape[1]
        bounds = [
            error_bound(tile.norms, self.longest, dimension, self.metric)
            for tile in self.tiles[first : -(-queries.stop // QUERIES)]
        ]
        before = first * QUERIES
        return np.concatenate(bounds)[queries.start - before : queries.stop - before]

    def _score(self, rows: Int64, query: Int64) -> Float32:
        """See `candidates.ExactScore`."""
        return scoring.score_candidates(self.embeddings, rows, self.queries, query, self.metric)
