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

from pipeline.core.records import Int32
from pipeline.native.compiling import instruction, merged
from pipeline.native.integers import PANEL, TILE_BYTES, TILE_ROWS, aligned_bytes
from pipeline.native.registers import panel
from pipeline.native.tiles import fetch

TILE = TILE_ROWS * TILE_BYTES
PARTS = 3  # tiles of an int16 product's sums
ROWS = PANEL // TILE_ROWS  # of a block that are finished together
FETCHED = 2  # lines of each plane that a step asks for
_BYTE, _WORD, _SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER, _PLACE = _BYTE.as_pointer(), types.intp
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


def _at(builder: Any, array: Any, at: Any, kind: Any = _BYTE) -> Any:
    """The address of what begins `at` bytes after the first one of an array."""
    start = builder.gep(builder.bitcast(array, _POINTER), [at])
    return builder.bitcast(start, kind.as_pointer())


@instruction(types.void)
def configure(builder: Any, configuration: Any) -> None:
    """Set up the tiles of this thread with `CONFIGURATION`; `release` gives them back."""
    _call(builder, "ldtilecfg", [configuration])


@instruction(types.void)
def release(builder: Any) -> None:
    """Give back the tiles: with them in use, a switch between threads saves 8 KiB more."""
    _call(builder, "tilerelease", [])


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


@instruction(types.void, None, *[_PLACE] * 2, None, *[_PLACE] * 2, None, *[_PLACE] * 3)
def int8_block(
    builder: Any, sums: Any, at: Any, row: Any, left: Any, left_at: Any, left_row: Any,
    right: Any, right_at: Any, right_row: Any, steps: Any,
) -> None:  # fmt: skip
    """Set 32 by 32 int32 of `sums`, from `at` on in rows of length `row`, to products of int8.

    The 32 rows of the left side lie `left_row` bytes apart. The right side is laid out as
    `integers.pack_bytes` does, four k of each column together and `right_row` bytes for each four. `left_at`
    and `right_at` are the bytes where both begin, and `steps` is k / 64. Each step reads four tiles for four
    products: two strips of 16 rows by two of 16 columns.
    """
    upper, first = _at(builder, left, left_at), _at(builder, right, right_at)
    lower = builder.gep(upper, [builder.mul(left_row, _SIZE(TILE_ROWS))])
    second = builder.gep(first, [_SIZE(TILE_BYTES)])
    for tile in range(4):
        _call(builder, "tilezero", [_BYTE(tile)])

    def multiply(k: Any) -> None:
        along = builder.mul(k, _SIZE(TILE_BYTES))
        down = builder.mul(k, builder.mul(right_row, _SIZE(TILE_ROWS)))
        for tile, start, far, stride in (
            (4, upper, along, left_row), (6, first, down, right_row),
            (7, second, down, right_row), (5, lower, along, left_row),
        ):  # fmt: skip
            _call(builder, "tileloadd64", [_BYTE(tile), builder.gep(start, [far]), stride])
        for tile, sides in enumerate(((4, 6), (4, 7), (5, 6), (5, 7))):
            _call(builder, "tdpbssd", [_BYTE(each) for each in (tile, *sides)])

    _loop(builder, steps, multiply)
    base, stride = builder.gep(sums, [at]), builder.mul(row, _SIZE(4))
    for tile in range(4):
        down, across = divmod(tile, 2)
        start = builder.add(builder.mul(row, _SIZE(down * TILE_ROWS)), _SIZE(across * TILE_ROWS))
        to = builder.bitcast(builder.gep(base, [start]), _POINTER)
        _call(builder, "tilestored64", [_BYTE(tile), to, stride])


# The sums of int16 products are in three tiles: high with high bytes, mixed ones, and low with low. A product
# is an instruction, in which u is a side without signs, and the tiles of its sums and of both sides.
_PRODUCTS = (
    (("bssd", 0, 4, 6),),
    (("busd", 1, 5, 6), ("bsud", 1, 4, 7)),
    (("buud", 2, 5, 7),),
)


def _load_sides(builder: Any, left: Sequence[Any], left_at: Any, right: Sequence[Any], right_at: Any) -> None:
    """Load the tiles of both planes of both sides.

    The weights, on the right, pass by the first cache (t1): it holds the left side, which is read again.
    """
    for plane in range(2):
        for tile, array, at, name in ((4, left, left_at, "d"), (6, right, right_at, "dt1")):
            arguments = [_BYTE(tile + plane), _at(builder, array[plane], at), _SIZE(TILE_BYTES)]
            _call(builder, f"tileload{name}64", arguments)


def _multiply(builder: Any, tile: int) -> None:
    for name, *tiles in _PRODUCTS[tile]:
        _call(builder, f"tdp{name}", [_BYTE(each) for each in tiles])


def _store_tile(builder: Any, parts: Any, tile: int) -> None:
    to = _at(builder, parts, _SIZE(tile * TILE))
    _call(builder, "tilestored64", [_BYTE(tile), to, _SIZE(TILE_BYTES)])


