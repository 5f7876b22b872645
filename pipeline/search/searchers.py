"""Searchers: an index, or the stored vectors themselves, opened to find the best passages of queries.

Each has the `count` and the `dimension` of its vectors, and `search(queries, ids, bar, documents)`. That
returns the best `search.top_k` passages of each query in the contract's order, for queries float32 [queries,
dimension], the passages' ids as Arrow strings [count], and a bar that counts queries; or, where the vectors
are those of chunks, the best documents, with their ids. `index` and `search` are the sections of the config;
`stored` is the index's file or its bytes (see `faiss_index.read_index`).
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa

from pipeline.config import FLAT, IndexConfig, SearchConfig
from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.records import Embeddings, Facts, Float32, Int64, Ranking, UInt8
from pipeline.search import exact, faiss_index, faiss_search
from pipeline.search.documents import Documents, rank_by_search
from pipeline.search.scoring import Metric, for_metric

SECONDS = 0.5  # duration of each of the three measurements of speed; at least one batch


class StreamingSearcher:
    """Exact search of stored vectors, within `search.memory_mb`."""

    def __init__(self, index: IndexConfig, search: SearchConfig, embeddings: Embeddings) -> None:
        self.metric, self.config, self.embeddings = index.metric, search, embeddings
        self.count = len(embeddings)
        self.dimension = embeddings.dimension

    def search(
        self, queries: Float32, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None
    ) -> Ranking:
        """The best passages of each query; see the module."""
        top_k, memory_mb = self.config.top_k, self.config.memory_mb
        return exact.exact_search(
            self.embeddings, queries, top_k, ids, self.metric, bar, memory_mb=memory_mb, documents=documents
        )


class FlatSearcher:
    """Exact search of the vectors of a Flat index, in memory."""

    def __init__(self, index: IndexConfig, search: SearchConfig, stored: Path | UInt8) -> None:
        self.metric = index.metric
        self.config = search
        self.index = faiss_index.read_index(stored)
        self.count, self.dimension = self.index.ntotal, self.index.d

    def search(
        self, queries: Float32, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None
    ) -> Ranking:
        """The best passages of each query; see the module."""
        embeddings = faiss_index.vectors_of_flat(self.index)
        top_k = self.config.top_k
        queries = for_metric(queries, self.metric)  # as the index's vectors were: cosine is now a product
        metric: Metric = "l2" if self.metric == "l2" else "inner_product"
        return exact.exact_search(embeddings, queries, top_k, ids, metric, bar, documents=documents)


class ApproximateSearcher:
    """Search of any other index."""

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

    def search(
        self, queries: Float32, ids: pa.ChunkedArray, bar: Bar, documents: Documents | None = None
    ) -> Ranking:
        """The best passages of each query; see the module."""
        top_k, batch_size = self.config.top_k, self.config.batch_size
        if documents is not None:
            index, metric, chunk_ids = self.index, self.metric, documents.chunk_ids

            def find(chosen: Int64, k: int, bar: Bar) -> Ranking:
                return faiss_search.search_index(
                    index, queries[chosen], k, chunk_ids, metric, batch_size, bar
                )

            return rank_by_search(find, len(queries), documents, top_k, ids, bar)
        return faiss_search.search_index(self.index, queries, top_k, ids, self.metric, batch_size, bar)

    def measure(self, queries: Float32) -> Facts:
        """What a search costs: memory in 10^6 bytes, and `time_searches`."""
        queries, k = for_metric(queries, self.metric), min(self.config.top_k, self.count)
        search = functools.partial(faiss_search.nearest, self.index, k=k, metric=self.metric)
        return {"memory_mb": self.memory_mb, **time_searches(search, queries, self.config.batch_size)}


def open_searcher(
    index: IndexConfig, search: SearchConfig, stored: Path | UInt8
) -> FlatSearcher | ApproximateSearcher:
    """The searcher of an index: exact for a Flat index, approximate for others."""
    kind = FlatSearcher if index.factory == FLAT else ApproximateSearcher
    return kind(index, search, stored)


Searcher = StreamingSearcher | FlatSearcher | ApproximateSearcher


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
