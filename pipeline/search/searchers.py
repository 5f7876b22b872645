"""Searchers: an index, or the stored vectors themselves, opened to find the best passages of queries.

Each has the `count` and the `dimension` of its vectors, and `search(queries, k, ids, bar)`, which returns the
best k passages of queries float32 [queries, dimension] in the contract's order, given the passages' ids,
Arrow strings [count]. `by_products` tells whether that is an `exact_search`, for which `exact.prepare`
compiles kernels.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.config import FLAT, IndexConfig, SearchConfig
from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Facts, Float32, Int64, Ranking, UInt8
from pipeline.search import documents, exact, faiss_index, scoring
from pipeline.search.faiss_library import faiss
from pipeline.search.quantized import QuantizedVectors
from pipeline.search.scoring import Metric, for_metric

SECONDS = 0.5  # duration of each of the three measurements of speed; at least one batch


class ExactSearcher:
    """Exact search of stored vectors, within `search.memory_mb`.

    Those of a Flat index, which owns their memory, have length 1 for cosine: the queries are scaled once, and
    the metric is a product.
    """

    by_products = True

    def __init__(
        self,
        index: IndexConfig,
        search: SearchConfig,
        embeddings: Embeddings,
        flat: faiss.Index | None = None,
    ) -> None:
        self.flat, self.compared = flat, index.metric
        scaled = flat is not None and index.metric == "cosine"
        self.metric: Metric = "inner_product" if scaled else index.metric
        self.config, self.embeddings = search, embeddings
        self.count = len(embeddings)
        self.dimension = embeddings.dimension

    def search(self, queries: Float32, k: int, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best passages of each query; see the module."""
        queries = for_metric(queries, self.compared) if self.flat is not None else queries
        memory_mb, device = self.config.memory_mb, self.config.device
        return exact.exact_search(
            self.embeddings, queries, k, ids, self.metric, bar, memory_mb=memory_mb, device=device
        )

    def score(self, query: Float32, rows: Int64) -> Float32:
        """float32 [n]: the scores of some passages, by their rows, for a query, float32 [1, dimension]."""
        query = for_metric(query, self.compared)
        return scoring.score_candidates(self.embeddings, rows, query, np.zeros_like(rows), self.metric)


