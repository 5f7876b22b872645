"""Kernels of the native backend: an encoder whose matrix products are computed in int16.

Speed: processors with VNNI have an instruction, `vpdpwssd`, that takes two registers of int16 pairs,
multiplies them number by number, adds the two products of each pair, and adds that to a register of int32
sums. It does twice as many multiplications as an fp32 instruction on registers of the same size.

Scaling: numbers become int16 row by row, each row with a factor of its own, and a sum times both rows'
factors is the product again. No sum may pass an int32, and by Cauchy and Schwarz |x . w| <= |x| |w|. So rows
of activations are scaled to the length 32,767 and rows of weights to at most 65,000: the product of the two,
and what rounding adds to it, is below 2^31. A part of a sum is bounded in the same way. The root mean square
of a row of 768 activations then is 32,767 / sqrt(768) = 1,182, so a number of that size has 10 bits before
the point; bfloat16 has 8 for any number.

Finer: rerankers' scores are compared with each other, and need more than that. `fine_linear` adds up only
64 products in int32, and these sums in fp32. The bound then holds for each 64 numbers of two rows, so both
rows are scaled by more, up to where their largest number fills an int16. What is lost by rounding a text's
first token, whose last state is all that a score is made of, is computed as a further row.

No padding: the tokens of all texts lie one after another, in arrays [tokens, width]. Integer sums are exact,
whatever their order, and everything else is computed token by token or text by text, in one order. So a
text's vector is the same, bit by bit, whichever texts are computed beside it.

Layers: one forward pass computes all networks. It reads from a `Layout` how a network's layers are made, and
leaves out what they have not; `pipeline.encoders.native.architectures` says it of each architecture. Where a
width is no multiple of what the tiles need, arrays have more columns. These hold zeros, which change no sum,
and everything that counts the numbers of a row leaves them out.

Compilation: Numba translates the functions below to LLVM's intermediate representation, a typed assembler
without real registers, and LLVM makes machine code of it for the processor it runs on. Plain loops over
floats are enough for that: LLVM turns them into vector instructions. It has to see that no index is negative,
as in `range(n)`, so a loop over a part of an array takes a slice first. LLVM does not find the best order of
a matrix product, so `make_tile` writes that part in the intermediate representation itself.

This file is long because Numba keeps the machine code on disk and looks at the time stamp of one file only,
the one that holds the function: a kernel imported from elsewhere could change without being compiled again.
`compiled` can name other files to look at; `pipeline.search.maxsim_kernels` uses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import float32, int32, njit, types
from numba.core.caching import FunctionCache
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from pipeline.core.records import Array, Float32, Int32, Int64

ROW_LENGTH = 32_767  # Euclidean length of a row of activations, so each of its numbers is an int16
WEIGHT_LENGTH = 65_000  # largest length of a row of weights; the product of both is below 2^31
PART = 64  # numbers of a row that are added up in int32 by `fine_linear`
PART_LENGTH = 46_300  # largest length of a part of a row there; its square is below 2^31
RESIDUE = (
    11_000  # times what rounding lost, at most 1/2, is an int16; 64 of them are shorter than PART_LENGTH
)
PANEL = 64  # rows of weights stored side by side
BLOCK = 96  # tokens computed together in a layer: their activations fit into the processor's cache

_CPU = llvm.get_host_cpu_features()
LANES = 16 if _CPU.get("avx512f") else 8  # numbers of 32 bits in a register
TALL = 6  # rows of a tile
_WIDE = 4 if _CPU.get("avx512f") else 2  # registers in a row of an int16 tile
_WORD, _FLOAT, _SIZE = ir.IntType(32), ir.FloatType(), ir.IntType(64)
_OPTIONS = {"fastmath": True, "error_model": "numpy", "nogil": True}


class _TolerantCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache on disk, which is ignored where it is damaged or the disk is full.

    Args:
        function: The function, whose file Numba looks at.
        sources: Other files, whose time stamps and sizes count as well.
    """

    def __init__(self, function: Callable[..., Any], sources: tuple[str, ...]) -> None:
        super().__init__(function)
        stamps = [(status.st_mtime, status.st_size) for status in map(os.stat, sources)]
        self._cache_file._source_stamp = (self._cache_file._source_stamp, *stamps)

    def load_overload(self, *which: Any) -> Any:
        try:
            return super().load_overload(*which)
        except Exception:  # half a file may raise anything
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *made: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(*made)


def compiled(function: Callable[..., Any], *sources: str, strict: bool = False) -> Any:
    """Compile when first called, with a cache on disk if Numba finds a folder that it can write to.

    Args:
        function: The function.
        sources: Other files of which it uses code.
        strict: Whether sums are computed in the order in which they are written.
    """
    made = njit(**{**_OPTIONS, "fastmath": not strict})(function)
    with contextlib.suppress(RuntimeError):
        made._cache = _TolerantCache(function, sources)
    return made


