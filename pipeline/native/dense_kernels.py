"""Kernels of dense search: a filter of products in int8, and the products that pass it in float32.

`vpdpbusd` multiplies 64 int8 numbers with 64 others in the time in which an fp32 instruction multiplies 16,
and AMX 16,384 in 16 times that. A tile is the products of 6 rows with 64 queries (`tiles`), or of 32 with 32
(`amx`); its sums stay in registers until they are complete. Rows and queries as integers, in NumPy, where |x|
is the length of a row x:

    factor = max(abs(x)) / 127
    whole = (x / factor).round()
    distance = |x - factor * whole|         # how far rounding moved the row

The bound. Sums of integers are exact, so a product of integers is only as far from q.x as rounding moved the
two vectors, q to q' and x to x':

    |q.x - q'.x'| = |(q - q').x + q'.(x - x')| <= |q - q'| |x| + |q'| |x - x'| <= |q'| slack

with slack = distance + max(|q - q'| / |q'|) |x|, one number for each row. A pair whose product plus |q'|
slack is below the query's threshold cannot reach it. That leaves some three times as many pairs as have a
product above the threshold. Their float32 product is computed at once, while the row is in the processor's
cache, and decides: the filter's precision has no part in what is found. The scores of the pairs that are left
are computed there, too: reading their rows again at the end would take longer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import float32, float64, int32, njit, types

from pipeline.core import machine
from pipeline.core.records import Float32, Float64, Int32, Int64
from pipeline.native import amx
from pipeline.native.compiling import compiled, instruction, merged
from pipeline.native.integers import INT8_LIMIT, PANEL, TILE_BYTES, aligned_bytes, pack_bytes
from pipeline.native.posting_kernels import keep_best
from pipeline.native.registers import float_of_bits
from pipeline.native.tiles import INTEGER_WIDTH, TALL, int8_tile

CHUNK_ROWS = 192  # rows multiplied with one panel after another
AMX_ROWS = 32  # rows multiplied together by AMX
ROOM = CHUNK_ROWS * PANEL  # hits that `find` needs room for, at least
NEXT_ROW, NEXT_QUERY, PASSED = 0, 1, 2
"""What `find` has done: the row and the query to go on with, and how many pairs have passed the filter."""
OFFSET = 128  # added to the rows' int8 for `vpdpbusd`
SHORTEST = 1e-15  # rows shorter than this become zeros: their squares may underflow
_WORD = ir.IntType(32)
_aligned = merged(aligned_bytes)


class PackedQueries(NamedTuple):
    """Queries as integers, in the order in which a tile reads them.

    A query is about `factors` times its integers. Queries that are shorter than `SHORTEST` or not finite are
    zeros, and so is what fills the last panel of 64 queries.
    """

    words: Int32  # int32, flat: four int8 each, as `pack_bytes` returns them
    factors: Float32  # float32 [columns]
    offsets: Int32  # int32 [columns], what is subtracted from the sums
    # float32 [columns], at least the length of a query and of what its integers stand for; infinity if zeros
    # stand for something else.
    norms: Float32
    share: float  # the largest distance of the two, as a share of the norm
    tiles: Any  # `amx.CONFIGURATION` where AMX computes the products, else None

    @property
    def width(self) -> int:
        """The int32 of a query, and of a row."""
        return len(self.words) // len(self.factors)


class Hits(NamedTuple):
    """Room for hits, [n] each: the query's number, the row's, their product in float32, and their score."""

    queries: Int32
    rows: Int64
    products: Float32
    scores: Float32

    @classmethod
    def empty(cls, room: int) -> Hits:
        """Room for `room` hits."""
        return cls(np.empty(room, np.int32), np.empty(room, np.int64), *np.empty((2, room), np.float32))


def pack_queries(queries: Float32) -> PackedQueries:
    """Queries float32 [n, dimension] as int8."""
    n, dimension = queries.shape
    on_tiles = machine.has_amx()
    step = TILE_BYTES if on_tiles else 4
    given = np.zeros((-(-n // PANEL) * PANEL, -(-dimension // step) * step), np.float32)
    given[:n, :dimension] = queries
    lengths = np.linalg.norm(given.astype(np.float64), axis=1)
    held = (lengths >= SHORTEST) & np.isfinite(lengths)
    filled = np.where(held[:, None], given, np.float32(0))
    words, factors = pack_bytes(filled)
    panels = words.view(np.int8).reshape(-1, filled.shape[1] // 4, PANEL, 4)
    whole = panels.transpose(0, 2, 1, 3).reshape(filled.shape).astype(np.float64)
    # 0.01% more than computed: the bound must hold although these lengths are rounded too
    errors: Float64 = 1.0001 * np.linalg.norm(whole * factors[:, None].astype(np.float64) - given, axis=1)
    norms = np.where(held, 1.0001 * (lengths + errors), np.inf)
    # `vpdpbusd` takes one side without signs, so rows have OFFSET added. That adds OFFSET times the sum of a
    # query's numbers to each of its sums, which is taken away again.
    offsets = (0 if on_tiles else OFFSET) * whole.sum(axis=1)
    share = 1.0001 * float((errors[held] / norms[held]).max(initial=0))
    aligned = aligned_bytes(words.nbytes).view(np.int32)
    aligned[:] = words
    return PackedQueries(
        aligned, factors, offsets.astype(np.int32), norms.astype(np.float32), share,
        amx.CONFIGURATION if on_tiles else None,
    )  # fmt: skip


def fixed(rows: Float32) -> Float32:
    """The rows, contiguous and read-only, whether they were or not: Numba compiles a kernel for each case."""
    view: Float32 = np.ascontiguousarray(rows).view()
    view.flags.writeable = False
    return view


@njit(forceinline=True, fastmath=True, nogil=True)
def _round_rows(
    rows: Any, l2: Any, query_error: Any, offset: Any, whole: Any, factors: Any, slacks: Any, halves: Any,
) -> Any:  # fmt: skip
    """Round some rows to int8, and return the largest length.

    Args:
        rows: float32 [n, dimension].
        l2: Whether a score is minus the squared distance, and not the inner product.
        query_error: `PackedQueries.share`.
        offset: Added to the integers.
        whole: uint8 [n or more, width], set to the integers; bytes beyond `dimension` are left as they are.
        factors: float32 [n or more], set: a row is about this times its integers; NaN for a row with NaN or
            infinity, which passes no filter.
        slacks: float32 [n or more], set; see the module.
        halves: float32 [n or more], set to half the squared length of each row for l2, else zeros.
    """
    n, dimension = rows.shape
    bits = rows.view(np.int32)
    longest = float32(0)
    for i in range(n):
        square, most = float32(0), int32(0)
        for j in range(dimension):
            square += rows[i, j] * rows[i, j]
            # Without its sign, a float32 seen as an integer is the larger the larger the number is, and
            # infinity and NaN are larger than all numbers. LLVM may assume of floats that neither occurs.
            most = max(most, bits[i, j] & int32(0x7FFFFFFF))
        length = np.sqrt(square)
        row = whole[i, :dimension]
        halves[i] = square * float32(0.5) if l2 else float32(0)
        if most >= int32(0x7F800000):  # infinity or NaN
            row[:] = offset
            factors[i], slacks[i] = np.nan, float32(0)
            continue
        longest = max(longest, length)
        if length < float32(SHORTEST):
            row[:] = offset
            factors[i], slacks[i] = float32(0), float32(2 * SHORTEST)
            continue
        factor = float_of_bits(most) * float32(1 / INT8_LIMIT)
        scale, moved = float32(1) / factor, float32(0)
        for j in range(dimension):
            rounded = np.rint(rows[i, j] * scale)
            row[j] = int32(rounded) + int32(offset)
            off = rows[i, j] - rounded * factor
            moved += off * off
        factors[i] = factor
        # 1% more, and 2^-20 of the length, for what rounding in float32 takes from the slack and the product
        slacks[i] = (
            float32(1.01) * (np.sqrt(moved) + float32(query_error) * length) + float32(2**-20) * length
        )
    return longest


@instruction(types.uint64, None, types.intp, *[types.float32] * 3, *[None] * 4, types.intp)
def _passing(
    builder: Any, sums: Any, at: Any, factor: Any, slack: Any, half: Any,
    factors: Any, offsets: Any, norms: Any, thresholds: Any, panel: Any,
) -> Any:  # fmt: skip
    """The queries of a panel that a row passes for, as 64 bits.

    Nearly no pair passes, and a matrix of all products would take longer to write and read than to compute.
    So the sums of a tile are compared while they are in the first cache.

    In NumPy, with `part` for `[panel : panel + 64]`, and in float32: `(sums[at : at + 64] - offsets[part]) *
    factor * factors[part] + (norms[part] * slack - half) >= thresholds[part]`, where each sum may be of one
    rounding with its product. A comparison with NaN is false.
    """
    integers, floats = ir.VectorType(_WORD, PANEL), ir.VectorType(ir.FloatType(), PANEL)

    def load(array: Any, start: Any, kind: Any) -> Any:
        return builder.load(builder.bitcast(builder.gep(array, [start]), kind.as_pointer()), align=4)

    def repeat(value: Any) -> Any:
        first = builder.insert_element(ir.Constant(floats, ir.Undefined), value, _WORD(0))
        lanes = ir.Constant(ir.VectorType(_WORD, PANEL), None)
        return builder.shuffle_vector(first, ir.Constant(floats, ir.Undefined), lanes)

    whole = builder.sub(load(sums, at, integers), load(offsets, panel, integers))
    value = builder.fmul(builder.sitofp(whole, floats), repeat(factor))
    more = builder.fneg(repeat(half))
    for left, right in ((load(norms, panel, floats), repeat(slack)), (value, load(factors, panel, floats))):
        more = builder.fadd(builder.fmul(left, right, flags=["contract"]), more, flags=["contract"])
    passed = builder.fcmp_ordered(">=", more, load(thresholds, panel, floats))
    return builder.bitcast(passed, ir.IntType(PANEL))


@instruction(types.int64, types.uint64)
def _first_bit(builder: Any, bits: Any) -> Any:
    """The number of the lowest bit set, of which there must be one."""
    return builder.cttz(bits, ir.IntType(1)(1))


@njit(forceinline=True, fastmath=True, nogil=True)
def _product(row: Any, query: Any) -> Any:
    """The product in float32, summed in any order."""
    total = float32(0)
    for j in range(len(row)):
        total += row[j] * query[j]
    return total


@merged
def _height(tiles: Any) -> int:
    """The rows that are multiplied together."""
    return TALL if tiles is None else AMX_ROWS


@merged
def _multiply(tiles: Any, sums: Int32, rows: Int32, row: int, queries: Int32, panel: int, width: int) -> None:
    """Set sums int32 [rows of a tile, 64] to products of the rows from `row` on with a panel of queries."""
    # Numba leaves out the branch that the type of `tiles` makes unreachable
    if tiles is None:
        for j in range(0, PANEL, INTEGER_WIDTH):
            int8_tile(sums, j, PANEL, rows, row * width, width, queries, panel * width + j, PANEL, width)
    else:
        for j in range(0, PANEL, AMX_ROWS):
            at = (panel * width + j) * 4
            amx.int8_block(
                sums, j, PANEL, rows, row * width * 4, width * 4,
                queries, at, PANEL * 4, width * 4 // TILE_BYTES,
            )  # fmt: skip


@merged
def _score_hits(
    rows: Float32, first_row: int, queries: Float32, l2: bool, start: int, stop: int, terms: Float64,
    hits: Hits,
) -> None:  # fmt: skip
    """Set the scores of hits [start, stop) to those of `scoring.score_pairs`, bit by bit.

    They are summed in the same order. Each addition waits for the one before, so four sums are computed side
    by side. `terms` is float64 [4, dimension].
    """
    dimension = rows.shape[1]
    whole = dimension - dimension % 8
    a, b, c, d = terms[0], terms[1], terms[2], terms[3]
    for first in range(start, stop, 4):
        for place in range(4):
            hit = min(first + place, stop - 1)
            row, query, out = rows[hits.rows[hit] - first_row], queries[hits.queries[hit]], terms[place]
            for j in range(dimension):
                left, right = float64(row[j]), float64(query[j])
                out[j] = (left - right) * (left - right) if l2 else left * right
        # NumPy's `einsum` sums odd and even places apart, and of eight places the last two first
        zero = float64(0)
        even_a = even_b = even_c = even_d = zero
        odd_a = odd_b = odd_c = odd_d = zero
        for j in range(0, whole, 8):
            for at in (6, 4, 2, 0):
                even_a, odd_a = even_a + a[j + at], odd_a + a[j + at + 1]
                even_b, odd_b = even_b + b[j + at], odd_b + b[j + at + 1]
                even_c, odd_c = even_c + c[j + at], odd_c + c[j + at + 1]
                even_d, odd_d = even_d + d[j + at], odd_d + d[j + at + 1]
        evens, odds = (even_a, even_b, even_c, even_d), (odd_a, odd_b, odd_c, odd_d)
        for place in range(min(4, stop - first)):
            even, odd, values = evens[place], odds[place], terms[place]
            for j in range(whole, dimension - 1, 2):
                even += values[j]
                odd += values[j + 1]
            if dimension % 2:
                even += values[dimension - 1]
            hits.scores[first + place] = zero - (even + odd) if l2 else even + odd


@compiled
def find(
    rows: Any, first_row: Any, queries: Any, packed: Any, l2: Any,
    thresholds: Any, filter_thresholds: Any, longest: Any, progress: Any, hits: Any,
) -> Any:  # fmt: skip
    """Find the pairs that pass the filter and whose product reaches the threshold, while there is room.

    Args:
        rows: float32 [n, dimension], `fixed`.
        first_row: The number of the first row.
        queries: float32 [queries, dimension].
        packed: The same as `PackedQueries`.
        l2: Whether a score is minus the squared distance, and not the inner product.
        thresholds: float32 [queries], the least product of a hit.
        filter_thresholds: float32 [queries], the least that the filter's value of a hit can be.
        longest: float64 [1], at least the length of the longest row that thresholds are for. Where a longer
            row comes next, its length is set and this returns: call again with thresholds for it.
        progress: int64 [3], zeros at first, updated: `NEXT_ROW`, which is n once all is done, `NEXT_QUERY`
            and `PASSED`.
        hits: `Hits` with room for `ROOM` or more, filled from the start. If less is left, this returns: empty
            it and call again with the same `progress`.

    Returns:
        The number of hits.
    """
    n, columns, tiles = len(rows), len(packed.factors), packed.tiles
    width, height = len(packed.words) // columns, _height(tiles)
    words = _aligned((CHUNK_ROWS + AMX_ROWS) * width * 4).view(np.int32)
    whole = words.view(np.uint8).reshape(CHUNK_ROWS + AMX_ROWS, width * 4)
    factors, slacks, halves = np.empty((3, CHUNK_ROWS), np.float32)
    offset = OFFSET if tiles is None else 0
    sums, pairs = _aligned(AMX_ROWS * PANEL * 4).view(np.int32), np.empty(ROOM, np.int64)
    terms = np.empty((4, rows.shape[1]))
    least = np.full(columns, np.nan, np.float32)  # NaN lets no query of padding pass
    least[: len(filter_thresholds)] = filter_thresholds
    n_hits = scored = 0
    amx.begin(tiles)
    while progress[NEXT_ROW] < n:
        # A chunk of rows is rounded, and multiplied with one panel of queries after another: the rows stay in
        # the second cache meanwhile, and are read from memory once for all queries.
        first, end = progress[NEXT_ROW], min(progress[NEXT_ROW] + CHUNK_ROWS, n)
        length = 1.001 * _round_rows(
            rows[first:end], l2, packed.share, offset, whole, factors, slacks, halves
        )
        if length > longest[0]:
            longest[0] = length
            break
        while progress[NEXT_QUERY] < columns and n_hits + ROOM <= len(hits.queries):
            panel, n_pairs = progress[NEXT_QUERY], 0
            # 1. integers: the pairs of the chunk and the panel that the filter lets pass
            for top in range(0, end - first, height):
                _multiply(tiles, sums, words, top, packed.words, panel, width)
                for row in range(top, min(top + height, end - first)):
                    passed = _passing(
                        sums, (row - top) * PANEL, factors[row], slacks[row], halves[row],
                        packed.factors, packed.offsets, packed.norms, least, panel,
                    )  # fmt: skip
                    while passed:  # one pass for each bit that is set: the lowest is read, then cleared
                        pairs[n_pairs] = row * PANEL + _first_bit(passed)
                        passed &= passed - np.uint64(1)
                        n_pairs += 1
            # 2. float32: the hits among them; after all tiles, so that the loop above stays short
            for pair in range(n_pairs):
                row, query = pairs[pair] // PANEL, panel + pairs[pair] % PANEL
                product = _product(rows[first + row], queries[query]) - halves[row]
                if product >= thresholds[query]:
                    hits.queries[n_hits], hits.rows[n_hits] = query, first_row + first + row
                    hits.products[n_hits] = product
                    n_hits += 1
            progress[PASSED] += n_pairs
            progress[NEXT_QUERY] += PANEL
        # 3. the scores of all queries' hits; those of one panel are too few to be summed side by side
        _score_hits(rows, first_row, queries, l2, scored, n_hits, terms, hits)
        scored = n_hits
        if progress[NEXT_QUERY] < columns:  # there is no more room
            break
        progress[NEXT_ROW], progress[NEXT_QUERY] = end, 0
    amx.end(tiles)
    return n_hits


@compiled
def add_hits(
    hits: Any, start: Any, stop: Any, thresholds: Any, rows: Any, products: Any, scores: Any, counts: Any
) -> Any:
    """Add hits [start, stop) that reach the thresholds; returns the number of the first that has no room."""
    room = rows.shape[1]
    for hit in range(start, stop):
        query = hits.queries[hit]
        if hits.products[hit] >= thresholds[query]:
            count = counts[query]
            if count == room:
                return hit
            rows[query, count], products[query, count] = hits.rows[hit], hits.products[hit]
            scores[query, count] = hits.scores[hit]
            counts[query] = count + 1
    return stop


@compiled
def find_kth(products: Any, counts: Any, enough: Any, k: Any, kth: Any) -> None:
    """Raise `kth` to the k-th best product of each query that has enough candidates."""
    best = np.empty(products.shape[1], np.float32)
    for query in range(len(counts)):
        count = counts[query]
        if count >= enough:
            best[:count] = products[query, :count]
            keep_best(best, count, k)
            kth[query] = max(kth[query], best[k - 1])


@compiled
def drop_below(rows: Any, products: Any, scores: Any, counts: Any, enough: Any, thresholds: Any) -> None:
    """Drop candidates below the threshold, of each query that has enough."""
    for query in range(len(counts)):
        if counts[query] >= enough:
            left = 0
            for place in range(counts[query]):
                if products[query, place] >= thresholds[query]:
                    rows[query, left], products[query, left] = rows[query, place], products[query, place]
                    scores[query, left] = scores[query, place]
                    left += 1
            counts[query] = left
