"""Exact search of quantized vectors, in their own form, and the scores of the best of them by floats.

As in sentence-transformers, a query is quantized as the passages are. int8 is scored by the product of
integers, binary by minus the Hamming distance. With `rescore: N`, the best N times k are scored again: the
float query times what the passage's number stands for, which is where its int8 step begins, or its bit, 0 or
1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pipeline.config import SearchConfig
from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.records import Array, Embeddings, Float32, Float64, Int64, Ranking
from pipeline.search import scoring
from pipeline.search.candidates import empty_ranking, set_rows
from pipeline.search.exact import ExactSearcher
from pipeline.storage import vector_shards

if TYPE_CHECKING:
    from pipeline.search.faiss_library import faiss

BIT_ROWS = 1 << 18  # rows of bits that are read and searched at once
GROUP = 1024  # queries for which all bits are read once
SPARE = 256  # hits fetched beyond 2k, so that few queries have more passages at their k-th distance


@dataclass(frozen=True)
class QuantizedVectors:
    """The passages' vectors in a quantized form."""

    # int8 [rows, dimension] or, of bits, [rows, ceil(dimension / 8)], memory-mapped.
    shards: tuple[Array, ...]
    dimension: int
    ranges: Float32 | None  # float32 [2, dimension], by which int8 was quantized; None for bits

    def values(self, rows: Int64) -> Float64:
        """float64 [n, dimension]: what the numbers of some rows, int64 [n] ascending, stand for."""
        stored = vector_shards.gather_rows(Embeddings(self.shards), rows)
        if self.ranges is None:
            return vector_shards.unpack_binary(stored.astype(np.int8), self.dimension).astype(np.float64)
        return vector_shards.dequantize_int8(stored, self.ranges)


class QuantizedSearcher:
    """Search of quantized vectors; see `faiss_index.Searcher`."""

    def __init__(self, search: SearchConfig, vectors: QuantizedVectors, ids: pa.ChunkedArray) -> None:
        self.config, self.vectors, self.ids = search, vectors, ids
        self.count = sum(map(len, vectors.shards))
        self.by_products = vectors.ranges is not None

    def search(self, queries: Float32, k: int, bar: Bar) -> Ranking:
        """The best passages of each query; the best `rescore` times k are scored again by floats."""
        first, memory_mb = k * (self.config.rescore or 1), self.config.memory_mb
        shards, ranges = self.vectors.shards, self.vectors.ranges
        if ranges is None:
            bits = vector_shards.quantize_binary(queries)
            ranking = binary_search(shards, bits, first, self.ids, bar, memory_mb)
        else:
            whole = vector_shards.quantize_int8(queries, ranges).astype(np.float32)
            # at most 2^14 in each dimension: float64 holds all sums exactly, so scores are the integers
            searcher = ExactSearcher(Embeddings(shards), self.ids, "inner_product", memory_mb)
            ranking = searcher.search(whole, first, bar)
        if self.config.rescore is None:
            return ranking
        scores = self._rescored(queries, ranking)
        return scoring.rank_candidates(ranking.passages, scores, min(k, self.count), self.ids)

    def _rescored(self, queries: Float32, ranking: Ranking) -> Float32:
        """float32 [queries, hits]: float64 products of queries and what their hits' numbers stand for."""
        query = np.repeat(np.arange(len(queries)), ranking.passages.shape[1])
        wide = queries.astype(np.float64)

        def score(rows: Int64, query: Int64) -> Float32:
            values = self.vectors.values(rows)
            scores: Float32 = np.einsum("ij,ij->i", wide[query], values).astype(np.float32)
            return scores

        scores = scoring.score_as_stored(ranking.passages.ravel(), query, score, machine.threads())
        return scores.reshape(ranking.passages.shape)


