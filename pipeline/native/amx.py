"""Matrix products on AMX, Intel's unit for products of tiles.

A tile register holds 16 rows of 64 bytes. `tdpb..d` multiplies a tile of 16 rows by 64 bytes with one of 64
by 16 and adds the 256 sums to a tile of int32, in 16 cycles: eight times what VNNI does with the same bytes.
It multiplies bytes only, so an int16 product is four of them. An int16 x is 256 high + low with its own two
bytes, the high one signed and the low one not, and

    x * y = (high * high') * 2^16 + (high * low' + low * high') * 2^8 + low * low'

Each instruction names which side has signs, and the two mixed sums share a register. Partial sums may pass an
int32; they wrap around, and so does their combination. The whole sum fits an int32 (see `integers`), so it is
right modulo 2^32: the same number, bit for bit, as VNNI's.

`machine.has_amx` says whether the unit can be used. Where it cannot, the kernels use `tiles`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from pipeline.core.records import Int32
from pipeline.native.compiling import merged
from pipeline.native.integers import PANEL, TILE_BYTES, TILE_ROWS, aligned_bytes
from pipeline.native.registers import panel
from pipeline.native.tiles import fetch

TILE = TILE_ROWS * TILE_BYTES
PARTS = 3  # tiles of an int16 product's sums
ROWS = PANEL // TILE_ROWS  # of a block that are finished together
FETCHED = 2  # lines of each plane that a step asks for
_BYTE, _WORD, _SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER = _BYTE.as_pointer()
_SUMS, _FLOATS = (ir.VectorType(each, PANEL) for each in (_WORD, ir.FloatType()))


class Planes(NamedTuple):
    """The bytes of int16 numbers, high and low ones apart, in the order in which tiles are read.

    Each is uint8, flat: [rows / 16, k / 64, 16, 64] for the left side of a product. The right side, of which
    a tile holds four neighbouring k of 16 columns in a row, is [columns / 16, k / 64, 16, 16, 4].
    """

    high: Any
    low: Any


def panels_to_planes(pairs: Int32, k: int) -> Planes:
    """Weights in VNNI's panels (see `integers.pack_rows`) as the right side of a product.

    `pairs` is int32 [..., n * k / 2], [n / 64, k / 2, 64] in each; the result is uint8 [..., n * k].
    """
    # [..., panel, tile of k, row of a tile, pair of its four k, strip, column of 16, one of two, byte]
    whole = pairs.view(np.uint8).reshape(
        *pairs.shape[:-1], -1, k // TILE_BYTES, TILE_ROWS, 2, 4, TILE_ROWS, 2, 2
    )
    first = whole.ndim - 8
    axes = [*range(first), *(first + axis for axis in (7, 0, 4, 1, 2, 5, 3, 6))]
    axes = [axes[first], *axes[:first], *axes[first + 1 :]]
    low, high = whole.transpose(axes)
    flat = *pairs.shape[:-1], -1
    planes = Planes(*(aligned_bytes(whole.size // 2).reshape(flat) for _ in range(2)))
    for plane, part in zip(planes, (high, low), strict=True):
        plane.reshape(part.shape)[:] = part
    return planes


CONFIGURATION = np.zeros(64, np.uint8)
"""What `ldtilecfg` reads: palette 1, and for each of 8 tiles 64 bytes a row and 16 rows."""
CONFIGURATION[0] = 1
CONFIGURATION[16:32].view(np.uint16)[:] = TILE_BYTES
CONFIGURATION[48:56] = TILE_ROWS


def _call(builder: Any, name: str, arguments: Sequence[Any]) -> None:
    kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
    builder.call(builder.module.declare_intrinsic(f"llvm.x86.{name}", fnty=kind), arguments)


def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any = None) -> Any:
    """The address of the byte `at` of an array, or of its first one."""
    data = builder.bitcast(make_array(kind)(context, builder, array).data, _POINTER)
    return data if at is None else builder.gep(data, [at])


@intrinsic
def configure(typing: Any, configuration: Any) -> Any:
    """Set up the tiles of this thread with `CONFIGURATION`; `release` gives them back."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call(builder, "ldtilecfg", [_address(context, builder, signature.args[0], arguments[0])])
        return context.get_dummy_value()

    return types.void(configuration), generate


