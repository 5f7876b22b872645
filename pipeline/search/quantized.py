"""Exact search of quantized vectors, in their own form, and the scores of the best of them by floats.

As sentence-transformers' helpers `semantic_search_usearch` and `semantic_search_faiss` do it: a query is
quantized as the passages are, int8 by their ranges. int8 is scored by the product of integers, binary by
minus the Hamming distance. With `rescore: N`, the best N times k are scored again: the float query times what
the passage's number stands for, which is where its int8 step begins, or its bit, 0 or 1.

An int8 product is at most 2^14 in each dimension, so float64 holds all sums exactly: the search of float
vectors (`exact`) gives the integers, rounded once to float32 like every score.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.core.progress import Bar
from pipeline.core.records import Array, Embeddings, Float32, Float64, Ranking
from pipeline.search import exact, hamming, rescoring
from pipeline.storage import vector_forms

PAIRS = 4096  # pairs of a query and a passage that are rescored at once


@dataclass(frozen=True)
class QuantizedVectors:
    """The passages' vectors in a quantized form.

    Attributes:
        shards: int8 [rows, dimension] or, of bits, [rows, ceil(dimension / 8)], memory-mapped.
        dimension: Of the vectors.
        ranges: float32 [2, dimension], by which int8 was quantized; None for bits.
    """

    shards: tuple[Array, ...]
    dimension: int
    ranges: Float32 | None

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def search(
        self,
        queries: Float32,
        top_k: int,
        rescore: int | None,
        ids: pa.ChunkedArray,
        bar: Bar,
        memory_mb: int | None = None,
    ) -> Ranking:
        """The best passages of each query.

        Args:
            queries: float32 [queries, dimension].
            top_k: Hits kept for each query.
            rescore: The best of so many times `top_k` are scored again by floats; None keeps their scores.
            ids: Arrow strings [rows], the passages' ids, by which ties are ordered.
            bar: Counts queries.
            memory_mb: Limit of the memory used, in 10^6 bytes; None sets none.
        """
        first = top_k * (rescore or 1)
        if self.ranges is None:
            bits = vector_forms.quantize_binary(queries)
            found = hamming.hamming_search(self.shards, bits, first, ids, bar, memory_mb)
        else:
            whole = vector_forms.quantize_int8(queries, self.ranges).astype(np.float32)
            found = exact.exact_search(
                Embeddings(self.shards), whole, first, ids, "inner_product", bar, memory_mb=memory_mb
            )
        if rescore is None:
            return found
        scores = self._rescored(queries, found)
        return rescoring.rank_candidates(found.passages, scores, min(top_k, len(self)), ids)

    def _rescored(self, queries: Float32, found: Ranking) -> Float32:
        """float32 [queries, hits]: the product of each query and what its hits' numbers stand for.

        Every pair is summed by itself in float64, so a score depends on the two vectors alone.
        """
        k = found.passages.shape[1]
        rows, query = found.passages.ravel(), np.repeat(np.arange(len(queries)), k)
        order = np.argsort(rows, kind="stable")  # vectors are read in the order in which they are stored
        bounds = np.cumsum([0, *map(len, self.shards)])
        ends = np.searchsorted(rows[order], bounds)
        scores = np.empty(len(rows), np.float32)
        wide = queries.astype(np.float64)
        for number, shard in enumerate(self.shards):
            for start in range(ends[number], ends[number + 1], PAIRS):
                pairs = order[start : min(start + PAIRS, ends[number + 1])]
                values = self._values(shard[rows[pairs] - bounds[number]])
                scores[pairs] = np.einsum("ij,ij->i", wide[query[pairs]], values)
        return scores.reshape(found.passages.shape)

    def _values(self, stored: Array) -> Float64:
        """float64 [n, dimension]: what the numbers of some rows stand for."""
        if self.ranges is None:
            return vector_forms.unpack_binary(stored, self.dimension).astype(np.float64)
        return vector_forms.dequantize_int8(stored, self.ranges)
