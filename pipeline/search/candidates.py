"""Candidates of a scan: for each query the passages that may be among its best k.

A scan computes a fast, inexact score of every passage, here called its product, and knows a bound on the
error. How large must a product be? Let e be the bound, and t a value that the products of at least k
passages reach: the k-th best so far. Those k passages have true scores of at least t - e. A passage whose
product is below the threshold t - 2e has a true score below t - e, so k passages are better, and it can be
dropped: nothing that belongs to the best k is lost, and neither is a passage that ties with the k-th. As more
is read, t rises. e may grow too, with the longest vector read. That changes nothing for a passage dropped
earlier: the k passages that were better than it had been read by then, and the smaller e held for all of
them.

Each query has room for 3k candidates and some more. Only when new ones do not fit is t computed again;
otherwise a product costs one comparison. The candidates that are left at the end are scored exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pipeline.core.records import Float32, Float64, Int64, Ranking
from pipeline.search import scoring

SPARE = 512  # room for candidates beyond 3k
PAIR_BYTES = 80  # memory to score one pair and sort it
BYTES = 12  # memory of a candidate

ErrorBound = Callable[[slice], Float64]
"""For a range of queries, float64: how far a product made so far can be from the true score."""
ExactScore = Callable[[Int64, Int64], Float32]
"""Exact scores float32 [pairs] of passages, given by row, and of queries, by number: int64 [pairs] each."""


def room_per_query(k: int) -> int:
    """Candidates that each query has room for."""
    return 3 * k + SPARE


class Candidates:
    """The candidates of some queries; `select` adds to them, `best_hits` ends the scan.

    They are arrays [queries, room], of which the first `count` of each row are in use.

    Args:
        n_queries: Number of queries.
        n_passages: Number of passages, at least k.
        k: Hits kept for each query.
        ids: Arrow strings, the ids of the passages.
        error: The bound on the products' errors; asked again for each selection.
        score: Gives exact scores.
    """

    def __init__(
        self,
        n_queries: int,
        n_passages: int,
        k: int,
        ids: pa.ChunkedArray,
        error: ErrorBound,
        score: ExactScore,
    ) -> None:
        self.k, self.ids, self.error, self.score = k, ids, error, score
        self.rank = k  # of the candidate whose product raises a query's threshold
        room = min(room_per_query(k), n_passages)
        self.rows = np.empty((n_queries, room), np.int64)
        self.products = np.empty((n_queries, room), np.float32)
        self.count = np.zeros(n_queries, np.int64)
        self.kth = np.full(n_queries, -np.inf)  # at most the k-th best product so far

    def select(self, first: int, start: int, products: Float32) -> None:
        """Add the candidates among products float32 [passages, queries].

        They are of consecutive passages, from row `start` on, and consecutive queries, from `first` on.
        """
        n_queries = products.shape[1]
        hits = np.flatnonzero(products >= self.least_products(slice(first, first + n_queries)))
        row = hits // n_queries
        query = (hits - row * n_queries).astype(np.min_scalar_type(n_queries))
        by_query = np.argsort(query, kind="stable")
        values = products.ravel()[hits[by_query]]
        self.add_pairs(query[by_query].astype(np.int64) + first, row[by_query] + start, values)

    def add_pairs(self, query: Int64, rows: Int64, values: Float32) -> None:
        """Add pairs whose product reaches the threshold of their query.

        `query`, ascending, and `rows`, of the passages, are int64 [pairs]; `values` float32 [pairs], the
        products.
        """
        # sorted by query, so that each query's new candidates lie together, up to `ends`
        n_new = np.bincount(query, minlength=len(self.count))
        ends = np.cumsum(n_new)
        # queries with room for all of theirs take them at once, the others one by one below
        full = self.count + n_new > self.rows.shape[1]
        fits = ~full[query]
        column = (self.count - (ends - n_new))[query] + np.arange(len(query))
        self.rows[query[fits], column[fits]] = rows[fits]
        self.products[query[fits], column[fits]] = values[fits]
        self.count += np.where(full, 0, n_new)
        for number in np.flatnonzero(full):
            span = slice(ends[number] - n_new[number], ends[number])
            self._drop_below_threshold(int(number), rows[span], values[span])

    def least_products(self, queries: slice) -> Float32:
        """float32: the smallest product of a candidate, for each query of a range; rounded down."""
        lowest = (self.kth[queries] - 2 * self.error(queries)).astype(np.float32)
        return np.nextafter(lowest, np.float32(-np.inf))

    def _drop_below_threshold(self, query: int, rows: Int64, products: Float32) -> None:
        """Add candidates to a query, raise its threshold, and drop all below it."""
        count = self.count[query]
        rows = np.concatenate([self.rows[query, :count], rows])
        products = np.concatenate([self.products[query, :count], products])
        kth = np.partition(products, len(products) - self.rank)[-self.rank]
        self.kth[query] = max(self.kth[query], kth)
        keep = np.flatnonzero(products >= self.least_products(slice(query, query + 1)))
        if len(keep) > self.rows.shape[1] - SPARE // 2:  # too many are this close: exact scores decide
            scores = self.score(rows[keep], np.full(len(keep), query))
            best = scoring.rank_candidates(rows[keep][None], scores[None], self.k, self.ids)
            keep = keep[np.isin(rows[keep], best.passages)]
        self.set_candidates(query, keep, rows, products)

    def set_candidates(self, query: int, keep: Int64, rows: Int64, products: Float32) -> None:
        """Make those at the places int64 `keep` of some rows and products the candidates of a query."""
        self.count[query] = len(keep)
        self.rows[query, : len(keep)] = rows[keep]
        self.products[query, : len(keep)] = products[keep]

    def best_hits(self) -> Ranking:
        """The best k of each query, after the last `select`: the candidates left are scored exactly."""
        n_queries, room = self.rows.shape
        self.products[np.arange(room) >= self.count[:, None]] = -np.inf
        for query in range(n_queries):
            self.kth[query] = np.partition(self.products[query], room - self.k)[-self.k]
        lowest = np.maximum(self.least_products(slice(0, n_queries)), np.finfo(np.float32).min)
        query_of, column = np.nonzero(self.products >= lowest[:, None])
        rows = self.rows[query_of, column]
        scores = self.score(rows, query_of)
        return scoring.rank_pairs(rows, scores, query_of, n_queries, self.k, self.ids)


def empty_ranking(n_queries: int, k: int) -> Ranking:
    """A ranking to be filled, of padding."""
    return Ranking(np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), -np.inf, np.float32))


def set_rows(ranking: Ranking, queries: slice | Int64, rows: Ranking) -> None:
    """Set the rows of some queries."""
    ranking.passages[queries], ranking.scores[queries] = rows.passages, rows.scores
