"""Exact search of sparse rows by an inverted index: for each word the passages that have it, and its weights.

The score of a passage is its inner product with the query: of the words that both have, in ascending order,
the products of their weights are summed in float64, where each product is exact, and the sum is rounded once
to float32. So a score depends on the two rows alone, whatever the parts of the index, the batch or the
threads.

The index is cut into segments of consecutive passages, whose postings fit the processor's cache while many
queries are searched. Hits of a query are kept as integers that are in the contract's order
(`native.nearest.sparse`). When a query has `ROOM` times k of them, all but the best k are dropped, and the
worst of these is the score that later ones have to reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from pipeline.core import machine
from pipeline.core.display import Bar, silent
from pipeline.core.records import Array, Float32, Int64, RaggedRows, Ranking
from pipeline.native.nearest import sparse
from pipeline.search.candidates import empty_ranking
from pipeline.storage import ragged_shards

SEGMENT_ENTRIES = 1 << 22  # postings of a segment: 32 MB
ROOM = 4  # times k: hits of a query that are kept before the best k are selected
TASKS = 4  # tasks for each thread: some queries have more postings than others
QUERY_BYTES = 256 << 20  # for the hits of the queries that are searched together

Segment = tuple[int, int, RaggedRows]
"""A segment's passages [start, stop), and its postings: a row for each word, with the passages that have it,
int32, counted from the first one, in ascending order, and its weights, float32."""


@dataclass(frozen=True)
class InvertedSegments:
    """The segments of stored rows, each inverted when it is its turn."""

    shards: tuple[RaggedRows, ...]

    def __iter__(self) -> Iterator[Segment]:
        for start, rows in ragged_shards.parts_of(self.shards, SEGMENT_ENTRIES):
            yield start, start + len(rows), invert(rows)


def invert(rows: RaggedRows) -> RaggedRows:
    """The postings of passages, given as the words, int32, and weights, float32, of each.

    Returns:
        A row for each word up to the largest: passages by their row, int32, ascending, and weights, float32.
    """
    from scipy.sparse import csr_array

    words, weights = rows.columns
    width = int(words.max(initial=-1)) + 1
    starts = np.concatenate([[0], rows.ends])
    by_word = csr_array((weights, words, starts), shape=(len(rows), width)).tocsc()
    return RaggedRows(by_word.indptr[1:].astype(np.int64), (by_word.indices.astype(np.int32), by_word.data))


def search(
    segments: Iterable[Segment],
    queries: RaggedRows,
    top_k: int,
    id_rank: Int64,
    bar: Bar,
    memory: int = QUERY_BYTES,
) -> Ranking:
    """The best passages of each query, of those that share a word with it.

    Args:
        segments: Those of the index of n passages; they are gone through once for each group of queries.
        queries: The words, int32, ascending, and the weights, float32 and above 0, of each query.
        top_k: Hits kept for each query; fewer where fewer passages share a word.
        id_rank: int64 [n], `pipeline.core.order.descending_id_rank` of the passage ids.
        bar: Counts queries.
        memory: Bytes for hits; queries are searched in groups whose hits fit.

    Returns:
        [queries, min(top_k, n)], ties in the contract's order, also those across the last rank.
    """
    k = min(top_k, len(id_rank))
    rank = id_rank.astype(np.uint32)
    ranking = empty_ranking(len(queries), k)
    row_of = np.empty(len(rank), np.int64)
    row_of[rank] = np.arange(len(rank))
    starts = np.concatenate([[0], queries.ends])
    size = max(min(memory // (8 * ROOM * k), len(queries)), 1)
    with ThreadPoolExecutor(machine.threads()) as pool:
        for first in range(0, len(queries), size):
            part = slice(first, first + size)
            group = np.arange(len(queries))[part]
            hits = np.empty((len(group), ROOM * k), np.uint64)
            counts = np.zeros(len(group), np.int64)
            for segment in segments:
                _search_segment(pool, segment, (starts, *queries.columns), group, rank, hits, counts, k)
            sort = partial(_sort_hits, hits, counts, row_of, ranking.passages[part], ranking.scores[part])
            list(pool.map(sort, range(len(group))))
            bar.update(len(group))
    return ranking


def _sort_hits(hits: Array, counts: Int64, row_of: Int64, passages: Int64, scores: Float32, row: int) -> None:
    """Write the best hits of one query, in order, to its row of `passages` and `scores`."""
    count, k = int(counts[row]), passages.shape[1]
    if count > k:
        count = sparse.keep_best(hits[row], count, k)
    best = np.sort(hits[row, :count])[::-1]
    passages[row, :count] = row_of[(~best & 0xFFFFFFFF).astype(np.int64)]
    scores[row, :count] = (best >> 32).astype(np.uint32).view(np.float32)


def sparsity(segments: Iterable[Segment], passages: int, queries: RaggedRows) -> dict[str, float]:
    """How sparse the rows are: mean words of a query and of a passage, and FLOPS.

    FLOPS is the expected number of multiplications for the score of a random query and a random passage: the
    sum over words of the share of queries times the share of passages that have it (Paria et al., 2020,
    "Minimizing FLOPs to Learn Efficient Sparse Representations", as used for SPLADE by Formal et al., 2021).
    """
    of_queries = np.bincount(queries.columns[0])
    entries, products = 0, 0
    for _, _, postings in segments:
        lengths = postings.lengths
        shared = min(len(lengths), len(of_queries))
        entries += int(lengths.sum())
        products += int(lengths[:shared] @ of_queries[:shared])
    count = max(len(queries), 1)
    return {
        "query_words": queries.entries / count,
        "passage_words": entries / passages,
        "flops": products / (count * passages),
    }


def compile_all() -> None:
    """Compile the search, or read it from Numba's cache, so that it is not timed."""
    nothing = RaggedRows(np.zeros(1, np.int64), (np.empty(0, np.int32), np.empty(0, np.float32)))
    with silent("", None, "") as bar:
        search([(0, 1, nothing)], nothing, 1, np.zeros(1, np.int64), bar)


def _search_segment(
    pool: ThreadPoolExecutor,
    segment: Segment,
    queries: tuple[Array, ...],
    group: Int64,
    rank: Array,
    hits: Array,
    counts: Int64,
    k: int,
) -> None:
    """Search one segment for a group of queries, in parallel; `hits` and `counts` are updated."""
    first, stop, postings = segment
    starts = np.concatenate([[0], postings.ends])
    # Numba compiles for one type: arrays are read-only, whether memory-mapped or not
    arrays = [_read_only(array) for array in (starts, *postings.columns, *queries)]
    ranks = rank[first:stop]
    step = max(math.ceil(len(group) / (TASKS * pool._max_workers)), 1)

    def task(at: int) -> None:
        part = slice(at, at + step)
        sparse.search_queries(*arrays, group[part], ranks, hits[part], counts[part], k)

    list(pool.map(task, range(0, len(group), step)))


def _read_only(array: Array) -> Array:
    """A view of an array that cannot be written, whether it is memory-mapped or not: one type for Numba."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