_inlined = njit(inline="always", **_OPTIONS)
_part_of_forward = njit(forceinline=True, **_OPTIONS)
"""Compiles into `forward` itself, never as a call. A call would reach one compilation of the function from
fresh code and another from code loaded from disk, and the two may differ in last bits."""


def _add_pair_products(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Multiply pairs of int16 and add both products to the sums; LLVM finds `vpdpwssd` in this pattern."""
    pairs, wide = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(_WORD, 2 * LANES)
    product = builder.mul(*(builder.sext(builder.bitcast(side, pairs), wide) for side in (left, right)))
    for start in (0, 1):
        lanes = ir.Constant(ir.VectorType(_WORD, LANES), list(range(start, 2 * LANES, 2)))
        half = builder.shuffle_vector(product, ir.Constant(wide, ir.Undefined), lanes)
        total = builder.add(total, half)
    return total


def add_product(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Multiply numbers and add the products to the sums, in one instruction where there is one."""
    return builder.fadd(total, builder.fmul(left, right, flags=["contract"]), flags=["contract"])


def make_tile(element: Any, wide: int, multiply_add: Callable[..., Any]) -> Any:
    """Make a function that computes one tile of a matrix product: 6 rows by `wide` registers.

    `tile(c, c_at, c_row, a, a_at, a_row, b, b_at, b_row, count)` sets c[i, j] to the sum over k < count of
    a[i, k] * b[k, j]; `_at` is the offset of an array's part and `_row` the distance between its rows.

    For each k it loads `wide` registers of b, and for each of 6 rows copies a[i, k] into all lanes of a
    register and multiplies that with them. All sums stay in registers through the whole loop, so memory is
    only read, and each number read is used several times: 24 sums of AVX-512's 32 registers, 12 of AVX2's 16.

    `generate` writes this loop as LLVM instructions: `gep` computes an address, `phi` is a variable of the
    loop, with its first value and that of each following pass, and `shuffle_vector` with zeros copies the
    first lane to all. Types are not checked and bounds are not either.
    """
    vector = ir.VectorType(element, LANES)
    undefined, zero = ir.Constant(vector, ir.Undefined), ir.Constant(vector, None)
    first = ir.Constant(ir.VectorType(_WORD, LANES), None)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def part(array: int) -> Any:
            data = make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.gep(builder.bitcast(data, element.as_pointer()), [arguments[array + 1]])

        def several(pointer: Any, at: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())

        (c, a, b), (c_row, a_row, b_row) = map(part, (0, 3, 6)), (arguments[i] for i in (2, 5, 8))
        before, loop, after = (builder.block, *map(builder.append_basic_block, ("loop", "after")))
        builder.branch(loop)
        builder.position_at_end(loop)
        k, sums = builder.phi(_SIZE), [builder.phi(vector) for _ in range(TALL * wide)]
        row = builder.mul(k, b_row)
        right = [builder.load(several(b, builder.add(row, _SIZE(j * LANES))), align=4) for j in range(wide)]
        added = []
        for i in range(TALL):
            one = builder.load(builder.gep(a, [builder.add(builder.mul(_SIZE(i), a_row), k)]))
            left = builder.shuffle_vector(builder.insert_element(undefined, one, _WORD(0)), undefined, first)
            added += [multiply_add(builder, sums[i * wide + j], left, right[j]) for j in range(wide)]
        following = builder.add(k, _SIZE(1))
        for value, start, then in [
            (k, _SIZE(0), following),
            *((total, zero, more) for total, more in zip(sums, added, strict=True)),
        ]:
            value.add_incoming(start, before)
            value.add_incoming(then, loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[9]), loop, after)
        builder.position_at_end(after)
        for number, total in enumerate(added):
            i, j = divmod(number, wide)
            at = builder.add(builder.mul(_SIZE(i), c_row), _SIZE(j * LANES))
            builder.store(total, several(c, at), align=4)
        return context.get_dummy_value()

    @intrinsic
    def tile(
        typing: Any, c: Any, c_at: Any, c_row: Any, a: Any, a_at: Any, a_row: Any,
        b: Any, b_at: Any, b_row: Any, count: Any,
    ) -> Any:  # fmt: skip
        size = types.intp
        return types.void(c, size, size, a, size, size, b, size, size, size), generate

    return tile


int16_tile = make_tile(_WORD, _WIDE, _add_pair_products)
INT16_WIDTH = _WIDE * LANES
double_tile = make_tile(ir.DoubleType(), 1, add_product)
DOUBLE_WIDTH = LANES
_float_tile = make_tile(_FLOAT, 2, add_product)
_FLOAT_WIDTH = 2 * LANES


