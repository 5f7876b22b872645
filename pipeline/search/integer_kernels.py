"""Kernels of dense search: a filter of products in int8 or int16, and the products that pass it in float32.

What the processor does. A register of AVX-512 holds 16 numbers of 32 bits. An fp32 instruction multiplies 16
numbers with 16 others and adds the products to 16 sums. Two instructions of VNNI do more in the same time:
`vpdpwssd` takes 32 int16 numbers on each side and adds to each of 16 int32 sums the products of two
neighbouring ones; `vpdpbusd` takes 64 int8 numbers on each side, and adds the products of four.
`pipeline.kernels.tiles` makes use of either: a tile is the products of 6 rows with
64 queries, whose 384 sums stay in registers until they are complete.

Rows as integers. In NumPy, where |x| is the length of a row x:

    factor = |x| / 32767  or  max(abs(x)) / 127
    whole = (x / factor).round()            # int16 or int8; x is about factor * whole
    distance = |x - factor * whole|         # how far rounding moved the row

Queries are rounded in the same way, in int16 to a length of up to 65,000. By the Cauchy-Schwarz inequality,
an int16 sum is then at most 32,767 * 65,000 and some rounding, which is below 2^31, and an int8 sum is at
most 255 * 127 times the number of dimensions: no sum overflows up to `LARGEST` dimensions. The instruction
for int8 needs one side without signs, so 128 is added to the rows' numbers, and what that adds to a sum, 128
times the sum of the query's numbers, is taken away again.

The filter. Integer sums are exact, so a product of integers is only as far from q·x as rounding moved the two
vectors, q to q' and x to x':

    |q·x - q'·x'| = |(q - q')·x + q'·(x - x')| <= |q - q'| |x| + |q'| |x - x'| <= |q'| slack

with slack = distance + max(|q - q'| / |q'|) |x|, one number for each row. A pair whose product plus |q'|
slack is below the query's threshold can be forgotten. In int8 that leaves some three times as many pairs as
have a product above the threshold. For those, the float32 product is computed at once, while the row is in
the processor's cache, and it decides. So the filter's precision has no part in what is found.

Looking at sums. Nearly no pair passes, and a matrix of all products would cost more time to write and read
than to compute. So the 384 sums of a tile are compared while they are in the first cache. `_passing` compares
64 sums of one row and returns 64 bits, one for each query that the row passes for. It is written in LLVM's
intermediate representation, a typed assembler: a vector of 64 numbers is one value there, an operation on it
is one line, and LLVM splits it into registers. Where the bits are zero, nothing else happens.

Order of work. The 64 queries of a panel are multiplied with `CHUNK` rows before the next panel is: the rows
stay in the second cache meanwhile, and are read from memory once for all queries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from pipeline.core.records import Float32, Float64, Int32, Int64
from pipeline.kernels.compiling import compiled
from pipeline.kernels.functions import larger
from pipeline.kernels.int8 import INT8_LIMIT, in_panels, row_factors
from pipeline.kernels.int16 import PANEL, ROW_LENGTH, pack_rows
from pipeline.kernels.tiles import INTEGER_WIDTH, TALL, int8_tile, int16_tile

CHUNK = 240  # rows multiplied with one panel after another
ROOM = CHUNK * PANEL  # hits that `find` needs room for, at least
OFFSET = 128  # added to the rows' int8
SHORTEST = 1e-15  # rows shorter than this become zeros: their squares may underflow
_WORD = ir.IntType(32)


class PackedQueries(NamedTuple):
    """Queries as integers, in the order in which a tile reads them; see `pack_rows`.

    A query is about `factors` times its integers. Queries that are shorter than `SHORTEST` or not finite are
    zeros, and so is what fills the last panel of 64 queries.

    Attributes:
        words: int32, flat: pairs of int16, or four int8.
        factors: float32 [columns].
        offsets: int32 [columns], what is subtracted from the sums.
        errors: float64 [columns], at least the distance of what the integers stand for to the query given.
        norms: float32 [columns], at least the length of either; infinity if zeros stand for something else.
        share: The largest error as a share of the norm.
    """

    words: Int32
    factors: Float32
    offsets: Int32
    errors: Float64
    norms: Float32
    share: float


class IntegerRows(NamedTuple):
    """Some rows as integers; a row is about `factors` times its integers.

    Attributes:
        words: int32, flat: pairs of int16, or four uint8; rows filled with zeros, and `TALL` rows of padding.
        factors: float32 [rows]; NaN for a row with NaN or infinity, which passes no filter.
        slacks: float32 [rows], see the module.
        halves: float32 [rows], half the squared length of each row for l2, else zeros.
        longest: At least the length of the longest row.
    """

    words: Int32
    factors: Float32
    slacks: Float32
    halves: Float32
    longest: float


class Hits(NamedTuple):
    """Room for hits, [n] each: the query's number, the row's, and their product in float32."""

    queries: Int32
    rows: Int64
    products: Float32

    @classmethod
    def empty(cls, room: int) -> Hits:
        """Room for so many hits."""
        return cls(np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.float32))


def pack_queries(queries: Float32, narrow: bool) -> PackedQueries:
    """Queries float32 [n, dimension] as int8 if `narrow`, else as int16."""
    n, dimension = queries.shape
    step = 4 if narrow else 2
    given = np.zeros((-(-n // PANEL) * PANEL, -(-dimension // step) * step), np.float32)
    given[:n, :dimension] = queries
    lengths = np.linalg.norm(given.astype(np.float64), axis=1)
    held = (lengths >= SHORTEST) & np.isfinite(lengths)
    filled = np.where(held[:, None], given, np.float32(0))
    words, factors = _pack_bytes(filled) if narrow else pack_rows(filled)
    panels = words.view(np.int8 if narrow else np.int16).reshape(-1, filled.shape[1] // step, PANEL, step)
    whole = panels.transpose(0, 2, 1, 3).reshape(filled.shape).astype(np.float64)
    errors = 1.0001 * np.linalg.norm(whole * factors[:, None].astype(np.float64) - given, axis=1)
    norms = np.where(held, 1.0001 * (lengths + errors), np.inf)
    offsets = (OFFSET * whole.sum(axis=1) if narrow else np.zeros(len(filled))).astype(np.int32)
    share = float((errors[held] / norms[held]).max(initial=0))
    return PackedQueries(words, factors, offsets, errors, norms.astype(np.float32), 1.0001 * share)


def _pack_bytes(matrix: Float32) -> tuple[Int32, Float32]:
    """As `pack_rows`, in int8: each number of 32 bits holds four neighbouring numbers of a row."""
    factors = row_factors(matrix)
    return in_panels(np.rint(matrix / factors[:, None]).astype(np.int8)), factors


def fixed(rows: Float32) -> Float32:
    """The rows, contiguous and read-only, whether they were or not: Numba compiles a kernel for each case."""
    view: Float32 = np.ascontiguousarray(rows).view()
    view.flags.writeable = False
    return view


def round_rows(rows: Float32, narrow: bool, l2: bool, query_error: float) -> IntegerRows:
    """Rows float32 [n, dimension], `fixed`, as int8 if `narrow`, else as int16.

    `query_error` is the `share` of the queries that they are multiplied with, and `l2` says whether for that
    metric.
    """
    n, dimension = rows.shape
    words = np.zeros((n + TALL) * -(-dimension // (4 if narrow else 2)), np.int32)
    factors, slacks, halves = np.empty((3, n), np.float32)
    whole = words.view(np.uint8 if narrow else np.int16)
    offset = OFFSET if narrow else 0
    longest = _round(
        rows, rows.view(np.int32), narrow, offset, l2, query_error, whole, factors, slacks, halves
    )
    return IntegerRows(words, factors, slacks, halves, 1.001 * longest)


def _rounded(
    rows: Any, bits: Any, narrow: Any, offset: Any, l2: Any, query_error: Any,
    whole: Any, factors: Any, slacks: Any, halves: Any,
) -> Any:  # fmt: skip
    """Set the last four of rows float32 [n, dimension], and return the largest length.

    `bits` is the same memory as int32. Without its sign, a float32 seen as an integer is the larger the
    larger the number is, and infinity and NaN are larger than all numbers.
    """
    n, dimension = rows.shape
    width = len(whole) // (n + TALL)
    longest = float32(0)
    for i in range(n):
        square, most = float32(0), int32(0)
        for j in range(dimension):
            square += rows[i, j] * rows[i, j]
            most = max(most, bits[i, j] & int32(0x7FFFFFFF))
        length = np.sqrt(square)
        row = whole[i * width : i * width + dimension]
        halves[i] = square * float32(0.5) if l2 else float32(0)
        if most >= int32(0x7F800000):
            row[:] = offset
            factors[i], slacks[i] = np.nan, float32(0)
            continue
        longest = max(longest, length)
        if length < float32(SHORTEST):
            row[:] = offset
            factors[i], slacks[i] = float32(0), float32(2 * SHORTEST)
            continue
        factor = length * float32(1 / ROW_LENGTH)
        if narrow:
            largest = float32(0)
            for j in range(dimension):
                largest = larger(largest, abs(rows[i, j]))
            factor = largest * float32(1 / INT8_LIMIT)
        scale, moved = float32(1) / factor, float32(0)
        for j in range(dimension):
            rounded = np.rint(rows[i, j] * scale)
            row[j] = int32(rounded) + int32(offset)
            off = rows[i, j] - rounded * factor
            moved += off * off
        factors[i] = factor
        slacks[i] = (
            float32(1.01) * (np.sqrt(moved) + float32(query_error) * length) + float32(2**-20) * length
        )
    return longest


@intrinsic
def _passing(
    typing: Any, sums: Any, at: Any, factor: Any, slack: Any, half: Any,
    factors: Any, offsets: Any, norms: Any, thresholds: Any, panel: Any,
) -> Any:  # fmt: skip
    """The queries of a panel that a row passes for, as 64 bits.

    In NumPy, with `part` for `[panel : panel + 64]`, and in float32: `(sums[at : at + 64] - offsets[part]) *
    factor * factors[part] + norms[part] * slack - half >= thresholds[part]`. A comparison with NaN is false.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        integers, floats = ir.VectorType(_WORD, PANEL), ir.VectorType(ir.FloatType(), PANEL)

        def load(array: int, start: Any, kind: Any) -> Any:
            data = make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.load(builder.bitcast(builder.gep(data, [start]), kind.as_pointer()), align=4)

        def repeat(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(floats, ir.Undefined), value, _WORD(0))
            lanes = ir.Constant(ir.VectorType(_WORD, PANEL), None)
            return builder.shuffle_vector(first, ir.Constant(floats, ir.Undefined), lanes)

        start = arguments[9]
        whole = builder.sub(load(0, arguments[1], integers), load(6, start, integers))
        value = builder.fmul(builder.sitofp(whole, floats), repeat(arguments[2]))
        value = builder.fmul(value, load(5, start, floats))
        more = builder.fmul(load(7, start, floats), repeat(arguments[3]))
        value = builder.fsub(builder.fadd(value, more), repeat(arguments[4]))
        passed = builder.fcmp_ordered(">=", value, load(8, start, floats))
        return builder.bitcast(passed, ir.IntType(PANEL))

    size, one = types.intp, types.float32
    return types.uint64(sums, size, one, one, one, factors, offsets, norms, thresholds, size), generate


