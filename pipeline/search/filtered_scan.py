"""The scan of a large exact search: products of integers leave few pairs, whose float32 products decide.

As `scan`, it reads all vectors once and collects candidates. But each core takes a piece of rows through all
steps (`native.nearest.dense`): it rounds the rows to int8, multiplies them with all queries, and computes the
float32 products of the pairs that pass. Only these hits go to the candidates, and the thresholds that come
back from there serve the next piece.

A threshold is worth most before the first row is read. So one row in `STRIDE` is read first, in spans from
all over the collection, and the product at a rank that the k-th best of all rows should have among these
becomes the threshold of the rest: `guessed_rank`. If fewer than k rows are certain to reach it, the guess was
too high, and that query is searched again without one.

Why no candidate is lost. Let s be a row's float32 product, off by e at most, f its integer product plus |q'|
slack, and T the threshold. f is at least q.p, so at least s - e, but for rounding in float32, which is less
than another e. A pair with f below T - 2e has s below T, and would not have become a candidate.

A guess G drops rows whose score is below G - e before k better ones are known. At the end, rows whose
products reach G - e + e' are certain to be better. e' is the error bound then: it is larger than e where
longer rows have been read since.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.display import Bar, silent
from pipeline.core.records import Embeddings, Float32, Float64, Int64, Ranking
from pipeline.native.nearest import dense
from pipeline.search import candidates, scoring
from pipeline.search.candidates import Candidates, ErrorBound, set_rows
from pipeline.search.scoring import Metric, error_bound, for_metric
from pipeline.storage import vector_shards

PIECE = 8192
ROOM = 1 << 16  # hits that a core holds before they are added to the candidates
MANY = 1 / 8  # share of pairs that may pass the filter without need; beyond, float32 alone is as fast
SETTLED = 128  # times k: rows after which thresholds are high enough to judge the filter
JUDGED = 2048  # fewest rows, read after those, by which the filter is judged
STRIDE = 32  # rows for each that is read first
HIT_BYTES = candidates.BYTES + 4  # memory of a candidate, with its score
_LEAST = 256  # rows of the shortest piece, and of a span of those that are read first


def find_sizes(dimension: int, k: int, n_queries: int, memory_mb: int | None) -> tuple[int, int, int]:
    """Most rows that a core takes, cores at work, and queries that share a reading, within `memory_mb`."""
    threads = machine.threads()
    if memory_mb is None:
        return PIECE, threads, max(n_queries, 1)
    memory = memory_mb * 1_000_000
    row_bytes, hit_bytes = 16 * dimension, 20 * ROOM  # a row as it is stored, in float32, and of length 1
    threads = min(threads, max(memory // 2 // (_LEAST * row_bytes + hit_bytes), 1))
    piece = min(PIECE, max((memory // 2 // threads - hit_bytes) // row_bytes, _LEAST))
    in_use = HIT_BYTES * candidates.room_per_query(k) + 2 * candidates.PAIR_BYTES * k
    left = memory - threads * (piece * row_bytes + hit_bytes)
    return piece, threads, min(max(left // (in_use + 48 * dimension), 1), max(n_queries, 1))


def guessed_rank(k: int, sampled: int, n: int) -> int:
    """The rank among `sampled` of n rows whose score is most likely below the k-th best of all; at most k.

    Of the k best rows, about k * sampled / n are sampled, and by Poisson's law hardly ever five times the
    square root more. Rows that are alike and stored together make more of a difference: then the guess is
    too high more often.
    """
    expected = k * sampled / n
    return min(k, math.ceil(expected + 5 * math.sqrt(expected)) + 4)


class HitCandidates(Candidates):
    """As `Candidates`, given the pairs whose product reaches a threshold, with scores. One thread at a time.

    Attributes:
        scores: float32 [queries, room], the exact score of each candidate.
        thresholds: float32 [queries], the least product of a hit; threads read it, so it is replaced whole.
        filter_thresholds: float32 [queries], that less twice the error: the least that passes the filter.
        required: float64 [queries], what guesses rely on: the scores of k rows must reach it, or the query is
            searched again.
    """

    thresholds: Float32
    filter_thresholds: Float32

    def __init__(
        self, n_queries: int, n_passages: int, k: int, ids: pa.ChunkedArray, error: ErrorBound
    ) -> None:
        super().__init__(n_queries, n_passages, k, ids, error, self._score_of)
        self.scores = np.empty_like(self.products)
        self.required = self.kth.copy()

    @property
    def enough(self) -> int:
        """Candidates of a query from which on its threshold is raised."""
        return self.rank + min((self.rows.shape[1] - self.rank) // 3, self.rank // 16 + 8)

    def set_thresholds(self) -> None:
        """Set both, after `kth` or the error bound has changed."""
        error: Float64 = self.error(slice(0, len(self.kth)))
        if self.rank < self.k:
            self.required = np.maximum(self.required, self.kth - error)
        self.thresholds, self.filter_thresholds = (
            np.nextafter((self.kth - errors * error).astype(np.float32), np.float32(-np.inf))
            for errors in (2, 4)
        )

    def guess(self) -> None:
        """Make the product at `rank` among those added so far the threshold, for the best `k` from now on."""
        self._raise_thresholds(self.rank)
        self.rank = self.k

    def _raise_thresholds(self, enough: int) -> None:
        """Raise those of the queries with `enough` candidates, and drop what is below.

        No threshold is lowered: candidates between the lower one and the higher one are already dropped.
        """
        dense.find_kth(self.products, self.count, enough, self.rank, self.kth)
        self.set_thresholds()
        dense.drop_below(*self._arrays, enough, self.thresholds)

    @property
    def _arrays(self) -> tuple[Int64, Float32, Float32, Int64]:
        """The candidates as kernels change them."""
        return self.rows, self.products, self.scores, self.count

    def set_candidates(self, query: int, keep: Int64, rows: Int64, products: Float32) -> None:
        """See `Candidates.set_candidates`."""
        self.scores[query, : len(keep)] = self.scores[query, keep]
        super().set_candidates(query, keep, rows, products)

    def _score_of(self, rows: Int64, query: Int64) -> Float32:
        """See `candidates.ExactScore`; of candidates of one query."""
        candidates = self.rows[query[0], : self.count[query[0]]]
        order = np.argsort(candidates)
        places = order[np.searchsorted(candidates, rows, sorter=order)]
        scores: Float32 = self.scores[query[0], places]
        return scores

    def best_hits(self) -> Ranking:
        """See `Candidates.best_hits`: a part of the queries in each thread."""
        ends = np.linspace(0, len(self.count), machine.threads() + 1).astype(int).tolist()
        with ThreadPoolExecutor(len(ends) - 1) as pool:
            best = [*pool.map(self._best_of, itertools.starmap(slice, itertools.pairwise(ends)))]
        return Ranking(
            np.concatenate([part.passages for part in best]), np.concatenate([part.scores for part in best])
        )

    def _best_of(self, queries: slice) -> Ranking:
        """The best k of some queries."""
        count = self.count[queries]
        room = slice(0, int(count.max(initial=self.k)))
        unused = np.arange(room.stop) >= count[:, None]
        passages = np.where(unused, -1, self.rows[queries, room])
        scores = np.where(unused, np.float32(-np.inf), self.scores[queries, room])
        return scoring.rank_candidates(passages, scores, self.k, self.ids)

    def missed(self) -> Int64:
        """The queries of which fewer than k candidates are certain to reach the score that is required."""
        used = np.arange(self.rows.shape[1]) < self.count[:, None]
        least: Float64 = self.required + self.error(slice(0, len(self.kth)))
        reached = ((self.products >= least[:, None]) & used).sum(axis=1)
        return np.flatnonzero((reached < self.k) & (self.required > -np.inf))

    def add(self, hits: dense.Hits, count: int) -> None:
        """Add the first `count` hits, and raise thresholds."""
        nothing: tuple[Int64, Float32] = np.empty(0, np.int64), np.empty(0, np.float32)
        done = 0
        while (done := dense.add_hits(hits, done, count, self.thresholds, *self._arrays)) < count:
            self._drop_below_threshold(int(hits.queries[done]), *nothing)  # there was no more room
            self.set_thresholds()
        # Finding the k-th best again costs little, and every later hit that a higher threshold saves would
        # have cost a product in float32.
        if (self.count >= self.enough).any():
            self._raise_thresholds(self.enough)


class FilteredScan:
    """One reading of all vectors for one group of queries; arguments as of `scan.StreamingScan`.

    A vector with NaN or infinity is never found.
    """

    def __init__(
        self, embeddings: Embeddings, queries: Float32, k: int, ids: pa.ChunkedArray, metric: Metric
    ) -> None:
        self.embeddings, self.k, self.ids, self.metric = embeddings, k, ids, metric
        self.queries, self.norms = dense.fixed(queries), scoring.norm_bounds(queries)
        self.packed = dense.pack_queries(queries)
        self.is_useful = True  # whether the filter has let few enough pairs pass so far
        self.longest = 0.0  # length of the longest vector so far
        self.candidates = HitCandidates(len(queries), len(embeddings), k, ids, self._error)
        self.candidates.set_thresholds()
        self.lock = threading.Lock()  # of `candidates` and `longest`
        self.done = self.judged = self.without_need = 0  # rows, and pairs that passed the filter without need

    def search(self, piece: int, threads: int, bar: Bar, guess: bool = True) -> Ranking | None:
        """The best k of each query; None if the filter lets too many pairs pass.

        So it does with vectors of which one number is far larger than the others. `piece` and `threads` are
        as in `find_sizes`; with `guess`, thresholds are guessed from a sample.
        """
        if not self._collect(piece, threads, bar, guess):
            return None
        missed = self.candidates.missed()
        ranking = self.candidates.best_hits()
        if missed.size:
            scan = FilteredScan(self.embeddings, self.queries[missed], self.k, self.ids, self.metric)
            with silent("", None, "") as unseen:
                missed_hits = scan.search(piece, threads, unseen, guess=False)
            if missed_hits is None:
                return None
            set_rows(ranking, missed, missed_hits)
        return ranking

    def _collect(self, piece: int, threads: int, bar: Bar, guess: bool) -> bool:
        """Read all vectors and collect the candidates; False if the filter lets too many pairs pass."""
        n = len(self.embeddings)
        memory = [dense.Hits.empty(ROOM) for _ in range(threads)]
        sample, rest = [], []
        for start in range(0, n, STRIDE * _LEAST):
            middle, stop = min(start + _LEAST, n), min(start + STRIDE * _LEAST, n)
            sample.append((start, middle))
            rest += [(first, min(first + piece, stop)) for first in range(middle, stop, piece)]
        if guess:
            sampled = sum(stop - start for start, stop in sample)
            self.candidates.rank = guessed_rank(self.k, sampled, n)
        with ThreadPoolExecutor(threads) as pool:
            for spans in (sample, rest):
                left = iter(spans)
                try:
                    for thread in [pool.submit(self._scan_spans, left, hits, bar) for hits in memory]:
                        thread.result()
                except BaseException:
                    self.is_useful = False  # the other threads need not go on
                    raise
                if spans is sample:
                    self.candidates.guess()
        return self.is_useful

    def _scan_spans(self, spans: Iterator[tuple[int, int]], hits: dense.Hits, bar: Bar) -> None:
        """Add the candidates of one span after another, in one thread's memory, until none is left."""
        for start, stop in spans:  # a future for each span would take longer
            if not self.is_useful:
                return
            without_need = self._scan_rows(start, stop, hits)
            with self.lock:
                before, self.done = self.done, self.done + stop - start
                n_queries, total = len(self.queries), len(self.embeddings)
                bar.update(n_queries * self.done // total - n_queries * before // total)
                self._judge_filter(stop - start, without_need)

    def _scan_rows(self, start: int, stop: int, hits: dense.Hits) -> int:
        """Add the candidates among rows [start, stop); returns how many pairs passed but were no hit."""
        rows = dense.fixed(for_metric(vector_shards.read_rows(self.embeddings, start, stop), self.metric))
        l2 = self.metric == "l2"
        longest, progress, n_hits = np.zeros(1), np.zeros(3, np.int64), 0
        while progress[dense.NEXT_ROW] < len(rows):  # `find` returns where `hits` is full or a row is longer
            # Thresholds may be old when they are used. Another thread raises them, or lowers them where it
            # read a longer row; old ones lose nothing, as no row here is longer than the `longest` that they
            # were made with. The lock makes `longest`, on which the error bound depends, and them agree.
            with self.lock:
                if longest[0] > self.longest:
                    self.longest = float(longest[0])
                    self.candidates.set_thresholds()
                longest[0] = self.longest
                thresholds = self.candidates.thresholds, self.candidates.filter_thresholds
            count = dense.find(
                rows, start, self.queries, self.packed, l2, *thresholds, longest, progress, hits
            )
            n_hits += count
            with self.lock:
                self.candidates.add(hits, count)
        vector_shards.release_memory(self.embeddings, start, stop)
        return int(progress[dense.PASSED]) - n_hits

    def _judge_filter(self, n_rows: int, without_need: int) -> None:
        """Give the filter up if it let too many pairs pass, of all rows since `SETTLED`, that were no hits.

        It lets about three times as many pairs pass as reach the threshold. At first these are most pairs,
        and after N times k rows about 1 / N, so the filter is not judged before. No piece decides alone: of
        rows that are near most queries, most pairs pass.
        """
        if self.done >= SETTLED * self.k:
            self.judged += n_rows
            self.without_need += without_need
            many = MANY * self.judged * len(self.queries)
            self.is_useful &= self.judged < JUDGED or self.without_need <= many

    def _error(self, queries: slice) -> Float64:
        """See `candidates.ErrorBound`."""
        return error_bound(self.norms, self.longest, self.queries.shape[1], self.metric)[queries]