def binary_search(
    shards: tuple[Array, ...],
    queries: Array,
    top_k: int,
    ids: pa.ChunkedArray,
    bar: Bar,
    memory_mb: int | None = None,
) -> Ranking:
    """The passages with the least Hamming distance to each query, by `faiss.IndexBinaryFlat`.

    Distances are small integers, so many passages share one, and ids decide between all those at the k-th
    distance. A first search fetches more than k hits. For queries whose last hit is still at the k-th
    distance, a second one finds all passages within it.

    `shards` are [rows, bytes] each, the passages' bits, read in blocks, and `queries` [queries, bytes]. Other
    arguments and the result are as of `exact.ExactSearcher`; scores are minus the distances. `memory_mb` is
    for hits: None is that of `GROUP` queries.
    """
    n = sum(map(len, shards))
    k = min(top_k, n)
    fetched = min(2 * k + SPARE, n)
    ranking = empty_ranking(len(queries), k)
    size = GROUP if memory_mb is None else min(max(memory_mb * 1_000_000 // (48 * fetched), 1), GROUP)
    bits = queries.view(np.uint8)
    for start in range(0, len(bits), size):
        group = np.ascontiguousarray(bits[start : start + size])
        rows, distances = _nearest_bits(shards, group, fetched)
        # Where the last hit fetched lies beyond the k-th distance, all passages at that distance are
        # among the hits. Elsewhere Faiss may have left some out.
        kth = distances[:, k - 1]
        undecided = np.flatnonzero(distances[:, -1] == kth) if fetched < n else np.empty(0, np.int64)
        within = distances <= kth[:, None]
        within[undecided] = False
        query, column = np.nonzero(within)
        hits = [(query, rows[query, column], distances[query, column])]
        hits += _within(shards, group, undecided, kth)
        of_query, of_rows, hit_distances = (np.concatenate(parts) for parts in zip(*hits, strict=True))
        order = np.argsort(of_query, kind="stable")
        scores = 0 - hit_distances[order].astype(np.float32)
        best = scoring.rank_pairs(of_rows[order], scores, of_query[order], len(group), k, ids)
        set_rows(ranking, slice(start, start + size), best)
        bar.update(len(group))
    return ranking


def _nearest_bits(shards: tuple[Array, ...], queries: Array, k: int) -> tuple[Int64, Array]:
    """The nearest k rows of each query, int64 [queries, k], and their distances, ascending.

    Of the rows at the largest of these distances, it has any.
    """
    rows = np.empty((len(queries), 0), np.int64)
    distances = np.empty((len(queries), 0), np.int32)
    for first, index in _blocks(shards):
        block_distances, places = index.search(queries, min(k, index.ntotal))
        rows = np.concatenate([rows, places + first], axis=1)
        distances = np.concatenate([distances, block_distances], axis=1)
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(rows, order, axis=1)
        distances = np.take_along_axis(distances, order, axis=1)
    return rows, distances


def _within(
    shards: tuple[Array, ...], queries: Array, chosen: Int64, radii: Array
) -> Iterator[tuple[Int64, Int64, Array]]:
    """For some of the queries all rows within each one's radius: numbers of queries, rows, distances."""
    for first, index in _blocks(shards) if len(chosen) else ():
        for radius in np.unique(radii[chosen]):  # Faiss searches all queries of a call with one radius
            part = chosen[radii[chosen] == radius]
            ends, distances, places = index.range_search(queries[part], int(radius) + 1)  # below, not within
            yield np.repeat(part, np.diff(ends.astype(np.int64))), places + first, distances


def _blocks(shards: tuple[Array, ...]) -> Iterator[tuple[int, faiss.IndexBinaryFlat]]:
    """Blocks of all rows: the number of the first row, and an index of them."""
    from pipeline.search.faiss_library import faiss

    row = 0
    for shard in shards:
        for start in range(0, len(shard), BIT_ROWS):
            block = np.ascontiguousarray(shard[start : start + BIT_ROWS]).view(np.uint8)
            index = faiss.IndexBinaryFlat(8 * block.shape[1])
            index.add(block)
            yield row, index
            row += len(block)