@intrinsic
def release(typing: Any) -> Any:
    """Give back the tiles: with them in use, a switch between threads saves 8 KiB more."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call(builder, "tilerelease", [])
        return context.get_dummy_value()

    return types.void(), generate


@merged
def begin(tiles: Any) -> None:
    """Set up the tiles of this thread where AMX is used: where `tiles` is not None."""
    if tiles is not None:
        configure(CONFIGURATION)


@merged
def end(tiles: Any) -> None:
    """Give back the tiles."""
    if tiles is not None:
        release()


def _loop(builder: Any, count: Any, body: Any) -> None:
    """Write `body(k)` as a loop over k < count, which is at least 1."""
    before, loop, after = (builder.block, *map(builder.append_basic_block, ("loop", "after")))
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_SIZE)
    body(k)
    following = builder.add(k, _SIZE(1))
    k.add_incoming(_SIZE(0), before)
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)


@intrinsic
def int8_block(
    typing: Any, sums: Any, at: Any, row: Any, left: Any, left_at: Any, left_row: Any,
    right: Any, right_at: Any, right_row: Any, steps: Any,
) -> Any:  # fmt: skip
    """Set 32 by 32 int32 of `sums`, from `at` on in rows of length `row`, to products of int8.

    The 32 rows of the left side lie `left_row` bytes apart. The right side is laid out as
    `integers.pack_bytes` does, four k of each column together and `right_row` bytes for each four. `left_at`
    and `right_at` are the bytes where both begin, and `steps` is k / 64. Each step reads four tiles for four
    products: two strips of 16 rows by two of 16 columns.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def address(array: int, at: Any) -> Any:
            return _address(context, builder, signature.args[array], arguments[array], at)

        upper, first = address(3, arguments[4]), address(6, arguments[7])
        lower = builder.gep(upper, [builder.mul(arguments[5], _SIZE(TILE_ROWS))])
        second = builder.gep(first, [_SIZE(TILE_BYTES)])
        for tile in range(4):
            _call(builder, "tilezero", [_BYTE(tile)])

        def multiply(k: Any) -> None:
            along = builder.mul(k, _SIZE(TILE_BYTES))
            down = builder.mul(k, builder.mul(arguments[8], _SIZE(TILE_ROWS)))
            for tile, start, far, stride in (
                (4, upper, along, 5), (6, first, down, 8), (7, second, down, 8), (5, lower, along, 5),
            ):  # fmt: skip
                _call(builder, "tileloadd64", [_BYTE(tile), builder.gep(start, [far]), arguments[stride]])
            for tile, (left, right) in enumerate(((4, 6), (4, 7), (5, 6), (5, 7))):
                _call(builder, "tdpbssd", [_BYTE(tile), _BYTE(left), _BYTE(right)])

        _loop(builder, arguments[9], multiply)
        base = builder.gep(builder.bitcast(address(0, None), _WORD.as_pointer()), [arguments[1]])
        stride = builder.mul(arguments[2], _SIZE(4))
        for tile in range(4):
            down, across = divmod(tile, 2)
            start = builder.add(builder.mul(arguments[2], _SIZE(down * TILE_ROWS)), _SIZE(across * TILE_ROWS))
            to = builder.bitcast(builder.gep(base, [start]), _POINTER)
            _call(builder, "tilestored64", [_BYTE(tile), to, stride])
        return context.get_dummy_value()

    size = types.intp
    return types.void(sums, size, size, left, size, size, right, size, size, size), generate


