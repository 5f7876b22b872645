"""The scan of a large exact search: products of integers leave few pairs, whose float32 products decide.

As `streaming_scan`, it reads all vectors once and collects candidates. But each core takes a piece of rows
through all steps while the piece is in its cache: it rounds the rows to integers, multiplies them with all
queries, and computes the float32 products of the pairs that pass (`integer_kernels`). Only these hits go to
the candidates, and the thresholds that come back from there serve the next piece.

Why no candidate is lost. Let s be a row's float32 product, off by e at most, f its integer product plus |q'|
slack, and T the threshold. f is at least q·p, so at least s - e, but for rounding in float32, which is less
than another e. A pair with f below T - 2e has s below T, and would not have become a candidate.

A core begins with int8. Where it lets too many pairs pass, as with vectors of which one number is far larger
than the others, the rest of the scan is filtered in int16.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.progress import Bar
from pipeline.core.records import Embeddings, Float32, Float64, Int64
from pipeline.search import candidates, integer_kernels, rescoring
from pipeline.search.hit_candidates import HitCandidates
from pipeline.search.integer_kernels import Hits, IntegerRows
from pipeline.search.product import Float32Product, error_bound
from pipeline.search.similarity import Metric, for_metric
from pipeline.search.streaming_scan import growing_blocks
from pipeline.storage import vector_shards

PIECE = 2048  # most rows that a core takes at once
ROOM = 1 << 16  # hits that a core holds before they are added to the candidates
MANY = 1 / 32  # share of pairs that int8 may let pass without need
_LEAST = 256  # rows of the shortest piece
_PAIR_BYTES = 80  # memory to score one pair and sort it


class Sizes(NamedTuple):
    """How a search is cut.

    Attributes:
        piece: Most rows that a core takes at once.
        threads: Cores at work at once.
        group: Queries for which all vectors are read once.
    """

    piece: int
    threads: int
    group: int

    @classmethod
    def of(cls, dimension: int, k: int, n_queries: int, memory_mb: int | None) -> Sizes:
        """The sizes with which a search stays within `memory_mb`, in 10^6 bytes."""
        threads = machine.threads()
        if memory_mb is None:
            return cls(PIECE, threads, max(n_queries, 1))
        memory = memory_mb * 1_000_000
        row_bytes, hit_bytes = 18 * dimension, 16 * ROOM  # a row as it is stored, in float32, and rounded
        threads = min(threads, max(memory // 2 // (_LEAST * row_bytes + hit_bytes), 1))
        piece = min(PIECE, max((memory // 2 // threads - hit_bytes) // row_bytes, _LEAST))
        in_use = candidates.BYTES * candidates.room_per_query(k) + 2 * _PAIR_BYTES * k
        left = memory - threads * (piece * row_bytes + hit_bytes)
        return cls(piece, threads, min(max(left // (in_use + 48 * dimension), 1), max(n_queries, 1)))


class FilteredScan:
    """One reading of all vectors for one group of queries: `collect`, then `best_hits` of its `candidates`.

    Args:
        embeddings: At least k passages' vectors; one with NaN or infinity is never found.
        queries: float32 [queries, dimension], at least one, of length 1 if the metric is cosine.
        k: Hits kept for each query.
        ids: Arrow strings, the ids of the passages.
        metric: The metric.
    """

    def __init__(
        self, embeddings: Embeddings, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
    ) -> None:
        self.embeddings, self.k, self.metric = embeddings, k, metric
        self.queries = integer_kernels.fixed(queries)
        self.packed = {narrow: integer_kernels.pack_queries(queries, narrow) for narrow in (True, False)}
        self.narrow = True
        self.product = Float32Product(queries)
        self.longest = 0.0  # length of the longest vector so far
        self.candidates = HitCandidates(len(queries), len(embeddings), k, ids, self._error, self._score)
        self.lock = threading.Lock()  # of `candidates` and `longest`
        self.done = 0  # rows

    def collect(self, piece: int, threads: int, bar: Bar) -> None:
        """Read all vectors and collect the candidates.

        Args:
            piece: Most rows that a core takes at once.
            threads: Cores at work at once.
            bar: Counts queries, in proportion to the rows read.
        """
        n = len(self.embeddings)
        with ThreadPoolExecutor(threads) as pool:
            for start, stop in growing_blocks(n, min(2 * self.k, piece), n):
                starts = range(start, stop, piece)
                stops = [*starts[1:], stop]
                list(pool.map(lambda first, end: self._take(first, end, bar), starts, stops))

    def _take(self, start: int, stop: int, bar: Bar) -> None:
        """Add the candidates among rows [start, stop)."""
        rows = integer_kernels.fixed(
            for_metric(vector_shards.read_rows(self.embeddings, start, stop), self.metric)
        )
        narrow = self.narrow
        integers = integer_kernels.round_rows(rows, narrow, self.metric == "l2", self.packed[narrow].share)
        hits = Hits.empty(ROOM)
        state = np.zeros(3, np.int64)
        found = 0
        while state[0] < len(rows):
            with self.lock:
                self.longest = max(self.longest, integers.longest)
                thresholds = self.candidates.thresholds()
            count = self._find(rows, integers, narrow, start, thresholds, state, hits)
            found += count
            with self.lock:
                self.candidates.add(hits, count)
        vector_shards.release_memory(self.embeddings, start, stop)
        with self.lock:
            before, self.done = self.done, self.done + stop - start
            counted, total = len(self.queries), len(self.embeddings)
            bar.update(counted * self.done // total - counted * before // total)
        if state[2] - found > MANY * len(rows) * len(self.queries):
            self.narrow = False

    def _find(
        self,
        rows: Float32,
        integers: IntegerRows,
        narrow: bool,
        start: int,
        thresholds: tuple[Float32, Float32],
        state: Int64,
        hits: Hits,
    ) -> int:
        """See `integer_kernels.find`."""
        hit, lowest = thresholds
        packed = self.packed[narrow]
        filled = np.full(len(packed.factors), np.nan, np.float32)
        filled[: len(lowest)] = lowest
        count: int = integer_kernels.find(
            rows, integers, start, narrow, self.queries, packed, hit, filled, state, hits
        )
        return count

    def _error(self, queries: slice) -> Float64:
        """See `candidates.ErrorBound`."""
        return error_bound(self.product, self.longest, self.queries.shape[1], self.metric)[queries]

    def _score(self, rows: Int64, query: Int64) -> Float32:
        """See `candidates.ExactScore`."""
        return rescoring.score_candidates(self.embeddings, rows, self.queries, query, self.metric)
