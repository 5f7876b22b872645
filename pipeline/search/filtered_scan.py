"""The scan of a large exact search: products of integers leave few pairs, whose float32 products decide.

As `scan`, it reads all vectors once and collects candidates. But each core takes a piece of rows through all
steps while the piece is in its cache: it rounds the rows to int8, multiplies them with all queries, and
computes the float32 products of the pairs that pass (`native.nearest.dense`). Only these hits go to the
candidates, and the thresholds that come back from there serve the next piece.

Why no candidate is lost. Let s be a row's float32 product, off by e at most, f its integer product plus |q'|
slack, and T the threshold. f is at least q.p, so at least s - e, but for rounding in float32, which is less
than another e. A pair with f below T - 2e has s below T, and would not have become a candidate.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Float32, Float64, Int64
from pipeline.native.nearest import dense
from pipeline.search import candidates, scoring
from pipeline.search.candidates import Candidates
from pipeline.search.scan import growing_blocks
from pipeline.search.scoring import Metric, error_bound, for_metric
from pipeline.storage import vector_shards

PIECE = 2048
ROOM = 1 << 16  # hits that a core holds before they are added to the candidates
MANY = 1 / 32  # share of pairs that the filter may let pass without need
SETTLED = 128  # times k: rows after which thresholds are high enough to judge the filter
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


class HitCandidates(Candidates):
    """As `Candidates`, given the pairs whose product reaches a threshold. One thread at a time."""

    @property
    def enough(self) -> int:
        """Candidates of a query from which on its threshold is raised."""
        return self.k + (self.rows.shape[1] - self.k) // 3

    def thresholds(self) -> tuple[Float32, Float32]:
        """float32 [queries]: the smallest product of a hit, and that less twice the error; rounded down."""
        whole = slice(0, len(self.kth))
        error: Float64 = self.error(whole)
        lowest = [self.kth - 2 * error, self.kth - 4 * error]
        hit, less = (np.nextafter(some.astype(np.float32), np.float32(-np.inf)) for some in lowest)
        return hit, less

    def add(self, hits: dense.Hits, count: int) -> None:
        """Add the first `count` hits, and raise thresholds."""
        nothing: tuple[Int64, Float32] = np.empty(0, np.int64), np.empty(0, np.float32)
        thresholds, _ = self.thresholds()
        done = 0
        while (
            done := dense.add_hits(*hits, done, count, thresholds, self.rows, self.products, self.count)
        ) < count:
            query = int(hits.queries[done])  # there is no more room for its candidates
            self._drop_below_threshold(query, *nothing)
            thresholds[query] = self._thresholds(slice(query, query + 1))[0]
        # Finding the k-th best again costs little, and every later hit that a higher threshold saves would
        # have cost a product in float32.
        if (self.count >= self.enough).any():
            dense.find_kth(self.products, self.count, self.enough, self.k, self.kth)
            dense.drop_below(self.rows, self.products, self.count, self.enough, self.thresholds()[0])


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
        self.queries, self.norms = dense.fixed(queries), scoring.norm_bounds(queries)
        self.packed = dense.pack_queries(queries)
        self.is_useful = True  # whether the filter has let few enough pairs pass so far
        self.longest = 0.0  # length of the longest vector so far
        self.candidates = HitCandidates(len(queries), len(embeddings), k, ids, self._error, self._score)
        self.memory: SimpleQueue[tuple[dense.IntegerRows, dense.Hits]] = SimpleQueue()  # one for each thread
        self.lock = threading.Lock()  # of `candidates` and `longest`
        self.done = 0  # rows

    def collect(self, piece: int, threads: int, bar: Bar) -> bool:
        """Read all vectors and collect the candidates.

        Returns False before all are read if the filter lets too many pairs pass, as with vectors of which one
        number is far larger than the others.

        Args:
            piece: Most rows that a core takes at once.
            threads: Cores at work at once.
            bar: Counts queries, in proportion to the rows read.
        """
        n = len(self.embeddings)
        for _ in range(threads):
            self.memory.put((dense.IntegerRows.empty(piece, self.packed), dense.Hits.empty(ROOM)))
        with ThreadPoolExecutor(threads) as pool:
            for start, stop in growing_blocks(n, min(2 * self.k, piece), n):
                starts = range(start, stop, piece)
                stops = [*starts[1:], stop]
                list(pool.map(lambda first, end: self._take(first, end, bar), starts, stops))
                if not self.is_useful:
                    break
        return self.is_useful

    def _take(self, start: int, stop: int, bar: Bar) -> None:
        """Add the candidates among rows [start, stop)."""
        if not self.is_useful:
            return
        rows = dense.fixed(for_metric(vector_shards.read_rows(self.embeddings, start, stop), self.metric))
        memory, hits = self.memory.get()
        integers = dense.round_rows(rows, self.metric == "l2", self.packed, memory)
        state = np.zeros(3, np.int64)
        found = 0
        while state[0] < len(rows):
            # Thresholds may be old when they are used: other threads can only raise them meanwhile, so
            # nothing is lost. The lock makes `longest`, on which the error bound depends, and them agree.
            with self.lock:
                self.longest = max(self.longest, integers.longest)
                hit, lowest = self.candidates.thresholds()
            filled = np.full(len(self.packed.factors), np.nan, np.float32)
            filled[: len(lowest)] = lowest
            count = dense.find(rows, integers, start, self.queries, self.packed, hit, filled, state, hits)
            found += count
            with self.lock:
                self.candidates.add(hits, count)
        self.memory.put((memory, hits))
        vector_shards.release_memory(self.embeddings, start, stop)
        with self.lock:
            before, self.done = self.done, self.done + stop - start
            counted, total = len(self.queries), len(self.embeddings)
            bar.update(counted * self.done // total - counted * before // total)
        # The filter lets about three times as many pairs pass as reach the threshold. At first these are most
        # pairs, and after N times k rows about 1/N, so the filter is not judged before.
        without_need = int(state[2]) - found
        if start >= SETTLED * self.k and without_need > MANY * len(rows) * len(self.queries):
            self.is_useful = False

    def _error(self, queries: slice) -> Float64:
        """See `candidates.ErrorBound`."""
        return error_bound(self.norms, self.longest, self.queries.shape[1], self.metric)[queries]

    def _score(self, rows: Int64, query: Int64) -> Float32:
        """See `candidates.ExactScore`."""
        return scoring.score_candidates(self.embeddings, rows, self.queries, query, self.metric)
