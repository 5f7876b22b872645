"""Kernels of MaxSim: the scores of many queries and passages at once, fast or exact.

Both multiply the tokens of a passage, six at a time, with a panel of query tokens, one in each lane of a
register (`tiles.make_tile`). The best product of each query token is then a maximum of whole registers, taken
while the products are in the processor's cache: the [query tokens, passage tokens] matrix never exists. Texts
of different lengths lie one after another, so no product of padding is computed, but for a passage's last
tile and the queries' last panel.

The fast kernel multiplies in int16; `maxsim.error_bound` says how far a score can be off. The exact one
multiplies in float64, in which the product of two float32 numbers is exact, and adds in one order: along the
dimensions, then along the query's tokens. So its scores depend on the two texts' vectors alone.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import float32, float64, int32, int64

from pipeline.core.records import Array, Float32, Float64, Int32, Int64
from pipeline.native.compiling import compiled, merged
from pipeline.native.integers import PANEL, ROW_LENGTH, pack_rows
from pipeline.native.registers import WIDE, broadcast_wide, larger, load_wide, plus_product, total_wide
from pipeline.native.tiles import DOUBLE_WIDTH, INTEGER_WIDTH, TALL, double_tile, int16_tile

_LOWEST = np.finfo(np.float32).min  # not -inf, which compilers may assume never to occur


class PackedQueries(NamedTuple):
    """Token vectors of some queries, as the fast kernel reads them; see `pack_rows`."""

    pairs: Int32  # the tokens as int16, in panels of 64; the last panel is filled with zeros
    factors: Float32  # float32 [tokens, and what fills the last panel], what each token was divided by
    bounds: Int64  # int64 [queries + 1], the first token of each query, and the end
    divisors: Float32  # float32 [queries], by which the sum over a query's tokens is divided


class WideQueries(NamedTuple):
    """Token vectors of some queries, as the exact kernel reads them."""

    # float64, flat: each query as [dimension, width], its tokens side by side. The width is the number of its
    # tokens, rounded up to whole registers and filled with zeros.
    tokens: Float64
    starts: Int64  # int64 [queries], where each query begins
    counts: Int64  # int64 [queries], its number of tokens
    divisors: Float64  # float64 [queries], by which the sum over a query's tokens is divided


def pack_queries(vectors: Float32, bounds: Int64, divisors: Float32) -> PackedQueries:
    """Queries for the fast kernel.

    Args:
        vectors: float32 [tokens, even dimension], the queries' token vectors.
        bounds: int64 [queries + 1], the first token of each query, and the end.
        divisors: float32 [queries], by which the sum over a query's tokens is divided.
    """
    filled = np.zeros((-(-len(vectors) // PANEL) * PANEL, vectors.shape[1]), np.float32)
    filled[: len(vectors)] = vectors
    pairs, factors = pack_rows(filled)
    return PackedQueries(pairs, factors, bounds, divisors)


def widen_queries(vectors: Float32, bounds: Int64, divisors: Float32) -> WideQueries:
    """Queries for the exact kernel; arguments as of `pack_queries`."""
    counts = np.diff(bounds)
    sizes = -(-counts // DOUBLE_WIDTH) * DOUBLE_WIDTH * vectors.shape[1]
    starts = np.cumsum(sizes) - sizes
    tokens = np.zeros(int(sizes.sum()))
    for query, (first, end) in enumerate(itertools.pairwise(bounds)):
        own = tokens[starts[query] : starts[query] + sizes[query]].reshape(vectors.shape[1], -1)
        own[:, : end - first] = vectors[first:end].T
    return WideQueries(tokens, starts, counts, divisors.astype(np.float64))


@merged
def _round_rows(x: Float32, rows: Array, factors: Float32) -> None:
    """Write x [n, k] to `rows` in int16, scaled to ROW_LENGTH and rounded; `factors` gets 1 / its scales."""
    n, k = x.shape
    for i in range(n):
        squares, whole = broadcast_wide(float32(0)), k // WIDE * WIDE
        for start in range(0, whole, WIDE):
            numbers = load_wide(x[i], start)
            squares = plus_product(squares, numbers, numbers)
        square = float32(1e-30) + total_wide(squares)
        for j in range(whole, k):
            square += x[i, j] * x[i, j]
        factor = float32(ROW_LENGTH) / np.sqrt(square)
        factors[i] = float32(1) / factor
        row = rows[i * k : (i + 1) * k]
        for j in range(k):
            row[j] = int32(np.rint(x[i, j] * factor))


@partial(compiled, fast=True)
def score_fast(tokens: Float32, bounds: Int64, queries: PackedQueries, out: Float32) -> None:
    """Set out [passages, queries] to inexact scores.

    Args:
        tokens: float32 [tokens, even dimension], contiguous, of some passages.
        bounds: int64 [passages + 1], the first token of each passage, and the end.
        queries: The queries.
        out: float32 [passages, queries].
    """
    n, dimension = tokens.shape
    half, columns = dimension // 2, len(queries.factors)
    rows = np.zeros((n + TALL) * dimension, np.int16)  # a passage's last tile may reach beyond its end
    factors = np.empty(n, np.float32)
    _round_rows(tokens, rows, factors)
    words = rows.view(np.int32)
    # For each passage and panel of query tokens, the largest product of each lane over the passage's tokens.
    # It is taken while the tile's sums are in the first cache: the matrix of all products never exists.
    best = np.empty(columns, np.float32)
    sums = np.empty(TALL * PANEL, np.int32)
    for passage in range(len(bounds) - 1):
        start, end = bounds[passage], bounds[passage + 1]
        for panel in range(0, columns, PANEL):
            most = best[panel : panel + PANEL]
            most[:] = _LOWEST
            for i in range(start, end, TALL):
                for j in range(0, PANEL, INTEGER_WIDTH):
                    int16_tile(
                        sums, j, PANEL, words, i * half, half,
                        queries.pairs, panel * half + j, PANEL, half,
                    )  # fmt: skip
                for row in range(min(TALL, end - i)):
                    factor = factors[i + row]
                    for j in range(PANEL):
                        most[j] = larger(most[j], float32(sums[row * PANEL + j]) * factor)
        for query in range(len(queries.divisors)):
            total = float32(0)
            for j in range(queries.bounds[query], queries.bounds[query + 1]):
                total += best[j] * queries.factors[j]
            out[passage, query] = total / queries.divisors[query]


@compiled
def score_exactly(
    tokens: Float32, bounds: Int64, passages: Int64, queries: WideQueries, query: Int64, out: Float32
) -> None:
    """Set out [pairs] to exact scores.

    Args:
        tokens: float32 [tokens, dimension], contiguous, of some passages.
        bounds: int64 [passages + 1], the first token of each passage, and the end.
        passages: int64 [pairs], ascending: the passage of each pair.
        queries: The queries.
        query: int64 [pairs]: the query of each pair.
        out: float32 [pairs].
    """
    dimension = tokens.shape[1]
    longest = int64(0)
    for passage in range(len(bounds) - 1):
        longest = max(longest, bounds[passage + 1] - bounds[passage])
    wide = np.zeros((longest + TALL) * dimension, np.float64)  # the last tile may reach beyond the end
    sums, most = np.empty(TALL * DOUBLE_WIDTH, np.float64), np.empty(DOUBLE_WIDTH, np.float64)
    held = int64(-1)
    for pair in range(len(passages)):
        start, count = bounds[passages[pair]], bounds[passages[pair] + 1] - bounds[passages[pair]]
        # pairs of one passage follow each other, so it is widened to float64 once
        if passages[pair] != held:
            held = passages[pair]
            for i in range(count):
                for k in range(dimension):
                    wide[i * dimension + k] = tokens[start + i, k]
        number = query[pair]
        columns = queries.counts[number]
        width = -(-columns // DOUBLE_WIDTH) * DOUBLE_WIDTH
        total = float64(0)
        for panel in range(0, columns, DOUBLE_WIDTH):
            # added in the order of the query's tokens below, whatever tiles there are
            most[:] = -np.inf
            for i in range(0, count, TALL):
                double_tile(
                    sums, 0, DOUBLE_WIDTH, wide, i * dimension, dimension,
                    queries.tokens, queries.starts[number] + panel, width, dimension,
                )  # fmt: skip
                for row in range(min(TALL, count - i)):
                    for j in range(DOUBLE_WIDTH):
                        value = sums[row * DOUBLE_WIDTH + j]
                        most[j] = value if value > most[j] else most[j]
            for j in range(min(DOUBLE_WIDTH, columns - panel)):
                total += most[j]
        out[pair] = total / queries.divisors[number]