@intrinsic
def _first_bit(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit set, of which there must be one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return types.int64(types.uint64), generate


@njit(forceinline=True, fastmath=True, nogil=True)
def _product(row: Any, query: Any) -> Any:
    """The product in float32, summed in any order."""
    total = float32(0)
    for j in range(len(row)):
        total += row[j] * query[j]
    return total


def _found(
    rows: Any, integers: Any, first_row: Any, narrow: Any, queries: Any, packed: Any,
    thresholds: Any, lowest: Any, state: Any, hits: Any,
) -> Any:  # fmt: skip
    """Find the pairs that pass the filter and whose product reaches the threshold, while there is room.

    Args:
        rows: float32 [n, dimension], `fixed`.
        integers: The same as `IntegerRows`.
        first_row: The number of the first row.
        narrow: Whether the integers are int8.
        queries: float32 [queries, dimension].
        packed: The same as `PackedQueries`.
        thresholds: float32 [queries], the least product of a hit.
        lowest: float32 [columns], the same for the filter; NaN lets nothing pass.
        state: int64 [3], zeros at first, updated: the row and the query to go on with, and how many pairs
            have passed the filter. If all is done, the first is the number of rows.
        hits: `Hits`, filled from the start.

    Returns:
        The number of hits.
    """
    n, columns, words = len(rows), len(packed.factors), integers.words
    width = len(words) // (n + TALL)
    sums, passed = np.empty(TALL * PANEL, np.int32), np.empty(ROOM, np.int64)
    count = 0
    while state[0] < n:
        end = min(state[0] + CHUNK, n)
        while state[1] < columns:
            if count + ROOM > len(hits.queries):
                return count
            panel, passes = state[1], 0
            for i in range(state[0], end, TALL):
                for j in range(0, PANEL, INTEGER_WIDTH):
                    at = panel * width + j
                    if narrow:
                        int8_tile(sums, j, PANEL, words, i * width, width, packed.words, at, PANEL, width)
                    else:
                        int16_tile(sums, j, PANEL, words, i * width, width, packed.words, at, PANEL, width)
                for row in range(i, min(i + TALL, end)):
                    bits = _passing(
                        sums, (row - i) * PANEL, integers.factors[row], integers.slacks[row],
                        integers.halves[row], packed.factors, packed.offsets, packed.norms, lowest, panel,
                    )  # fmt: skip
                    while bits:
                        passed[passes] = row * PANEL + _first_bit(bits)
                        bits &= bits - np.uint64(1)
                        passes += 1
            for pair in range(passes):
                row, query = passed[pair] // PANEL, panel + passed[pair] % PANEL
                product = _product(rows[row], queries[query]) - integers.halves[row]
                if product >= thresholds[query]:
                    hits.queries[count], hits.rows[count] = query, first_row + row
                    hits.products[count] = product
                    count += 1
            state[2] += passes
            state[1] += PANEL
        state[0], state[1] = end, 0
    return count


def _multiplied(integers: Any, packed: Any, out: Any) -> None:
    """Set out float32 [rows, queries] to all products of int16; the arguments are as of `_found`."""
    n, columns = out.shape
    words = integers.words
    width = len(words) // (n + TALL)
    sums = np.empty(TALL * PANEL, np.int32)
    for start in range(0, n, CHUNK):
        end = min(start + CHUNK, n)
        for panel in range(0, columns, PANEL):
            for i in range(start, end, TALL):
                for j in range(0, PANEL, INTEGER_WIDTH):
                    at = panel * width + j
                    int16_tile(sums, j, PANEL, words, i * width, width, packed.words, at, PANEL, width)
                for row in range(i, min(i + TALL, end)):
                    for j in range(min(PANEL, columns - panel)):
                        product = float32(sums[(row - i) * PANEL + j]) * integers.factors[row]
                        out[row, panel + j] = product * packed.factors[panel + j]


_round: Any = compiled(_rounded)
find: Any = compiled(_found, strict=True)
multiply: Any = compiled(_multiplied, strict=True)
