"""Candidates of a scan that comes with hits: pairs whose product reaches a threshold, not all products.

Hits are few, so they are added one by one, by a compiled loop. Thresholds are raised whenever a query has
enough new candidates: finding the k-th best again costs little then, and every later hit that a higher
threshold saves would have cost a product in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core.records import Float32, Float64, Int64
from pipeline.kernels.compiling import compiled
from pipeline.search import inverted_index
from pipeline.search.candidates import Candidates
from pipeline.search.integer_kernels import Hits
from pipeline.search.inverted_index import keep_best


class HitCandidates(Candidates):
    """As `Candidates`, given hits; `thresholds` says which products are hits. One thread at a time."""

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

    def add(self, hits: Hits, count: int) -> None:
        """Add the first `count` hits, and raise thresholds."""
        nothing: tuple[Int64, Float32] = np.empty(0, np.int64), np.empty(0, np.float32)
        thresholds, _ = self.thresholds()
        done = 0
        while (done := _add(*hits, done, count, thresholds, self.rows, self.products, self.count)) < count:
            query = int(hits.queries[done])  # there is no more room for its candidates
            self._drop_below_threshold(query, *nothing)
            thresholds[query] = self._thresholds(slice(query, query + 1))[0]
        if (self.count >= self.enough).any():
            _find_kth(self.products, self.count, self.enough, self.k, self.kth)
            _drop(self.rows, self.products, self.count, self.enough, self.thresholds()[0])


def _added(
    hit_queries: Any, hit_rows: Any, hit_products: Any, start: Any, stop: Any,
    thresholds: Any, rows: Any, products: Any, counts: Any,
) -> Any:  # fmt: skip
    """Add hits [start, stop) that reach the thresholds; returns the number of the first that has no room."""
    room = rows.shape[1]
    for hit in range(start, stop):
        query = hit_queries[hit]
        if hit_products[hit] >= thresholds[query]:
            count = counts[query]
            if count == room:
                return hit
            rows[query, count], products[query, count] = hit_rows[hit], hit_products[hit]
            counts[query] = count + 1
    return stop


def _kth_found(products: Any, counts: Any, enough: Any, k: Any, kth: Any) -> None:
    """Set `kth` to the k-th best product of each query that has enough candidates."""
    best = np.empty(products.shape[1], np.float32)
    for query in range(len(counts)):
        count = counts[query]
        if count >= enough:
            best[:count] = products[query, :count]
            keep_best(best, count, k)
            kth[query] = best[k - 1]


def _dropped(rows: Any, products: Any, counts: Any, enough: Any, thresholds: Any) -> None:
    """Drop candidates below the threshold, of each query that has enough."""
    for query in range(len(counts)):
        if counts[query] >= enough:
            left = 0
            for place in range(counts[query]):
                if products[query, place] >= thresholds[query]:
                    rows[query, left], products[query, left] = rows[query, place], products[query, place]
                    left += 1
            counts[query] = left


_add: Any = compiled(_added, strict=True)
_find_kth: Any = compiled(_kth_found, inverted_index.__file__, strict=True)
_drop: Any = compiled(_dropped, strict=True)
