"""A scan: one reading of all vectors that finds the exact best passages of a group of queries.

The vectors may be larger than memory, and scoring every pair in float64 would take too long. So a block of
rows is multiplied with the queries in float32, inexactly. A row whose product is large enough becomes a
candidate of that query, and the candidates that are left at the end are scored exactly (`candidates` explains
what is large enough, and why nothing is lost).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Float32, Float64, Int64
from pipeline.search import candidates, scoring
from pipeline.search.candidates import Candidates
from pipeline.search.scoring import Metric, error_bound, for_metric, norm_bounds
from pipeline.storage import vector_shards

if TYPE_CHECKING:
    import torch

QUERIES = 512  # queries of a tile: those multiplied at once
TILE = 1 << 21  # products made at once
MOST_ROWS = 16384  # rows of the longest block
DEVICE_ROWS = 1 << 16  # of a scan on a GPU
DEVICE_PRODUCTS = 1 << 28  # most products made at once there: 1 GiB


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
        self._queries = np.ascontiguousarray(queries.T)
        self._results = [np.empty((0, len(queries)), np.float32)] * 2

    def __call__(self, rows: Float32) -> Float32:
        """Products float32 [rows, queries]; the memory is used again by the call after the next."""
        self._results.reverse()
        if len(self._results[0]) < len(rows):
            self._results[0] = np.empty((len(rows), self._queries.shape[1]), np.float32)
        return np.matmul(rows, self._queries, out=self._results[0][: len(rows)])


class Block(NamedTuple):
    """Consecutive rows that are multiplied at once."""

    start: int  # the number of the first row
    rows: Float32
    halves: Float32 | None  # half their squared lengths, for l2
    longest: float  # at least the largest length


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
        self.norms = norm_bounds(queries)
        self.longest = 0.0  # length of the longest vector so far
        self.candidates = Candidates(len(queries), len(embeddings), k, ids, self._error, self._score)

    def collect(self, block: int, bar: Bar) -> None:
        """Read all vectors, in blocks of up to `block` rows, and collect the candidates.

        Three threads work at once: one reads the next block, this one multiplies, and one selects from the
        products before.
        """
        starts = range(0, len(self.queries), QUERIES)
        tiles = [(start, _Tile(self.queries[start : start + QUERIES])) for start in starts]
        with ThreadPoolExecutor(1) as selector:
            selecting: Future[None] = selector.submit(lambda: None)
            for read in self._blocks(block, bar):
                for first, multiply in tiles:
                    # a product's memory is used again by the call after the next: wait for its selection
                    products = multiply(read.rows)
                    selecting.result()
                    self.longest = max(self.longest, read.longest)
                    selecting = selector.submit(self._select, first, read, products)
            selecting.result()

    def _blocks(self, longest: int, bar: Bar) -> Iterator[Block]:
        """All rows, in blocks of up to `longest`; one thread reads the next block meanwhile."""
        n, n_queries = len(self.embeddings), len(self.queries)
        spans = growing_blocks(n, min(2 * self.k, longest), longest)
        with ThreadPoolExecutor(1) as reader:
            reading = reader.submit(self._read_block, *spans[0])
            for (start, stop), upcoming in zip(spans, [*spans[1:], (n, n)], strict=True):
                block = reading.result()
                reading = reader.submit(self._read_block, *upcoming)
                yield block
                vector_shards.release_memory(self.embeddings, start, stop)
                bar.update(n_queries * stop // n - n_queries * start // n)

    def _read_block(self, start: int, stop: int) -> Block:
        rows = for_metric(vector_shards.read_rows(self.embeddings, start, stop), self.metric)
        squares = np.einsum("ij,ij->i", rows, rows)
        longest = 1.001 * float(np.sqrt(squares.max(initial=0)))
        return Block(start, rows, squares / 2 if self.metric == "l2" else None, longest)

    def _select(self, first: int, block: Block, products: Float32) -> None:
        """Select from `products`, [rows of the block, queries from `first` on]."""
        if block.halves is not None:
            products = products - block.halves[:, None]
        self.candidates.select(first, block.start, products)

    def _error(self, queries: slice) -> Float64:
        """See `candidates.ErrorBound`."""
        return error_bound(self.norms[queries], self.longest, self.queries.shape[1], self.metric)

    def _score(self, rows: Int64, query: Int64) -> Float32:
        """See `candidates.ExactScore`."""
        return scoring.score_candidates(self.embeddings, rows, self.queries, query, self.metric)


class DeviceScan(StreamingScan):
    """A scan whose products are made on a GPU: only pairs that reach their query's threshold come back.

    Products are IEEE float32, never TF32 (`find_device` sees to that), so the bound on their error, which
    holds for sums in any order, holds here, too: the ranking is the same.
    """

    def collect_on(self, device: torch.device, block: int, bar: Bar) -> None:
        """As `collect`, on a device of torch."""
        queries, every = _copied(self.queries, device), slice(0, len(self.queries))
        for read in self._blocks(min(block, max(DEVICE_PRODUCTS // len(queries), 1)), bar):
            self.longest = max(self.longest, read.longest)
            products = self.multiply(queries, _copied(read.rows, device))
            if read.halves is not None:
                products -= _copied(read.halves, device)
            reached = products >= _copied(self.candidates.least_products(every), device)[:, None]
            query, row = reached.nonzero(as_tuple=True)  # sorted by query
            values = products[query, row].cpu().numpy()
            rows = row.cpu().numpy() + read.start
            self.candidates.add_pairs(query.cpu().numpy(), rows, values)

    def multiply(self, queries: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Products float32 [queries, rows], on their device."""
        return queries @ rows.T


def _copied(values: Float32, device: torch.device) -> torch.Tensor:
    """Values on a device; by way of pinned memory, from which a GPU copies at its full rate."""
    import torch

    pinned = torch.empty(values.shape, dtype=torch.float32, pin_memory=device.type == "cuda")
    pinned.numpy()[:] = values
    return pinned.to(device)
