"""Documents ranked by the scores of their chunks: the largest, or the mean.

Any search of chunks serves. It is asked for the best chunks of a query, and for twice as many until the
documents are certain. Let s be the score of the last chunk that it gave: no other chunk has a higher one. So
a document of which no chunk was given has a maximum of s at most, and a mean too, also when this is rounded.
Once k documents are above s, no other belongs to the best k. Of those found, the best chunk was given; and
for a mean all their chunks are scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.core.display import Bar, silent
from pipeline.core.order import sort_hits
from pipeline.core.records import Float32, Int64, Ranking
from pipeline.search.candidates import empty_ranking

HITS = 1 << 22  # chunks found at once, of all queries together

SearchChunks = Callable[[Int64, int, Bar], Ranking]
"""(numbers of queries, k, bar) -> the best k chunks of each, the best first, by whatever search."""
ScoreChunks = Callable[[int, Int64], Float32]
"""(number of a query, rows int64 [n] of chunks) -> their scores, float32 [n]."""


@dataclass(frozen=True)
class Documents:
    """The documents that chunks are of."""

    bounds: Int64  # int64 [documents + 1], the first chunk of each, and the end; each has one at least
    # Whether a document's score is the mean of those of its chunks, summed in float64 and rounded once to
    # float32; else the largest.
    mean: bool = False

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def chunks(self) -> int:
        """The number of all chunks."""
        return int(self.bounds[-1])

    def all_chunks(self, some: Int64) -> Int64:
        """int64 [n], ascending: all chunks of the documents of some chunks."""
        rows = np.unique(np.searchsorted(self.bounds, some, side="right") - 1)
        counts = self.bounds[rows + 1] - self.bounds[rows]
        ends = np.cumsum(counts)
        return np.repeat(self.bounds[rows] - (ends - counts), counts) + np.arange(counts.sum())

    def aggregate(self, chunks: Int64, scores: Float32) -> tuple[Int64, Float32, Int64]:
        """The documents of some chunks: their rows, int64 [n], ascending, their scores and best chunks.

        `chunks` are rows in any order, int64, and `scores` theirs, float32; a mean is over all chunks of a
        document, of which those left out count 0. Of equal chunks the first is the best.
        """
        document = np.searchsorted(self.bounds, chunks, side="right") - 1
        order = np.lexsort((chunks, -scores, document))
        rows, first = np.unique(document[order], return_index=True)
        best = order[first]
        if not self.mean:
            return rows, scores[best], chunks[best]
        sums = np.add.reduceat(scores[np.argsort(chunks)], first, dtype=np.float64)
        means = (sums / (self.bounds[rows + 1] - self.bounds[rows])).astype(np.float32)
        return rows, means, chunks[best]


def rank(
    search: SearchChunks,
    n_queries: int,
    documents: Documents,
    top_k: int,
    ids: pa.ChunkedArray,
    bar: Bar,
    score: ScoreChunks | None = None,
) -> Ranking:
    """The best documents of each query.

    A document is ranked if the search gives any of its chunks. One that is not exact gives the documents of
    the chunks that it finds.

    Args:
        search: Searches chunks.
        n_queries: Number of queries.
        documents: Those that the chunks are of.
        top_k: Documents kept for each query.
        ids: Arrow strings, the ids of the documents, by which ties are ordered.
        bar: Counts queries.
        score: Scores chunks as the search does, for means. Without it, the search is asked for all chunks,
            and one that it does not give, as it shares no word with the query, counts 0.

    Returns:
        [queries, min(top_k, documents)], ties in the contract's order, with the best chunk of each document,
        the first of equal ones.
    """
    k, total = min(top_k, len(documents)), documents.chunks
    ranking, best_chunks = empty_ranking(n_queries, k), np.full((n_queries, k), -1, np.int64)
    depth = min(-(-k * total // len(documents)) + 1, total)
    if documents.mean and score is None:
        depth = total
    waiting, shown = np.arange(n_queries), bar
    with silent("", None, "") as unseen:
        while len(waiting):
            size = max(HITS // depth, 1)
            left = []
            for start in range(0, len(waiting), size):
                group = waiting[start : start + size]
                hits = search(group, depth, shown)
                for query, chunks, scores in zip(group, hits.passages, hits.scores, strict=True):
                    found, has_more = chunks[chunks >= 0], chunks[-1] >= 0 and depth < total
                    of_chunks = scores[: len(found)]
                    if documents.mean and score is not None:
                        found = documents.all_chunks(found)
                        of_chunks = score(query, found)
                    rows, values, best = documents.aggregate(found, of_chunks)
                    ordered, falling = sort_hits(rows[None], values[None], ids)
                    ordered, falling = ordered[0, :k], falling[0, :k]
                    ranking.passages[query, : len(ordered)] = ordered
                    ranking.scores[query, : len(ordered)] = falling
                    best_chunks[query, : len(ordered)] = best[np.searchsorted(rows, ordered)]
                    if has_more and (len(ordered) < k or falling[-1] <= scores[-1]):
                        left.append(query)
            waiting, shown = np.array(left, np.int64), unseen
            depth = min(2 * depth, total)
    return Ranking(ranking.passages, ranking.scores, best_chunks)
