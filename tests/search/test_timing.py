"""What is measured of an index's speed."""

from __future__ import annotations

import faiss
import numpy as np
import pytest

from pipeline.search import searchers


def test_every_figure_is_of_queries_that_were_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searchers, "SECONDS", 0.01)
    threads, asked = faiss.omp_get_max_threads(), []
    queries = np.zeros((5, 2), np.float32)

    def find(batch):  # type: ignore[no-untyped-def]
        asked.append((len(batch), faiss.omp_get_max_threads()))

    made = searchers.time_searches(find, queries, 2)
    assert set(asked) == {(1, threads), (2, threads), (1, 1), (2, 1)}
    assert made["threads"] == threads == faiss.omp_get_max_threads()
    assert made["queries_per_second"] > 0 < made["queries_per_second_one_thread"]
    assert 0 <= made["latency_ms"]["median"] <= made["latency_ms"]["p95"] <= made["latency_ms"]["p99"]