# The sums of int16 products are in three tiles: high with high bytes, mixed ones, and low with low. A product
# is an instruction, in which u is a side without signs, and the tiles of its sums and of both sides.
_PRODUCTS = (
    (("bssd", 0, 4, 6),),
    (("busd", 1, 5, 6), ("bsud", 1, 4, 7)),
    (("buud", 2, 5, 7),),
)


def _load_sides(context: Any, builder: Any, kinds: Sequence[Any], arguments: Sequence[Any]) -> None:
    """Load the tiles of both planes of both sides, which are the first six arguments.

    The weights, on the right, pass by the first cache (t1): it holds the left side, which is read again.
    """
    for tile, array, at, name in ((4, 0, 2, "d"), (6, 3, 5, "dt1"), (5, 1, 2, "d"), (7, 4, 5, "dt1")):
        start = _address(context, builder, kinds[array], arguments[array], arguments[at])
        _call(builder, f"tileload{name}64", [_BYTE(tile), start, _SIZE(TILE_BYTES)])


def _multiply(builder: Any, tile: int) -> None:
    for name, *tiles in _PRODUCTS[tile]:
        _call(builder, f"tdp{name}", [_BYTE(each) for each in tiles])


def _store_tile(context: Any, builder: Any, kind: Any, parts: Any, tile: int) -> None:
    to = _address(context, builder, kind, parts, _SIZE(tile * TILE))
    _call(builder, "tilestored64", [_BYTE(tile), to, _SIZE(TILE_BYTES)])


@intrinsic
def add_products(
    typing: Any, left_high: Any, left_low: Any, left_at: Any, right_high: Any, right_low: Any, right_at: Any
) -> Any:
    """Add products of 16 rows and 16 columns, 64 numbers of int16 each, to the sums in the tiles.

    `left_at` and `right_at` are where the tiles begin in the planes of both sides.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _load_sides(context, builder, signature.args, arguments)
        for tile in range(PARTS):
            _multiply(builder, tile)
        return context.get_dummy_value()

    size = types.intp
    return types.void(left_high, left_low, size, right_high, right_low, size), generate


@intrinsic
def begin_products(
    typing: Any, left_high: Any, left_low: Any, left_at: Any, right_high: Any, right_low: Any, right_at: Any,
    parts: Any,
) -> Any:  # fmt: skip
    """As `add_products`, but to sums of 0; those in the tiles are written to `parts`, int32 [3 * 256], first.

    A tile is written when it is used again: the processor would wait if it were written just after the last
    product was added to it.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _load_sides(context, builder, signature.args, arguments)
        for tile in range(PARTS):
            _store_tile(context, builder, signature.args[6], arguments[6], tile)
            _call(builder, "tilezero", [_BYTE(tile)])
            _multiply(builder, tile)
        return context.get_dummy_value()

    size = types.intp
    return types.void(left_high, left_low, size, right_high, right_low, size, parts), generate


@intrinsic
def store_parts(typing: Any, parts: Any) -> Any:
    """Write the sums in the tiles to `parts`, int32 [3 * 256]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for tile in range(PARTS):
            _store_tile(context, builder, signature.args[0], arguments[0], tile)
        return context.get_dummy_value()

    return types.void(parts), generate


def _at(builder: Any, start: Any, place: Any, kind: Any) -> Any:
    """The address of a vector that begins `place` bytes after `start`."""
    return builder.bitcast(builder.gep(start, [place]), kind.as_pointer())


@intrinsic
def load_parts(typing: Any, parts: Any, row: Any) -> Any:
    """The sums of ROWS rows, from `row` on, of a block whose parts `parts` holds, as a panel of floats."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = _address(context, builder, signature.args[0], arguments[0])
        place = builder.mul(arguments[1], _SIZE(TILE_BYTES))
        high, mixed, low = (
            builder.load(_at(builder, start, builder.add(place, _SIZE(tile * TILE)), _SUMS), align=4)
            for tile in range(PARTS)
        )
        high, mixed = (
            builder.shl(part, ir.Constant(_SUMS, [bits] * PANEL)) for part, bits in ((high, 16), (mixed, 8))
        )
        return builder.sitofp(builder.add(builder.add(high, mixed), low), _FLOATS)

    return panel(parts, types.intp), generate


