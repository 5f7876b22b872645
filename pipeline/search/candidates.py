"""Candidates of a scan: for each query what may be among its best k, passages or documents cut into chunks.

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

A document is ranked by the scores of its chunks: the largest, or the mean.
In a scan of all chunks, each block's products are reduced to one for each document, so the candidates are
documents, and nothing is lost, as is said for passages (`DocumentCandidates`). A search that gives
only the best chunks, best first, is asked for more until the documents are certain (`rank_by_search`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from pipeline.core.display import Bar, silent
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Array, Chunks, Float32, Float64, Int64, Ranking
from pipeline.search import scoring

SPARE = 512  # room for candidates beyond 3k
PAIR_BYTES = 80  # memory to score one pair and sort it
BYTES = 12  # memory of a candidate

ErrorBound = Callable[[slice], Float64]
"""For a range of queries, float64: how far a product made so far can be from the true score."""
ExactScore = Callable[[Int64, Int64], Float32]
"""Exact scores float32 [pairs] of passages, given by row, and of queries, by number: int64 [pairs] each."""
PAIRS = 1 << 18  # pairs of a query and a chunk scored at once
HITS = 1 << 22  # chunks found at once, of all queries together
ROUNDED = 1.5  # see `DocumentCandidates`

Find = Callable[[Int64, int, Bar], Ranking]
"""(numbers of queries, k, bar) -> the best k chunks of each, the best first, by whatever search."""


@dataclass(frozen=True)
class Documents:
    """The documents that chunks are of.

    Attributes:
        bounds: int64 [documents + 1], the first chunk of each, and the end; each has one at least.
        chunk_ids: Arrow strings [chunks].
        mean: Whether a document's score is the mean of those of its chunks, summed in float64 and rounded
            once to float32; else the largest.
    """

    bounds: Int64
    chunk_ids: pa.ChunkedArray
    mean: bool = False

    @classmethod
    def of(cls, chunks: Chunks, aggregate: Literal["max", "mean", "first"]) -> Documents:
        """The documents of some chunks; `first` has no others than the first chunks."""
        return cls(np.asarray(chunks.bounds), chunks.texts.ids, aggregate == "mean")

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def chunks(self) -> int:
        """The number of all chunks."""
        return int(self.bounds[-1])

    def aggregate(self, scores: Float32, starts: Int64) -> Float32:
        """The score of each document, float32 [n], from those of its chunks, float32 [chunks].

        `starts`, int64 [n], is where each one's chunks begin.
        """
        if not self.mean:
            return np.maximum.reduceat(scores, starts)
        sums = np.add.reduceat(scores, starts, dtype=np.float64)
        return (sums / np.diff(starts, append=len(scores))).astype(np.float32)

    def aggregate_all(self, scores: Float32) -> tuple[Float32, Int64]:
        """The score, float32, and the best chunk, int64, of every document, from the scores of all chunks."""
        starts = self.bounds[:-1]
        return self.aggregate(scores, starts), best_chunks(scores, starts)


def best_chunks(scores: Float32, starts: Int64) -> Int64:
    """int64 [n]: for each document the place, in `scores`, of its best chunk, the first of equal ones."""
    counts = np.diff(starts, append=len(scores))
    places = np.flatnonzero(scores == np.repeat(np.maximum.reduceat(scores, starts), counts))
    document = np.repeat(np.arange(len(starts)), counts)[places]
    first = np.flatnonzero(np.diff(document, prepend=-1))
    return places[first]


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
        self.add_pairs(first, n_queries, query[by_query].astype(np.int64), row[by_query] + start, values)

    def add_pairs(self, first: int, n_queries: int, query: Int64, rows: Int64, values: Float32) -> None:
        """Add pairs whose product reaches the threshold of their query.

        Args:
            first: The first of the queries.
            n_queries: How many queries there are.
            query: int64 [pairs], counted from the first one, ascending.
            rows: int64 [pairs], of the passages.
            values: float32 [pairs], the products.
        """
        # sorted by query, so that each query's new candidates lie together, up to `ends`
        counts = self.count[first : first + n_queries]
        n_new = np.bincount(query, minlength=n_queries)
        ends = np.cumsum(n_new)
        # queries with room for all of theirs take them at once, the others one by one below
        full = counts + n_new > self.rows.shape[1]
        fits = ~full[query]
        column = (counts - (ends - n_new))[query] + np.arange(len(query))
        self.rows[query[fits] + first, column[fits]] = rows[fits]
        self.products[query[fits] + first, column[fits]] = values[fits]
        counts += np.where(full, 0, n_new)
        for number in np.flatnonzero(full):
            span = slice(ends[number] - n_new[number], ends[number])
            self._drop_below_threshold(first + int(number), rows[span], values[span])

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


class DocumentCandidates:
    """`Candidates` of documents, given the products of their chunks.

    The error of a document's product: |max a - max b| <= max |a - b|, so that of the largest is no more than
    a chunk's. A mean of products and a mean of scores are each rounded once to float32, so by u times the
    largest product, u = 2^-24. The error bound of a chunk is at least 5 u times that (`scoring.error_bound`,
    `maxsim.error_bound`), so half as much again is more than both.

    Args:
        documents: The documents; products are of their chunks.
        n_queries, k, ids, error, score: As of `Candidates`; `ids` are those of documents, `error` and `score`
            those of chunks.
    """

    def __init__(
        self,
        documents: Documents,
        n_queries: int,
        k: int,
        ids: pa.ChunkedArray,
        error: ErrorBound,
        score: ExactScore,
    ) -> None:
        self.documents, self._chunk_error, self._score_chunks = documents, error, score
        self._candidates = Candidates(n_queries, len(documents), k, ids, self._error, self._score)
        self._carried: dict[int, Array] = {}  # by first query: what the chunks of an unfinished document gave
        self._scored = np.empty((3, 0), np.int64)  # query, document and best chunk of the pairs scored last

    def select(self, first: int, start: int, products: Float32) -> None:
        """As `Candidates.select`, of products of consecutive chunks."""
        document, whole = self._reduce(first, start, products)
        if len(whole):
            self._candidates.select(first, document, whole)

    def _error(self, queries: slice) -> Float64:
        return self._chunk_error(queries) * (ROUNDED if self.documents.mean else 1.0)

    def _reduce(self, first: int, start: int, products: Float32) -> tuple[int, Float32]:
        """The first document that ends among these chunks, and the products of all that do."""
        bounds, stop = self.documents.bounds, start + len(products)
        begin = int(np.searchsorted(bounds, start, side="right")) - 1
        end = int(np.searchsorted(bounds, stop, side="right")) - 1  # documents [begin, end) end here
        last = end + (bounds[end] < stop)
        starts = np.maximum(bounds[begin:last] - start, 0)
        values: Array
        if self.documents.mean:
            values = np.add.reduceat(products, starts, axis=0, dtype=np.float64)
        else:
            values = np.maximum.reduceat(products, starts, axis=0)
        # a document that began in an earlier block takes what its chunks gave there; one that goes on leaves
        # its part for the next
        if bounds[begin] < start:
            before = self._carried.pop(first)
            values[0] = values[0] + before if self.documents.mean else np.maximum(values[0], before)
        if last > end:
            self._carried[first] = values[-1].copy()
        values = values[: end - begin]
        if self.documents.mean:
            values = (values / np.diff(bounds[begin : end + 1])[:, None]).astype(np.float32)
        return begin, values

    def _score(self, rows: Int64, query: Int64) -> Float32:
        """Exact scores of pairs of a document and a query, float32; their best chunks are kept."""
        bounds = self.documents.bounds
        order = np.argsort(rows, kind="stable")
        counts = bounds[rows[order] + 1] - bounds[rows[order]]
        totals = np.concatenate([[0], np.cumsum(counts)])
        values, best = np.empty(len(rows), np.float32), np.empty(len(rows), np.int64)
        start = 0
        while start < len(rows):
            stop = max(int(np.searchsorted(totals, totals[start] + PAIRS, side="right")) - 1, start + 1)
            piece, starts = order[start:stop], totals[start:stop] - totals[start]
            chunks = np.repeat(bounds[rows[piece]] - starts, counts[start:stop])
            chunks += np.arange(len(chunks))
            scores = self._score_chunks(chunks, np.repeat(query[piece], counts[start:stop]))
            values[piece] = self.documents.aggregate(scores, starts)
            best[piece] = chunks[best_chunks(scores, starts)]
            start = stop
        self._scored = np.stack([query, rows, best])
        return values

    def best_hits(self) -> Ranking:
        """As `Candidates.best_hits`, with the best chunk of each document."""
        # `_score` has kept the best chunk of each pair of query and document: look up those of the hits
        hits = self._candidates.best_hits()  # its last call of `_score` is of all that it returns
        query, document, best = self._scored
        keys = query * len(self.documents) + document
        order = np.argsort(keys)
        wanted = np.arange(len(hits.passages))[:, None] * len(self.documents) + hits.passages
        place = np.searchsorted(keys[order], wanted.ravel()).reshape(wanted.shape)
        place = np.minimum(place, len(keys) - 1)
        chunks = np.where(hits.passages < 0, -1, best[order][place])
        return Ranking(hits.passages, hits.scores, chunks)


def rank_by_search(
    find: Find, n_queries: int, documents: Documents | None, top_k: int, ids: pa.ChunkedArray, bar: Bar
) -> Ranking:
    """The best documents of each query, by a search for chunks that is asked for as many as it takes.

    A mean takes all chunks; one that the search does not give, as it shares no word with the query, counts 0.
    A document is ranked if the search gives any of its chunks. Of a search that is not exact, the documents
    are those of the chunks that it gives: it is asked for more until more of the same kind would change
    nothing, or it has no more.

    Args:
        find: Searches chunks; or passages, where there are no documents.
        n_queries: Number of queries.
        documents: Those that the chunks are of; None where passages are whole, and one search is enough.
        top_k: Documents kept for each query.
        ids: Arrow strings, the ids of the documents, by which ties are ordered.
        bar: Counts queries.

    Returns:
        [queries, min(top_k, documents)], ties in the contract's order.
    """
    if documents is None:
        return find(np.arange(n_queries), top_k, bar)
    k, total = min(top_k, len(documents)), documents.chunks
    ranking = empty_ranking(n_queries, k, documents)
    fetched = total if documents.mean else min(-(-k * total // len(documents)) + 1, total)
    waiting, shown = np.arange(n_queries), bar
    with silent("", None, "") as unseen:
        while len(waiting):
            size = max(HITS // fetched, 1)
            left = []
            for start in range(0, len(waiting), size):
                group = waiting[start : start + size]
                hits = find(group, fetched, shown)
                for query, chunks, scores in zip(group, hits.passages, hits.scores, strict=True):
                    if not _rank(ranking, query, chunks, scores, documents, ids, fetched == total):
                        left.append(query)
            waiting, shown = np.array(left, np.int64), unseen
            fetched = min(2 * fetched, total)
    return ranking


def _rank(
    ranking: Ranking,
    query: int,
    chunks: Int64,
    scores: Float32,
    documents: Documents,
    ids: pa.ChunkedArray,
    is_all: bool,
) -> bool:
    """Set the ranking of one query from its best chunks, and say whether other chunks cannot change it."""
    k, hits = ranking.passages.shape[1], int((chunks >= 0).sum())
    document = np.searchsorted(documents.bounds, chunks[:hits], side="right") - 1
    distinct, first, inverse = np.unique(
        document, return_index=True, return_inverse=True
    )  # best chunks: first
    values: Float64 | Float32 = scores[first]
    if documents.mean:
        sums = np.bincount(inverse, weights=scores[:hits], minlength=len(distinct))
        values = (sums / np.diff(documents.bounds)[distinct]).astype(np.float32)
    ordered, best = sort_hits_by_id(distinct[None], values[None], ids)
    ordered, best = ordered[0, :k], best[0, :k]
    assert ranking.chunks is not None
    ranking.passages[query, : len(ordered)], ranking.scores[query, : len(ordered)] = ordered, best
    ranking.chunks[query, : len(ordered)] = chunks[first[np.searchsorted(distinct, ordered)]]
    # Chunks that were not given score no more than the last one that was. If that is below the k-th document,
    # no other chunk can change the ranking.
    return is_all or hits < len(chunks) or bool(len(ordered) == k and scores[hits - 1] < best[-1])


def empty_ranking(n_queries: int, k: int, documents: Documents | None) -> Ranking:
    """A ranking to be filled, of padding; with chunks if it is of documents."""
    passages, scores = np.full((n_queries, k), -1, np.int64), np.full((n_queries, k), -np.inf, np.float32)
    return Ranking(passages, scores, None if documents is None else passages.copy())


def set_rows(ranking: Ranking, queries: slice | Int64, rows: Ranking) -> None:
    """Set the rows of some queries."""
    ranking.passages[queries], ranking.scores[queries] = rows.passages, rows.scores
    if ranking.chunks is not None and rows.chunks is not None:
        ranking.chunks[queries] = rows.chunks


def candidates_of(
    documents: Documents | None,
    n_queries: int,
    n_rows: int,
    k: int,
    ids: pa.ChunkedArray,
    error: ErrorBound,
    score: ExactScore,
) -> Candidates | DocumentCandidates:
    """The candidates of a scan of `n_rows` vectors, which are of passages or of the chunks of documents."""
    if documents is None:
        return Candidates(n_queries, n_rows, k, ids, error, score)
    return DocumentCandidates(documents, n_queries, k, ids, error, score)
