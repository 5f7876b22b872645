"""Exact search by MaxSim, ColBERT's late interaction, among token vectors that may be larger than memory.

The score of a query and a passage is the sum, over the query's tokens, of the largest inner product with a
token of the passage (Khattab and Zaharia, *ColBERT*, SIGIR 2020, equation 3); or the mean over the query's
tokens, as BGE-M3 computes it. A scan scores blocks of passages in int16, which is inexact and an order of
magnitude faster than float64, keeps the candidates that may be among the best k, and scores those exactly
(`candidates` says why none is lost).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from pipeline.core import machine
from pipeline.core.display import Bar
from pipeline.core.records import Float32, Float64, Int64, Ranking, TokenEmbeddings
from pipeline.native.nearest import ROW_LENGTH, maxsim as kernels
from pipeline.search import candidates
from pipeline.search.candidates import Candidates, empty_ranking, set_rows
from pipeline.search.scan import growing_blocks
from pipeline.search.scoring import ROUNDOFF, norm_bounds, score_as_stored
from pipeline.storage import vector_shards
from pipeline.storage.ragged_shards import runs

SCORED_NUMBERS = 1 << 18  # numbers of the token vectors that a core scores at a time
QUERY_TOKENS = 8192  # tokens of queries scored at once: they fit the processor's cache
BLOCK_TOKENS = 1 << 17  # tokens of the longest block of passages
TILE = 1 << 22  # scores made at once


def maxsim_search(
    passages: TokenEmbeddings,
    queries: TokenEmbeddings,
    top_k: int,
    ids: pa.ChunkedArray,
    bar: Bar,
    *,
    mean: bool = False,
    memory_mb: int | None = None,
) -> Ranking:
    """The best passages of each query, [queries, min(top_k, passages)], ties in the contract's order.

    `ids` and `memory_mb` are as of `exact.ExactSearcher`, and `bar` counts queries. With `mean`, a score is
    the mean over the query's tokens, not the sum.
    """
    k = min(top_k, len(passages))
    block, group = _block_and_group_sizes(passages, queries, k, memory_mb)
    bounds = queries.bounds
    ranking = empty_ranking(len(queries), k)
    for start in range(0, len(queries), group):
        stop = min(start + group, len(queries))
        vectors = vector_shards.read_rows(queries.vectors, bounds[start], bounds[stop])
        scan = MaxSimScan(passages, vectors, bounds[start : stop + 1] - bounds[start], k, ids, mean)
        scan.collect(block, bar)
        set_rows(ranking, slice(start, stop), scan.candidates.best_hits())
    return ranking


def _block_and_group_sizes(
    passages: TokenEmbeddings, queries: TokenEmbeddings, k: int, memory_mb: int | None
) -> tuple[int, int]:
    """Passages of a block, and queries of a group, for which all vectors are read once."""
    n_queries = max(len(queries), 1)
    tokens = max(len(passages.vectors) / len(passages), 1)
    block = max(min(int(BLOCK_TOKENS / tokens), TILE // n_queries), 16)
    if memory_mb is None:
        return block, n_queries
    memory = memory_mb * 1_000_000
    dimension = passages.vectors.dimension
    row_bytes = 4 * dimension * tokens
    block = int(min(block, max(memory / 4 // row_bytes, 16)))
    query_tokens = len(queries.vectors) / n_queries
    in_use = candidates.BYTES * candidates.room_per_query(k) + 2 * candidates.PAIR_BYTES * k
    query_bytes = in_use + 20 * dimension * query_tokens + 16 * block
    left = memory - block * row_bytes - machine.cores() * 24 * SCORED_NUMBERS
    return block, int(min(max(left // query_bytes, 1), n_queries))


class MaxSimScan:
    """One reading of all passages for one group of queries: `collect`, then `best_hits` of its `candidates`.

    Args:
        passages, vectors, bounds, mean: As of `MaxSimScorer`; there are at least k passages.
        k: Hits kept for each query.
        ids: Arrow strings, the ids of the passages.
    """

    def __init__(
        self,
        passages: TokenEmbeddings,
        vectors: Float32,
        bounds: Int64,
        k: int,
        ids: pa.ChunkedArray,
        mean: bool,
    ) -> None:
        self.passages, self.starts = passages, passages.bounds
        self.n_queries, self.k = len(bounds) - 1, k
        score_pairs = MaxSimScorer(passages, vectors, bounds, mean)
        vectors, divisors = operand(vectors), score_pairs.divisors
        self.parts = []
        for a, b in runs(bounds, QUERY_TOKENS):
            part = vectors[bounds[a] : bounds[b]]
            self.parts.append(
                (a, b, kernels.pack_queries(part, bounds[a : b + 1] - bounds[a], divisors[a:b]))
            )
        self.error_at_length_1 = np.concatenate(
            [error_bound(vectors[bounds[a] : bounds[b]], queries) for a, b, queries in self.parts]
        )
        self.longest = 0.0  # length of the longest token vector so far
        self.candidates = Candidates(self.n_queries, len(passages), k, ids, self._error, score_pairs)

    def collect(self, block: int, bar: Bar) -> None:
        """Read all passages, in blocks of up to `block`, and collect the candidates."""
        n = len(self.passages)
        with ThreadPoolExecutor(machine.threads()) as threads:
            for start, stop in growing_blocks(n, min(2 * self.k, block), block):
                self.candidates.select(0, start, self._score_block(start, stop, threads))
                first, last = self.starts[start], self.starts[stop]
                vector_shards.release_memory(self.passages.vectors, int(first), int(last))
                bar.update(self.n_queries * stop // n - self.n_queries * start // n)

    def _score_block(self, start: int, stop: int, threads: ThreadPoolExecutor) -> Float32:
        """Inexact scores float32 [passages, queries] of passages [start, stop)."""
        scores = np.empty((stop - start, self.n_queries), np.float32)

        def score_chunk(chunk: tuple[int, int]) -> float:
            return self._score_chunk(start + chunk[0], start + chunk[1], scores[slice(*chunk)])

        self.longest = max(
            self.longest, *threads.map(score_chunk, chunks_of(self.passages, self.starts[start : stop + 1]))
        )
        return scores

    def _score_chunk(self, start: int, stop: int, scores: Float32) -> float:
        """Set `scores` [passages, queries] for passages [start, stop); returns the longest token's length."""
        first, last = int(self.starts[start]), int(self.starts[stop])
        tokens = operand(vector_shards.read_rows(self.passages.vectors, first, last))
        bounds = self.starts[start : stop + 1] - first
        for begin, end, queries in self.parts:
            part = np.empty((stop - start, end - begin), np.float32)
            kernels.score_fast(tokens, bounds, queries, part)
            scores[:, begin:end] = part
        return float(norm_bounds(tokens).max())

    def _error(self, queries: slice) -> Float64:
        return self.error_at_length_1[queries] * max(self.longest, 1e-15)