@intrinsic
def larger(typing: Any, a: Any, b: Any) -> Any:
    """The larger of two floats, in a form that LLVM vectorizes in loops, unlike Python's `max`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        more = builder.fcmp_ordered(">", *arguments, flags=["fast"])
        return builder.select(more, *arguments, flags=["fast"])

    return types.float32(types.float32, types.float32), generate


@intrinsic
def _float_of_bits(typing: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _FLOAT)

    return types.float32(types.int32), generate


@_inlined
def _exp(x: Any) -> Any:
    """The exponential of x <= 0, with a relative error below 3e-7 - 1e-7 x.

    e^x = 2^(x log2 e) = 2^n 2^f with a whole number n and |f| <= 1/2. The bits of n + 127, moved to the
    place of a float32's exponent, are the float 2^n; 2^f is the first terms of its Taylor series. No branch
    and no table, so LLVM computes as many at once as a register has lanes. Below -87, 2^n would have no such
    bits.
    """
    power = larger(x, float32(-87.0)) * float32(1.4426950408889634)
    whole = np.floor(power + float32(0.5))
    f = power - whole
    series = float32(1.5403530393381610e-4)
    series = series * f + float32(1.3333558146428443e-3)
    series = series * f + float32(9.6181291076284772e-3)
    series = series * f + float32(5.5504108664821580e-2)
    series = series * f + float32(2.4022650695910072e-1)
    series = series * f + float32(6.9314718055994531e-1)
    series = series * f + float32(1.0)
    return series * _float_of_bits((int32(whole) + int32(127)) << int32(23))


@_inlined
def _gelu(x: Any) -> Any:
    """GELU: x times the normal distribution function at x.

    With `tail` = P(X > |x|) it is x - x tail for x >= 0 and x tail for x < 0; the last line is both at once,
    without a branch. The tail is erfc(|x| / sqrt 2) / 2 to 1e-7 (Abramowitz and Stegun, 7.1.26).
    """
    size = abs(x)
    z = size * float32(0.7071067811865476)
    t = float32(1) / (float32(1) + float32(0.3275911) * z)
    series = float32(1.061405429) * t - float32(1.453152027)
    series = series * t + float32(1.421413741)
    series = series * t - float32(0.284496736)
    series = series * t + float32(0.254829592)
    tail = float32(0.5) * series * t * _exp(-z * z)
    return float32(0.5) * (x + size) - size * tail


class Linear(NamedTuple):
    """One kind of linear layer with n outputs and k inputs, of all layers of a network; see `pack_rows`."""

    pairs: Any  # int32 [layers, n * k / 2]
    factors: Any  # float32 [layers, n]
    bias: Any  # float32 [layers, n]


class FineLinear(NamedTuple):
    """A `Linear` for `fine_linear`: of numbers x, (x - centre) * scale is rounded and multiplied.

    Scales bring numbers that are often large, and the weights that they are multiplied with, to a like size.
    The weights were divided by the scales, and what the centres take away was added to the bias.
    """

    pairs: Any
    factors: Any
    bias: Any
    centre: Any  # float32 [layers, k]
    scale: Any  # float32 [layers, k]


class LayerNorm(NamedTuple):
    """Layer normalizations of all layers, float32 [layers, width], or of the embeddings, [width]."""

    weight: Any
    bias: Any


class Weights(NamedTuple):
    """A network's weights; the embeddings are float32 [vocabulary, width] and [positions, width]."""

    words: Any  # token embeddings
    positions: Any  # position embeddings plus that of token type 0; for pairs also plus those of other types
    embedded: LayerNorm  # of the sum of both
    query: Linear  # divided by the square root of a head's width
    key_value: Linear  # keys and below them values
    mixed: Linear  # output projection of attention
    attended: LayerNorm  # of its output plus the attention's input; with `Parts.before`, of that input alone
    up: Linear  # first feed-forward layer; with `Parts.gate` what is activated, and below it the other half
    down: Linear  # second feed-forward layer
    output: LayerNorm  # of its output plus the input of `up`; with `Parts.before`, of that input alone


GELU, SILU = 0, 1  # activations
EVERYWHERE = 1 << 30  # the window of a layer whose tokens all see each other


class Layout(NamedTuple):
    """Sizes of a network's layers."""

    width: int  # numbers of a hidden state, without the columns that were added
    heads: int  # of attention
    size: int  # columns of a head
    epsilon: Any  # float32, of every normalization


class Parts(NamedTuple):
    """How the layers of a network differ from BERT's; a field is empty or negative where they do not.

    BERT and its kin have None in place of it, which is a type of its own for Numba. What the condition `parts
    is None` makes unreachable is left out: `forward` is compiled for them without code that they do not need.
    """

    before: bool  # normalization comes before attention and feed-forward, and not after their sum with input
    normalized: Any  # int64 [layers]: whether the input of attention is normalized, with `before`
    last: LayerNorm  # of the last hidden states, with `before`; [1, width]
    gate: int  # GELU or SILU: so activated, one half of `up` is multiplied by the other; -1 is plain GELU
    windows: Any  # int64 [layers]: the largest distance of two tokens that see each other
    turns: Any  # float32 [tables, positions, size of a head]: cosines, then sines, for `rotate`
    tables: Any  # int64 [layers]: which table of `turns` gives a layer the angles of positions
    biases: Any  # float32 [heads, 2 positions - 1]: added to scores, by how far a key is ahead