@instruction(types.void, None, None, _PLACE, None, None, _PLACE)
def add_products(
    builder: Any, left_high: Any, left_low: Any, left_at: Any, right_high: Any, right_low: Any, right_at: Any
) -> None:
    """Add products of 16 rows and 16 columns, 64 numbers of int16 each, to the sums in the tiles.

    `left_at` and `right_at` are where the tiles begin in the planes of both sides.
    """
    _load_sides(builder, (left_high, left_low), left_at, (right_high, right_low), right_at)
    for tile in range(PARTS):
        _multiply(builder, tile)


@instruction(types.void, None, None, _PLACE, None, None, _PLACE, None)
def begin_products(
    builder: Any, left_high: Any, left_low: Any, left_at: Any, right_high: Any, right_low: Any, right_at: Any,
    parts: Any,
) -> None:  # fmt: skip
    """As `add_products`, but to sums of 0; those in the tiles are written to `parts`, int32 [3 * 256], first.

    A tile is written when it is used again: the processor would wait if it were written just after the last
    product was added to it.
    """
    _load_sides(builder, (left_high, left_low), left_at, (right_high, right_low), right_at)
    for tile in range(PARTS):
        _store_tile(builder, parts, tile)
        _call(builder, "tilezero", [_BYTE(tile)])
        _multiply(builder, tile)


@instruction(types.void)
def store_parts(builder: Any, parts: Any) -> None:
    """Write the sums in the tiles to `parts`, int32 [3 * 256]."""
    for tile in range(PARTS):
        _store_tile(builder, parts, tile)


@instruction(panel, None, _PLACE)
def load_parts(builder: Any, parts: Any, row: Any) -> Any:
    """The sums of ROWS rows, from `row` on, of a block whose parts `parts` holds, as a panel of floats."""
    place = builder.mul(row, _SIZE(TILE_BYTES))
    high, mixed, low = (
        builder.load(_at(builder, parts, builder.add(place, _SIZE(tile * TILE)), _SUMS), align=4)
        for tile in range(PARTS)
    )
    high, mixed = (
        builder.shl(part, ir.Constant(_SUMS, [bits] * PANEL)) for part, bits in ((high, 16), (mixed, 8))
    )
    return builder.sitofp(builder.add(builder.add(high, mixed), low), _FLOATS)


def _broadcasting(lanes: Sequence[int]) -> Any:
    """Make a function that reads floats of an array; `lanes` says which of them each lane of a panel has."""
    kind = ir.VectorType(ir.FloatType(), max(lanes) + 1)

    @instruction(panel, None, _PLACE)
    def broadcast(builder: Any, numbers: Any, at: Any) -> Any:
        place = _at(builder, numbers, builder.mul(at, _SIZE(4)), kind)
        loaded, undefined = builder.load(place, align=4), ir.Constant(kind, ir.Undefined)
        return builder.shuffle_vector(loaded, undefined, ir.Constant(_SUMS, list(lanes)))

    return broadcast


# panels of ROWS rows: a number for each row, and one for each of 16 columns
broadcast_rows = _broadcasting([lane // TILE_ROWS for lane in range(PANEL)])
broadcast_columns = _broadcasting([lane % TILE_ROWS for lane in range(PANEL)])


@instruction(types.void, None, _PLACE, _PLACE, None, _PLACE)
def store_rows(builder: Any, out: Any, at: Any, length: Any, numbers: Any, count: Any) -> None:
    """Write `count` of the ROWS rows of a panel to float32 `out`, from `at` on in rows of `length`."""
    undefined = ir.Constant(numbers.type, ir.Undefined)
    # the last row first: rows that do not count are written where the first one will be
    for row in reversed(range(ROWS)):
        counts = builder.icmp_signed("<", _SIZE(row), count)
        down = builder.select(counts, builder.mul(length, _SIZE(row)), _SIZE(0))
        lanes = range(row * TILE_ROWS, (row + 1) * TILE_ROWS)
        chosen = ir.Constant(ir.VectorType(_WORD, TILE_ROWS), list(lanes))
        made = builder.shuffle_vector(numbers, undefined, chosen)
        place = builder.mul(builder.add(at, down), _SIZE(4))
        builder.store(made, _at(builder, out, place, made.type), align=4)


@instruction(types.void, None, None, _PLACE, None)
def store_planes(builder: Any, high: Any, low: Any, at: Any, numbers: Any) -> None:
    """Write the bytes of a panel's numbers, rounded to int16, to 64 bytes of both planes."""
    kind, bytes_ = ir.FunctionType(_FLOATS, [_FLOATS]), ir.VectorType(_BYTE, PANEL)
    nearest = builder.module.declare_intrinsic(f"llvm.rint.v{PANEL}f32", fnty=kind)
    whole = builder.fptosi(builder.call(nearest, [numbers]), _SUMS)
    upper = builder.lshr(whole, ir.Constant(_SUMS, [8] * PANEL))
    for plane, part in ((high, upper), (low, whole)):
        builder.store(builder.trunc(part, bytes_), _at(builder, plane, at, bytes_), align=1)


@instruction(types.void, None, None, _PLACE)
def fetch_weights(builder: Any, high: Any, low: Any, at: Any) -> None:
    """Fetch FETCHED lines of both planes, from the byte `at` on, into the second cache."""
    for plane in (high, low):
        for line in range(FETCHED):
            fetch(builder, builder.gep(_at(builder, plane, at), [_SIZE(line * TILE_BYTES)]))