class ApproximateSearcher:
    """Search of any other index."""

    by_products = False

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        self.metric, self.config = index.metric, search
        before = machine.resident_mb()
        # an index that is measured is read into memory, so that the disk has no part in its speed
        self.index = faiss_index.read_index(stored, mapped=not search.against_exact)
        grown = machine.resident_mb() - before  # too little, if it went into memory freed earlier
        size = stored.stat().st_size if isinstance(stored, Path) else stored.nbytes
        self.memory_mb = round(max(grown, size / 1e6), 3)
        faiss_index.set_search_parameters(self.index, index.factory, search.parameters)
        self.count, self.dimension = self.index.ntotal, self.index.d

    def search(self, queries: Float32, k: int, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best passages of each query; see the module."""
        return faiss_index.search_index(self.index, queries, k, ids, self.metric, self.config.batch_size, bar)

    def measure(self, queries: Float32) -> Facts:
        """What a search costs: memory in 10^6 bytes, and `time_searches`."""
        queries, k = for_metric(queries, self.metric), min(self.config.top_k, self.count)
        search = functools.partial(faiss_index.nearest, self.index, k=k, metric=self.metric)
        return {"memory_mb": self.memory_mb, **time_searches(search, queries, self.config.batch_size)}


class QuantizedSearcher:
    """Search of quantized vectors."""

    def __init__(self, search: SearchConfig, vectors: QuantizedVectors) -> None:
        self.config, self.vectors = search, vectors
        self.count, self.dimension = len(vectors), vectors.dimension
        self.by_products = vectors.ranges is not None

    def search(self, queries: Float32, k: int, ids: pa.ChunkedArray, bar: Bar) -> Ranking:
        """The best passages of each query; see the module."""
        return self.vectors.search(queries, k, self.config.rescore, ids, bar, self.config.memory_mb)


def open_searcher(
    index: IndexConfig, search: SearchConfig, stored: Path | UInt8
) -> ExactSearcher | ApproximateSearcher:
    """The searcher of an index: exact for a Flat index, approximate for others."""
    if index.factory != FLAT:
        return ApproximateSearcher(index, search, stored)
    flat = faiss_index.read_index(stored)
    return ExactSearcher(index, search, faiss_index.vectors_of_flat(flat), flat)


Searcher = ExactSearcher | ApproximateSearcher | QuantizedSearcher


def rank(
    searcher: Searcher,
    queries: Float32,
    top_k: int,
    ids: pa.ChunkedArray,
    bar: Bar,
    of: documents.Documents | None,
) -> Ranking:
    """The best passages of each query; or the best documents, where the vectors are those of their chunks.

    `ids` are those of passages or documents, Arrow strings; other arguments are as of `documents.rank`.
    """
    if of is None:
        return searcher.search(queries, top_k, ids, bar)

    def search(chosen: Int64, k: int, bar: Bar) -> Ranking:
        return searcher.search(queries[chosen], k, of.chunk_ids, bar)

    def score(query: int, chunks: Int64) -> Float32:
        assert isinstance(searcher, ExactSearcher)
        return searcher.score(queries[query : query + 1], chunks)

    exactly = score if isinstance(searcher, ExactSearcher) else None
    return documents.rank(search, len(queries), of, top_k, ids, bar, exactly)


def time_searches(search: Callable[[Float32], object], queries: Float32, batch_size: int) -> Facts:
    """Time searches of an index.

    Args:
        search: Searches the index for some rows of `queries`.
        queries: float32 [queries, dimension], at least one.
        batch_size: Queries searched at once.

    Returns:
        `queries_per_second` of batches, and `latency_ms` with `median`, `p95` and `p99` of single queries,
        both on all threads; the number of `threads`, and `queries_per_second_one_thread`.
    """
    search(queries[:1])  # the first call reads and builds what later ones reuse
    times = [seconds for _, seconds in _timed_batches(search, queries, 1)]
    median, p95, p99 = np.percentile(times, (50, 95, 99)) * 1000
    figures = {
        "queries_per_second": round(_queries_per_second(search, queries, batch_size), 1),
        "latency_ms": {"median": round(median, 4), "p95": round(p95, 4), "p99": round(p99, 4)},
    }
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        one_thread = _queries_per_second(search, queries, batch_size)
    finally:
        faiss.omp_set_num_threads(threads)
    return {**figures, "threads": threads, "queries_per_second_one_thread": round(one_thread, 1)}


def total_cost(shards: Sequence[Facts]) -> Facts:
    """The cost of shards that are searched one after the other: the sums of their memory and times.

    The merge of their hits is not counted.
    """
    whole: Facts = {
        "memory_mb": round(sum(shard["memory_mb"] for shard in shards), 3),
        "threads": min(shard["threads"] for shard in shards),
    }
    for name in ("queries_per_second", "queries_per_second_one_thread"):
        whole[name] = round(1 / sum(1 / shard[name] for shard in shards), 1)
    latencies = [shard["latency_ms"] for shard in shards]
    whole["latency_ms"] = {name: round(sum(each[name] for each in latencies), 4) for name in latencies[0]}
    return whole


def _queries_per_second(search: Callable[[Float32], object], queries: Float32, batch_size: int) -> float:
    counts, times = zip(*_timed_batches(search, queries, batch_size), strict=True)
    return float(sum(counts) / sum(times))


def _timed_batches(
    search: Callable[[Float32], object], queries: Float32, batch_size: int
) -> Iterator[tuple[int, float]]:
    """Searches batches of the queries in turn until `SECONDS` are over; yields their sizes and seconds."""
    until = time.perf_counter() + SECONDS
    for start in itertools.cycle(range(0, len(queries), batch_size)):
        batch = queries[start : start + batch_size]
        started = time.perf_counter()
        search(batch)
        ended = time.perf_counter()
        yield len(batch), ended - started
        if ended > until:
            return