class Workspace(NamedTuple):
    """Memory for a linear layer on BLOCK rows: int16 rows, each row's factor, int32 sums."""

    rows: Any
    factors: Any
    sums: Any


def pack_rows(matrix: Float32, fine: bool = False) -> tuple[Int32, Float32]:
    """Weights float [n, k] as int16, and the factor that each row was divided by, float32 [n].

    With `fine` they are scaled for `fine_linear`, and k is a multiple of PART.

    The int16 are in the order in which a tile reads them. A panel is 64 rows of the matrix, and the two
    neighbouring numbers of a row that one lane of `vpdpwssd` multiplies are a pair, seen as one int32. A
    panel holds the first pair of its 64 rows, then their second pairs, and so on, so a tile, which goes
    through k and needs a pair of each row, reads memory in one stretch: int32 [n / 64, k / 2, 64], laid
    flat.
    """
    n, k = matrix.shape
    largest = np.abs(matrix).max(axis=1)
    if fine:
        length = np.linalg.norm(matrix.reshape(n, -1, PART), axis=2).max(axis=1) / PART_LENGTH
    else:
        length = np.linalg.norm(matrix, axis=1) / WEIGHT_LENGTH
    factors = np.maximum(np.maximum(length, largest / 32_767), np.float32(1e-30))
    whole = np.rint(matrix / factors[:, None]).astype(np.int16)
    panels = whole.reshape(n // PANEL, PANEL, k // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(panels).view(np.int32).reshape(-1), factors.astype(np.float32)


@_part_of_forward
def round_rows(x: Float32, space: Workspace) -> None:
    """Write x float32 [n, k] to `space.rows` as int16, each row scaled to ROW_LENGTH and rounded."""
    n, k = x.shape
    for i in range(n):
        square = float32(1e-30)
        for j in range(k):
            square += x[i, j] * x[i, j]
        factor = float32(ROW_LENGTH) / np.sqrt(square)
        space.factors[i] = float32(1) / factor
        row = space.rows[i * k : (i + 1) * k]
        for j in range(k):
            value = x[i, j] * factor
            row[j] = int32(value + (float32(0.5) if value >= float32(0) else float32(-0.5)))


@_part_of_forward
def round_finely(given: Float32, centre: Float32, scale: Float32, row: Array, residue: Array) -> Any:
    """Write x = (given - centre) * scale to `row`, scaled as far as `fine_linear` allows; return the factor.

    `given`, `centre` and `scale` are float32 [k], `row` is int16 [k]. What rounding lost goes to `residue`,
    times RESIDUE, unless that is empty.
    """
    x = np.empty(len(given), np.float32)
    for j in range(len(given)):
        x[j] = (given[j] - centre[j]) * scale[j]
    square, largest = float32(1e-30), float32(1e-30)
    for start in range(0, len(x), PART):
        part, total = x[start : start + PART], float32(0)
        for j in range(PART):
            total += part[j] * part[j]
            largest = larger(largest, abs(part[j]))
        square = larger(square, total)
    by_length, by_size = float32(PART_LENGTH) / np.sqrt(square), float32(32_767) / largest
    factor = by_length if by_length < by_size else by_size
    for j in range(len(x)):
        value = x[j] * factor
        row[j] = int32(value + (float32(0.5) if value >= float32(0) else float32(-0.5)))
    for j in range(len(residue)):
        residue[j] = int32((x[j] * factor - float32(row[j])) * float32(RESIDUE))
    return factor


@_part_of_forward
def fine_linear(
    x: Float32, layers: FineLinear, layer: int, gelu: bool, space: Workspace, out: Float32,
    firsts: Int64, start: int,
) -> None:  # fmt: skip
    """As `linear`, with less rounding: for weights of `pack_rows` with `fine`.

    The rows of x are start, start + 1 … of a larger array. `firsts` are rows of that array, ascending, of
    which the residues are computed as well. These are further rows below x, so `space` holds 2 BLOCK rows.
    """
    (n, k), m = x.shape, out.shape[1]
    low, high = np.searchsorted(firsts, start), np.searchsorted(firsts, start + n)
    count, pairs, extra = n + high - low, k // 2, n
    for i in range(n):
        row = space.rows[i * k : (i + 1) * k]
        is_first = extra < count and firsts[low + extra - n] == start + i
        residue = space.rows[extra * k : extra * k + (k if is_first else 0)]
        factor = round_finely(x[i], layers.centre[layer], layers.scale[layer], row, residue)
        space.factors[i] = float32(1) / factor
        extra += is_first
    rows, weights = space.rows.view(np.int32), layers.pairs[layer]
    totals = np.empty((count + TALL) * PANEL, np.float32)
    for panel in range(0, m, PANEL):
        for i in range(0, count, TALL):
            total = totals[i * PANEL : (i + TALL) * PANEL]
            total[:] = 0
            for part in range(0, pairs, PART // 2):
                for j in range(0, PANEL, INT16_WIDTH):
                    int16_tile(
                        space.sums, j, PANEL, rows, i * pairs + part, pairs,
                        weights, panel * pairs + part * PANEL + j, PANEL, PART // 2,
                    )  # fmt: skip
                for j in range(TALL * PANEL):
                    total[j] += float32(space.sums[j])
        factors = layers.factors[layer, panel : panel + PANEL]
        bias = layers.bias[layer, panel : panel + PANEL]
        for i in range(n, count):
            row = firsts[low + i - n] - start
            total, more = totals[row * PANEL : (row + 1) * PANEL], totals[i * PANEL : (i + 1) * PANEL]
            for j in range(PANEL):
                total[j] += more[j] * float32(1 / RESIDUE)
        for i in range(n):
            total, factor = totals[i * PANEL : (i + 1) * PANEL], space.factors[i]
            made = out[i, panel : panel + PANEL]
            if gelu:
                for j in range(PANEL):
                    made[j] = _gelu(total[j] * (factor * factors[j]) + bias[j])
            else:
                for j in range(PANEL):
                    made[j] = total[j] * (factor * factors[j]) + bias[j]


@_part_of_forward
def linear(x: Float32, layers: Linear, layer: int, gelu: bool, space: Workspace, out: Float32) -> None:
    """Set out [n, m] to x [n, k] times a layer's weights, plus its bias; n is at most BLOCK.

    All tiles of a panel are computed before the next panel, which is read from memory once for all rows. The
    last tile may have rows beyond n: they hold what an earlier block left, and their sums are not read.
    """
    round_rows(x, space)
    n, pairs = x.shape[0], x.shape[1] // 2
    m = out.shape[1]
    rows, weights = space.rows.view(np.int32), layers.pairs[layer]
    factors, bias = layers.factors[layer], layers.bias[layer]
    for panel in range(0, m, PANEL):
        for i in range(0, n, TALL):
            for j in range(0, PANEL, INT16_WIDTH):
                int16_tile(
                    space.sums, i * m + panel + j, m, rows, i * pairs, pairs,
                    weights, panel * pairs + j, PANEL, pairs,
                )  # fmt: skip
    for i in range(n):
        sums, factor = space.sums[i * m : (i + 1) * m], space.factors[i]
        if gelu:
            for j in range(m):
                out[i, j] = _gelu(float32(sums[j]) * (factor * factors[j]) + bias[j])
        else:
            for j in range(m):
                out[i, j] = float32(sums[j]) * (factor * factors[j]) + bias[j]


@_part_of_forward
def multiply(
    x: Float32, layers: Linear | FineLinear, layer: int, gelu: bool, space: Workspace, out: Float32,
    firsts: Int64, start: int, fine: bool | None,
) -> None:  # fmt: skip
    """One linear layer, by `linear` if `fine` is None, else by `fine_linear`."""
    if fine is None:
        linear(x, layers, layer, gelu, space, out)
    else:
        fine_linear(x, layers, layer, gelu, space, out, firsts, start)


@_part_of_forward
def copy_rows(rows: Float32, numbers: Int64, out: Float32) -> None:
    """Set out [n, width] to rows[numbers]; `out` may be `rows` itself if numbers[i] >= i."""
    for i in range(len(numbers)):
        for j in range(rows.shape[1]):
            out[i, j] = rows[numbers[i], j]


@_part_of_forward
def add(x: Float32, more: Float32) -> None:
    """Add `more` to x [n, width] in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += more[i, j]


@_inlined
def _normalize_row(
    x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32
) -> None:
    total = float32(0)
    for j in range(width):
        total += x[j]
    mean, square = total / float32(width), float32(0)
    for j in range(width):
        out[j] = x[j] - mean
        square += out[j] * out[j]
    factor = float32(1) / np.sqrt(square / float32(width) + epsilon)
    for j in range(width):
        out[j] = out[j] * factor * weight[j] + bias[j]


@_part_of_forward
def normalize(x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32) -> None:
    """Set `out` to x [n, columns] with the first `width` numbers of each row normalized; it may be x."""
    for i in range(x.shape[0]):
        _normalize_row(x[i], weight, bias, width, epsilon, out[i])


@_part_of_forward
def add_and_normalize(
    x: Float32, more: Float32, weight: Float32, bias: Float32, width: int, epsilon: float
) -> None:
    """Add `more` to x in place, then normalize it; see `normalize`."""
    for i in range(x.shape[0]):
        row = x[i]
        for j in range(width):
            row[j] += more[i, j]
        _normalize_row(row, weight, bias, width, epsilon, row)


@_part_of_forward
def gate(made: Float32, activation: int, out: Float32) -> None:
    """Set out [n, inner] to the left half of `made` [n, 2 inner], activated, times its right half.

    SiLU is x / (1 + e^-x); with e^-|x|, which `_exp` gives, that is x / (1 + e) or x e / (1 + e).
    """
    inner = out.shape[1]
    for i in range(out.shape[0]):
        left, right = made[i, :inner], made[i, inner:]
        if activation == GELU:
            for j in range(inner):
                out[i, j] = _gelu(left[j]) * right[j]
        else:
            for j in range(inner):
                small = _exp(-abs(left[j]))
                share = (float32(1) if left[j] >= float32(0) else small) / (float32(1) + small)
                out[i, j] = left[j] * share * right[j]


@_part_of_forward
def rotate(x: Float32, places: Int64, turns: Float32, heads: int, size: int) -> None:
    """Turn the heads of x [n, columns] in place, by angles of each row's place in its text (RoPE).

    Numbers j and j + half of a head are a point in the plane, turned by the angle number j of the place: so
    the product of a query and a key depends on how far apart they are, and not on where.

    Args:
        x: float32, with heads of `size` columns, one beside the other.
        places: int64 [n].
        turns: float32 [positions, width of a head]: cosines of the angles, then their sines.
        heads: Number of heads.
        size: Columns of a head.
    """
    half = turns.shape[1] // 2
    for i in range(x.shape[0]):
        cosines, sines = turns[places[i], :half], turns[places[i], half:]
        for head in range(0, heads * size, size):
            left, right = x[i, head : head + half], x[i, head + half : head + 2 * half]
            for j in range(half):
                across, up = left[j], right[j]
                left[j] = across * cosines[j] - up * sines[j]
                right[j] = up * cosines[j] + across * sines[j]


@_inlined
def _softmax(scores: Float32) -> None:
    """Softmax in place; the largest score is subtracted first, so `_exp` is given x <= 0."""
    most, total = scores[0], float32(0)
    for j in range(len(scores)):
        most = larger(most, scores[j])
    for j in range(len(scores)):
        scores[j] = _exp(scores[j] - most)
        total += scores[j]
    for j in range(len(scores)):
        scores[j] /= total


@_part_of_forward
def attend(
    query: Float32, starts: Int64, key_value: Float32, texts: Int64, heads: int, size: int, window: int,
    biases: Any, out: Float32,
) -> None:  # fmt: skip
    """Attention within each text, in fp32, for one text and one head at a time.

    A head's keys are first copied to [size, tokens], transposed, so that a tile multiplies a query with the
    keys of neighbouring tokens, one per lane. Six queries' scores are computed together, with the keys that
    at least one of them sees, become shares by softmax, and are multiplied with the values, which are one per
    lane as they lie. Keys that one of the six does not see have the share 0. Widths are rounded up to whole
    tiles: what is computed beyond a text's tokens is never read. A tile may also write rows below a text's
    last one; those are the next text's, which are written later, or the 6 spare ones at the end.

    Args:
        query: float32 [n + 6, columns]; the queries of text t are the rows `starts[t]` to `starts[t + 1]`,
            and the first of them is the text's first token.
        starts: int64 [texts + 1].
        key_value: float32 [tokens, 2 columns], keys first.
        texts: int64 [texts + 1], the first row of each text in `key_value`, and the end.
        heads: Number of heads, one beside the other.
        size: Columns of a head.
        window: The largest distance of a key that a query sees.
        biases: See `Parts`.
        out: float32 [n + 6, columns].
    """
    width, most = query.shape[1], 0
    for text in range(len(texts) - 1):
        most = max(most, texts[text + 1] - texts[text])
    most = -(-most // _FLOAT_WIDTH) * _FLOAT_WIDTH
    keys, shares = np.empty(size * most + _FLOAT_WIDTH, np.float32), np.empty(TALL * most, np.float32)
    for text in range(len(texts) - 1):
        start, length = texts[text], texts[text + 1] - texts[text]
        wide = -(-length // _FLOAT_WIDTH) * _FLOAT_WIDTH
        for head in range(heads):
            column = head * size
            for k in range(size):
                for j in range(length):
                    keys[k * wide + j] = key_value[start + j, column + k]
            for i in range(starts[text], starts[text + 1], TALL):
                place, rows = i - starts[text], min(TALL, starts[text + 1] - i)
                low, high = max(place - window, 0), min(place + rows + window, length)
                seen = high - low
                for j in range(0, seen, _FLOAT_WIDTH):
                    _float_tile(shares, j, wide, query, i * width + column, width, keys, low + j, wide, size)
                for row in range(rows):
                    share = shares[row * wide : row * wide + seen]
                    if biases is not None and len(biases):
                        own = biases[head, biases.shape[1] // 2 - (place + row) + low :]
                        for j in range(seen):
                            share[j] += own[j]
                    first = max(place + row - window, 0) - low
                    beyond = share[min(place + row + window + 1, length) - low :]
                    _softmax(share[first : seen - len(beyond)])
                    for j in range(first):
                        share[j] = float32(0)
                    for j in range(len(beyond)):
                        beyond[j] = float32(0)
                for j in range(0, size, _FLOAT_WIDTH):
                    value = (start + low) * 2 * width + width + column + j
                    _float_tile(
                        out, i * width + column + j, width, shares, 0, wide, key_value, value, 2 * width, seen
                    )


@compiled
def forward(
    ids: Int64, positions: Int64, texts: Int64, weights: Weights, layout: Layout, parts: Any,
    only_first: bool, fine: bool | None,
) -> Float32:  # fmt: skip
    """The last hidden state of some texts' tokens.

    Args:
        ids: int64 [tokens], the token ids of all texts, one text after another.
        positions: int64 [tokens], each token's row of the position embeddings.
        texts: int64 [texts + 1], the first token of each text, and the end.
        weights: The network's weights.
        layout: Sizes of its layers.
        parts: `Parts`, or None.
        only_first: Whether the last layer computes the first token of each text alone (see
            `encoders.torch.first_token`).
        fine: Whether linear layers are computed by `fine_linear`: True, or None for no. The two have
            different types, so Numba compiles them apart, and leaves out the other's code.

    Returns:
        float32 [tokens, columns], or [texts, columns].
    """
    tokens, width, epsilon = len(ids), layout.width, layout.epsilon
    heads, size = layout.heads, layout.size
    layers, columns = weights.down.factors.shape
    both = weights.key_value.factors.shape[1]
    made_up = weights.up.factors.shape[1]
    x = np.empty((tokens, columns), np.float32)
    position_rows = np.empty((tokens, columns), np.float32)
    copy_rows(weights.words, ids, x)
    copy_rows(weights.positions, positions, position_rows)
    add_and_normalize(x, position_rows, weights.embedded.weight, weights.embedded.bias, width, epsilon)
    query = np.zeros((tokens + TALL, both // 2), np.float32)
    attended = np.zeros((tokens + TALL, both // 2), np.float32)
    key_value = np.empty((tokens, both), np.float32)
    widest = max(made_up, both, columns)
    most = BLOCK if fine is None else 2 * BLOCK
    space = Workspace(
        np.zeros(most * widest, np.int16), np.empty(most, np.float32), np.empty(most * widest, np.int32)
    )
    up_rows, added_rows = np.empty((BLOCK, made_up), np.float32), np.empty((BLOCK, columns), np.float32)
    starts, queries, firsts = texts, tokens, texts[:-1]
    if parts is not None:
        gated_rows = np.empty((BLOCK, made_up // 2), np.float32)
        normal = np.zeros((tokens if parts.before else 0, columns), np.float32)
        places = np.empty(tokens, np.int64)
        for text in range(len(texts) - 1):
            for token in range(texts[text], texts[text + 1]):
                places[token] = token - texts[text]
    for layer in range(layers):
        norm, bias = weights.attended.weight[layer], weights.attended.bias[layer]
        given = x
        if parts is not None and parts.before:
            given = normal
            if parts.normalized[layer] == 1:
                normalize(x, norm, bias, width, epsilon, normal)
            else:
                normal[:] = x
        for start in range(0, tokens, BLOCK):
            end = min(start + BLOCK, tokens)
            both_rows = key_value[start:end]
            multiply(given[start:end], weights.key_value, layer, False, space, both_rows, firsts, start, fine)
            if parts is not None and len(parts.turns):
                turns = parts.turns[parts.tables[layer]]
                rotate(key_value[start:end], places[start:end], turns, heads, size)
        if only_first and layer == layers - 1:
            queries = len(texts) - 1
            starts = np.arange(queries + 1)
            firsts = starts[:-1]
            copy_rows(x, texts[:-1], x)
            if parts is not None:
                places[:queries] = 0
            if parts is not None and parts.before:
                copy_rows(normal, texts[:-1], normal)
        for start in range(0, queries, BLOCK):
            end = min(start + BLOCK, queries)
            query_rows = query[start:end]
            multiply(given[start:end], weights.query, layer, False, space, query_rows, firsts, start, fine)
            if parts is not None and len(parts.turns):
                turns = parts.turns[parts.tables[layer]]
                rotate(query[start:end], places[start:end], turns, heads, size)
        if parts is None:
            attend(query, starts, key_value, texts, heads, size, EVERYWHERE, None, attended)
        else:
            window = parts.windows[layer]
            attend(query, starts, key_value, texts, heads, size, window, parts.biases, attended)
        feed_norm, feed_bias = weights.output.weight[layer], weights.output.bias[layer]
        for start in range(0, queries, BLOCK):
            end = min(start + BLOCK, queries)
            n = end - start
            rows, up, down = x[start:end], up_rows[:n], added_rows[:n]
            multiply(attended[start:end], weights.mixed, layer, False, space, down, firsts, start, fine)
            seen = rows
            if parts is None or not parts.before:
                add_and_normalize(rows, down, norm, bias, width, epsilon)
            else:
                add(rows, down)
                seen = normal[start:end]
                normalize(rows, feed_norm, feed_bias, width, epsilon, seen)
            multiply(seen, weights.up, layer, parts is None or parts.gate < 0, space, up, firsts, start, fine)
            if parts is not None and parts.gate >= 0:
                left, up = up, gated_rows[:n]
                gate(left, parts.gate, up)
            multiply(up, weights.down, layer, False, space, down, firsts, start, fine)
            if parts is None or not parts.before:
                add_and_normalize(rows, down, feed_norm, feed_bias, width, epsilon)
            else:
                add(rows, down)
    if parts is not None and parts.before:
        last = parts.last
        normalize(x[:queries], last.weight[0], last.bias[0], width, epsilon, x[:queries])
    return x[:queries]


@compiled
def largest_logits(
    hidden: Float32, owners: Int64, texts: int, transform: Linear, norm: LayerNorm, decoder: Linear,
    width: int, epsilon: float,
) -> Float32:  # fmt: skip
    """For each text and each word of the vocabulary the largest logit of a masked language model.

    Logits are made for BLOCK tokens and 64 words at a time, and the largest of each text are kept: they stay
    in the processor's cache, and the matrix of all tokens and words never exists.

    Args:
        hidden: float32 [tokens, k], the last hidden states of all texts' tokens.
        owners: int64 [tokens], the text of each token.
        texts: How many texts there are.
        transform: The head's first layer, before GELU, as the one layer of a `Linear`.
        norm: Its normalization, float32 [1, columns].
        decoder: The layer from there to words, their number rounded up to a multiple of 64.
        width: The number of outputs of the first layer; its columns are rounded up to a multiple of 64.
        epsilon: float32, of the normalization.

    Returns:
        float32 [texts, words].
    """
    tokens, columns = len(hidden), transform.factors.shape[1]
    words = decoder.factors.shape[1]
    out = np.full((texts, words), np.float32(-1e30), np.float32)
    space = Workspace(
        np.zeros(BLOCK * columns, np.int16),
        np.empty(BLOCK, np.float32),
        np.empty(BLOCK * max(columns, PANEL), np.int32),
    )
    made, pairs = np.empty((BLOCK, columns), np.float32), columns // 2
    weights, factors, bias = decoder.pairs[0], decoder.factors[0], decoder.bias[0]
    for start in range(0, tokens, BLOCK):
        n = min(BLOCK, tokens - start)
        rows = made[:n]
        linear(hidden[start : start + n], transform, 0, True, space, rows)
        normalize(rows, norm.weight[0], norm.bias[0], width, epsilon, rows)
        round_rows(rows, space)
        packed = space.rows.view(np.int32)
        for panel in range(0, words, PANEL):
            for i in range(0, n, TALL):
                for j in range(0, PANEL, INT16_WIDTH):
                    int16_tile(
                        space.sums, i * PANEL + j, PANEL, packed, i * pairs, pairs,
                        weights, panel * pairs + j, PANEL, pairs,
                    )  # fmt: skip
            for i in range(n):
                sums, factor = space.sums[i * PANEL : (i + 1) * PANEL], space.factors[i]
                best = out[owners[start + i], panel : panel + PANEL]
                for j in range(PANEL):
                    best[j] = larger(best[j], float32(sums[j]) * factor)
    for text in range(texts):
        for j in range(words):
            out[text, j] = out[text, j] * factors[j] + bias[j]
    return out


@compiled
def project(x: Float32, layer: Linear) -> Float32:
    """The one layer of a `Linear` applied to x float32 [tokens, k]: float32 [tokens, n]."""
    tokens, width = x.shape
    n = layer.factors.shape[1]
    out = np.empty((tokens, n), np.float32)
    space = Workspace(
        np.zeros(BLOCK * width, np.int16), np.empty(BLOCK, np.float32), np.empty(BLOCK * n, np.int32)
    )
    for start in range(0, tokens, BLOCK):
        end = min(start + BLOCK, tokens)
        linear(x[start:end], layer, 0, False, space, out[start:end])
    return out


def compile_projection() -> None:
    """Compile `project`, or load it from disk."""
    ones = np.ones((1, PANEL), np.float32)
    project(ones, Linear(np.zeros((1, PANEL * PANEL // 2), np.int32), ones, ones))


def compile_logits() -> None:
    """Compile `largest_logits`, or load it from disk."""
    ones = np.ones((1, PANEL), np.float32)
    layer = Linear(np.zeros((1, PANEL * PANEL // 2), np.int32), ones, ones)
    owners = np.zeros(1, np.int64)
    largest_logits(ones, owners, 1, layer, LayerNorm(ones, ones), layer, PANEL, np.float32(1))


def compile_all() -> None:
    """Compile `forward` for BERT, or load it from disk, by computing one token with one layer."""

    def linear(rows: int) -> Linear:
        ones = np.ones((1, rows), np.float32)
        return Linear(np.zeros((1, rows * PANEL // 2), np.int32), ones, ones)

    norm, row = LayerNorm(*np.ones((2, 1, PANEL), np.float32)), np.ones((1, PANEL), np.float32)
    weights = Weights(
        row, row, LayerNorm(row[0], row[0]), linear(PANEL), linear(2 * PANEL), linear(PANEL), norm,
        linear(PANEL), linear(PANEL), norm,
    )  # fmt: skip
    one = np.zeros(1, np.int64)
    layout = Layout(PANEL, 1, PANEL, np.float32(1))
    forward(one, one, np.array([0, 1]), weights, layout, None, False, None)