def _broadcasting(lanes: Sequence[int]) -> Any:
    """Make a function that reads floats of an array; `lanes` says which of them each lane of a panel has."""
    kind = ir.VectorType(ir.FloatType(), max(lanes) + 1)

    @intrinsic
    def broadcast(typing: Any, numbers: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            start = _address(context, builder, signature.args[0], arguments[0])
            place = _at(builder, start, builder.mul(arguments[1], _SIZE(4)), kind)
            loaded, undefined = builder.load(place, align=4), ir.Constant(kind, ir.Undefined)
            return builder.shuffle_vector(loaded, undefined, ir.Constant(_SUMS, list(lanes)))

        return panel(numbers, types.intp), generate

    return broadcast


# panels of ROWS rows: a number for each row, and one for each of 16 columns
broadcast_rows = _broadcasting([lane // TILE_ROWS for lane in range(PANEL)])
broadcast_columns = _broadcasting([lane % TILE_ROWS for lane in range(PANEL)])


@intrinsic
def store_rows(typing: Any, out: Any, at: Any, length: Any, numbers: Any, count: Any) -> Any:
    """Write `count` of the ROWS rows of a panel to float32 `out`, from `at` on in rows of `length`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, at, length, numbers, count = arguments
        start = _address(context, builder, signature.args[0], arguments[0])
        undefined = ir.Constant(numbers.type, ir.Undefined)
        # the last row first: rows that do not count are written where the first one will be
        for row in reversed(range(ROWS)):
            counts = builder.icmp_signed("<", _SIZE(row), count)
            down = builder.select(counts, builder.mul(length, _SIZE(row)), _SIZE(0))
            lanes = range(row * TILE_ROWS, (row + 1) * TILE_ROWS)
            chosen = ir.Constant(ir.VectorType(_WORD, TILE_ROWS), list(lanes))
            made = builder.shuffle_vector(numbers, undefined, chosen)
            place = builder.mul(builder.add(at, down), _SIZE(4))
            builder.store(made, _at(builder, start, place, made.type), align=4)
        return context.get_dummy_value()

    size = types.intp
    return types.void(out, size, size, numbers, size), generate


@intrinsic
def store_planes(typing: Any, high: Any, low: Any, at: Any, numbers: Any) -> Any:
    """Write the bytes of a panel's numbers, rounded to int16, to 64 bytes of both planes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, bytes_ = ir.FunctionType(_FLOATS, [_FLOATS]), ir.VectorType(_BYTE, PANEL)
        nearest = builder.module.declare_intrinsic(f"llvm.rint.v{PANEL}f32", fnty=kind)
        whole = builder.fptosi(builder.call(nearest, [arguments[3]]), _SUMS)
        upper = builder.lshr(whole, ir.Constant(_SUMS, [8] * PANEL))
        for plane, part in enumerate((upper, whole)):
            start = _address(context, builder, signature.args[plane], arguments[plane])
            builder.store(builder.trunc(part, bytes_), _at(builder, start, arguments[2], bytes_), align=1)
        return context.get_dummy_value()

    return types.void(high, low, types.intp, numbers), generate


@intrinsic
def fetch_weights(typing: Any, high: Any, low: Any, at: Any) -> Any:
    """Fetch FETCHED lines of both planes, from the byte `at` on, into the second cache."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        for plane in range(2):
            start = _address(context, builder, signature.args[plane], arguments[plane], arguments[2])
            for line in range(FETCHED):
                fetch(builder, builder.gep(start, [_SIZE(line * TILE_BYTES)]))
        return context.get_dummy_value()

    return types.void(high, low, types.intp), generate
