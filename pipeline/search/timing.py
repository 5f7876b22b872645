"""Speed of an index: queries per second on all threads and on one, and the latency of single queries."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import faiss
import numpy as np

from pipeline.core.records import Array

SECONDS = 0.5  # duration of each of the three measurements; at least one batch


@contextlib.contextmanager
def faiss_on_one_thread() -> Iterator[int]:
    """Faiss computes on one thread; gives the number that it uses otherwise."""
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        yield threads
    finally:
        faiss.omp_set_num_threads(threads)


def time_searches(
    search: Callable[[Any], object],
    queries: Array,
    batch_size: int,
    on_gpu: bool = False,
    on_one_thread: Callable[[], AbstractContextManager[int]] = faiss_on_one_thread,
) -> dict[str, Any]:
    """Time searches of an index.

    Args:
        search: Searches the index for some rows of `queries`.
        queries: Array of queries, at least one: their vectors, or their numbers.
        batch_size: Queries searched at once.
        on_gpu: Whether the index is on a GPU, so that the number of threads does not matter.
        on_one_thread: Around searches on one thread; gives the number of threads that there are otherwise.

    Returns:
        `queries_per_second` of batches, and `latency_ms` with `median`, `p95` and `p99` of single queries,
        both on all threads; and unless `on_gpu`, the number of `threads` and `queries_per_second_one_thread`.
    """
    search(queries[:1])  # the first call reads and builds what later ones reuse
    times = [seconds for _, seconds in _timed_batches(search, queries, 1)]
    median, p95, p99 = np.percentile(times, (50, 95, 99)) * 1000
    figures = {
        "queries_per_second": round(_queries_per_second(search, queries, batch_size), 1),
        "latency_ms": {"median": round(median, 4), "p95": round(p95, 4), "p99": round(p99, 4)},
    }
    if on_gpu:
        return figures
    with on_one_thread() as threads:
        one_thread = _queries_per_second(search, queries, batch_size)
    return {**figures, "threads": threads, "queries_per_second_one_thread": round(one_thread, 1)}


def _queries_per_second(search: Callable[[Any], object], queries: Array, batch_size: int) -> float:
    counts, times = zip(*_timed_batches(search, queries, batch_size), strict=True)
    return float(sum(counts) / sum(times))


def _timed_batches(
    search: Callable[[Any], object], queries: Array, batch_size: int
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
