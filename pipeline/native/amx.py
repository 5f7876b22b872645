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
from pipeline.native.integers import TILE_BYTES, TILE_ROWS, aligned_bytes
from pipeline.native.tiles import fetch

TILE = TILE_ROWS * TILE_BYTES
SUMS = TILE_ROWS * TILE_ROWS  # of a tile
FETCHED = 2  # lines of each plane that a step asks for
_BYTE, _WORD, _SIZE = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER, _SUMS = _BYTE.as_pointer(), ir.VectorType(_WORD, TILE_ROWS)


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


@intrinsic
def int16_block(
    typing: Any, sums: Any, at: Any, row: Any, left_high: Any, left_low: Any, left_at: Any,
    right_high: Any, right_low: Any, right_at: Any, steps: Any, more: Any, scratch: Any, far: Any,
) -> Any:  # fmt: skip
    """Set 16 by 16 int32 of `sums`, from `at` on in rows of length `row`, to products of int16.

    `left_at` and `right_at` are where the 16 rows and columns begin in their planes, `steps` is k / 64, and
    `scratch` is int32 [3 * 256]. If `more` is not 0, the products are added to the sums.

    Meanwhile, weights that are needed later are fetched into the second cache: FETCHED lines a step, from the
    place `far` of both planes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def address(array: int, at: Any = None) -> Any:
            return _address(context, builder, signature.args[array], arguments[array], at)

        planes = [(address(array, arguments[5 if array < 5 else 8])) for array in (3, 4, 6, 7)]
        later = [address(array, arguments[12]) for array in (6, 7)]
        is_new = builder.icmp_signed("==", arguments[10], _SIZE(0))
        for tile in range(3):
            _call(builder, "tilezero", [_BYTE(tile)])

        def multiply(k: Any) -> None:
            place = builder.mul(k, _SIZE(TILE))
            for plane in later:
                ahead = builder.gep(plane, [builder.mul(k, _SIZE(FETCHED * TILE_BYTES))])
                for line in range(FETCHED):
                    fetch(builder, builder.gep(ahead, [_SIZE(line * TILE_BYTES)]))
            for tile, plane in zip((4, 5, 6, 7), planes, strict=True):
                _call(builder, "tileloadd64", [_BYTE(tile), builder.gep(plane, [place]), _SIZE(TILE_BYTES)])
            # high with high, low with high, low with low, high with low: u for a side without signs
            for name, tile, left, right in (
                ("bssd", 0, 4, 6), ("busd", 1, 5, 6), ("buud", 2, 5, 7), ("bsud", 1, 4, 7),
            ):  # fmt: skip
                _call(builder, f"tdp{name}", [_BYTE(tile), _BYTE(left), _BYTE(right)])

        _loop(builder, arguments[9], multiply)
        parts = address(11)
        for tile in range(3):
            to = builder.gep(parts, [_SIZE(tile * TILE)])
            _call(builder, "tilestored64", [_BYTE(tile), to, _SIZE(TILE_BYTES)])
        base = builder.gep(builder.bitcast(address(0), _WORD.as_pointer()), [arguments[1]])
        for number in range(TILE_ROWS):
            high, mixed, low = (
                builder.load(
                    builder.bitcast(
                        builder.gep(parts, [_SIZE(tile * TILE + number * TILE_BYTES)]), _SUMS.as_pointer()
                    ),
                    align=4,
                )
                for tile in range(3)
            )
            high, mixed = (
                builder.shl(part, ir.Constant(_SUMS, [bits] * TILE_ROWS))
                for part, bits in ((high, 16), (mixed, 8))
            )
            whole = builder.add(builder.add(high, mixed), low)
            to = builder.bitcast(
                builder.gep(base, [builder.mul(_SIZE(number), arguments[2])]), _SUMS.as_pointer()
            )
            before = builder.select(is_new, ir.Constant(_SUMS, None), builder.load(to, align=4))
            builder.store(builder.add(whole, before), to, align=4)
        return context.get_dummy_value()

    size = types.intp
    left, right = (left_high, left_low, size), (right_high, right_low, size)
    return types.void(sums, size, size, *left, *right, size, size, scratch, size), generate