def error_bound(vectors: Float32, queries: kernels.PackedQueries) -> Float64:
    """float64 [queries]: how far a score of `score_fast` can be off if no passage's token is longer than 1.

    In proportion to its length, the same holds for any longest token. For one query token q and one token p
    of length 1 at most, kept as rounded numbers times the factors f_q and f_p = 1 / ROW_LENGTH:

    - Rounding moves each of d numbers by at most 0.51 (the 0.01 is for scaling in float32), so the vectors by
      at most f h with h = 0.51 sqrt(d), and the product by f_p h |q| + (1 + f_p h) f_q h.
    - Integer sums are exact. Scaling them back is a few operations in float32: 8 u |q|, u = 2^-24.

    The largest product of a query token is off by no more than the product that is off most. The sum over m
    tokens in float32 adds m u times the sum of |q| (Higham, *Accuracy and Stability of Numerical Algorithms*,
    2nd edition, 2002, section 4.2), and rounding the score 2 u of that.

    Args:
        vectors: float32 [tokens, dimension], the queries' token vectors.
        queries: The same, packed.
    """
    lengths = norm_bounds(vectors)
    moved = 0.51 * np.sqrt(vectors.shape[1])
    by_row = moved / ROW_LENGTH
    factors = queries.factors[: len(vectors)].astype(np.float64)
    tokens = np.diff(queries.bounds)
    of_tokens = 1.01 * (by_row * lengths + (1 + by_row) * moved * factors)
    starts = queries.bounds[:-1]
    sizes = np.add.reduceat(lengths, starts)
    errors: Float64 = np.add.reduceat(of_tokens, starts) + 1.01 * (tokens + 10) * ROUNDOFF * sizes
    return errors / queries.divisors


class MaxSimScorer:
    """Scores pairs of passages and of some queries; see `candidates.ExactScore`.

    Args:
        passages: The passages' token vectors.
        vectors: float32 [tokens, dimension], the queries' token vectors.
        bounds: int64 [queries + 1], the first token of each query, and the end.
        mean: Whether a score is the mean over the query's tokens, not the sum.

    Attributes:
        divisors: float32 [queries], by which the sum over a query's tokens is divided.
    """

    def __init__(self, passages: TokenEmbeddings, vectors: Float32, bounds: Int64, mean: bool) -> None:
        self.passages, self.starts = passages, passages.bounds
        counts = np.diff(bounds)
        self.divisors = (counts if mean else np.ones(len(counts))).astype(np.float32)
        self.wide = kernels.widen_queries(operand(vectors), bounds, self.divisors)

    def __call__(self, rows: Int64, query: Int64) -> Float32:
        """float32 [pairs]; see `scoring.score_as_stored`."""

        def pieces(rows: Int64) -> list[tuple[int, int]]:
            tokens = self.starts[rows + 1] - self.starts[rows]
            return chunks_of(self.passages, np.concatenate([[0], np.cumsum(tokens)]))

        wide = query.astype(np.int64)
        return score_as_stored(rows, wide, self._score_pairs, machine.threads(), pieces)

    def _score_pairs(self, rows: Int64, query: Int64) -> Float32:
        """Scores of pairs, `rows` ascending, whose passages fit into memory together."""
        # of a passage that several queries are paired with, the tokens are read once
        distinct, passage = np.unique(rows, return_inverse=True)
        starts, counts = self.starts[distinct], self.starts[distinct + 1] - self.starts[distinct]
        bounds = np.concatenate([[0], np.cumsum(counts)])
        of_tokens = np.repeat(starts - bounds[:-1], counts) + np.arange(bounds[-1])
        tokens = operand(vector_shards.gather_rows(self.passages.vectors, of_tokens))
        scores = np.empty(len(rows), np.float32)
        kernels.score_exactly(tokens, bounds, passage, self.wide, query, scores)
        return scores


def operand(vectors: Float32) -> Float32:
    """The vectors as a contiguous array with an even number of dimensions: a last one of zeros if need be.

    It is read-only, whether it was or not: Numba compiles a kernel for each case.
    """
    if vectors.shape[1] % 2:
        vectors = np.pad(vectors, ((0, 0), (0, 1)))
    contiguous: Float32 = np.ascontiguousarray(vectors).view()
    contiguous.flags.writeable = False
    return contiguous


def chunks_of(passages: TokenEmbeddings, bounds: Int64) -> list[tuple[int, int]]:
    """Texts in runs [start, stop) that a core scores at a time; `bounds` as in `runs`."""
    return runs(bounds, max(SCORED_NUMBERS // passages.vectors.dimension, 1))
