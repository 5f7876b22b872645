"""How fast does an index answer? Queries per second on all threads and on one; the time of a single query."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pipeline.core.records import Float32

SECONDS = 0.5  # of each of the three measurements, or one batch where that takes longer


def measure(
    find: Callable[[Float32], object], queries: Float32, batch_size: int, on_gpu: bool = False
) -> dict[str, Any]:
    """Time an index.

    Args:
        find: Searches float32 [n, dimension].
        queries: float32 [queries, dimension], at least one.
        batch_size: Queries given at once.
        on_gpu: Whether threads of this machine have no part in it.

    Returns:
        `queries_per_second` and `latency_ms` with `median`, `p95` and `p99` of single queries, both on all
        threads; and unless `on_gpu` `threads`, how many those are, and `queries_per_second_one_thread`.
    """
    import faiss

    find(queries[:1])  # what is read or built at first is no part of the speed
    times = [seconds for _, seconds in _timed(find, queries, 1)]
    median, p95, p99 = np.percentile(times, (50, 95, 99)) * 1000
    figures = {
        "queries_per_second": round(_rate(find, queries, batch_size), 1),
        "latency_ms": {"median": round(median, 4), "p95": round(p95, 4), "p99": round(p99, 4)},
    }
    if on_gpu:
        return figures
    threads = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        one = _rate(find, queries, batch_size)
    finally:
        faiss.omp_set_num_threads(threads)
    return {**figures, "threads": threads, "queries_per_second_one_thread": round(one, 1)}


def _rate(find: Callable[[Float32], object], queries: Float32, batch_size: int) -> float:
    counts, times = zip(*_timed(find, queries, batch_size), strict=True)
    return float(sum(counts) / sum(times))


def _timed(
    find: Callable[[Float32], object], queries: Float32, batch_size: int
) -> Iterator[tuple[int, float]]:
    """Batches of queries, again and again until the time is up: the size of each, and its seconds."""
    until = time.perf_counter() + SECONDS
    for start in itertools.cycle(range(0, len(queries), batch_size)):
        batch = queries[start : start + batch_size]
        started = time.perf_counter()
        find(batch)
        ended = time.perf_counter()
        yield len(batch), ended - started
        if ended > until:
            return
