"""Tiles: the part of a matrix product that stays in the processor's registers.

LLVM does not find the best order of a matrix product, so `make_tile` writes its innermost loop in LLVM's
intermediate representation itself. The integer tiles use instructions of VNNI, which do more than an fp32
instruction on registers of the same size, in the same time: `vpdpwssd` takes two registers of int16 pairs,
multiplies them number by number, adds the two products of each pair, and adds that to a register of int32
sums; `vpdpbusd` does the same with four uint8 and four int8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

llvm.initialize_native_asmparser()  # for `_add_pair_products`
# What Numba compiles for: with NUMBA_CPU_NAME or NUMBA_CPU_FEATURES another processor than the one at hand.
_TARGET = cpu_target.target_context.codegen()._get_host_cpu_features().split(",")
_CPU = {feature[1:]: feature.startswith("+") for feature in _TARGET}
LANES = 16 if _CPU.get("avx512f") else 8  # numbers of 32 bits in a register
TALL = 6  # rows of a tile
_VNNI = any(_CPU.get(name) for name in ("avx512vnni", "avxvnni"))
_WIDE = 4 if _CPU.get("avx512f") else 2  # registers in a row of an integer tile
_WORD, _SIZE = ir.IntType(32), ir.IntType(64)


def _add_pair_products(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Multiply pairs of int16 and add both products to the sums: `vpdpwssd`.

    As assembly, because LLVM makes two instructions of it for processors of Intel. On a processor without it,
    the same in several instructions.
    """
    vector = ir.VectorType(_WORD, LANES)
    if _VNNI:
        prefix = "" if _CPU.get("avx512vnni") else "{vex} "
        kind, text = ir.FunctionType(vector, [vector] * 3), f"{prefix}vpdpwssd $3, $2, $0"
        return builder.asm(kind, text, "=v,0,v,v", [total, left, right], side_effect=False)
    pairs, wide = ir.VectorType(ir.IntType(16), 2 * LANES), ir.VectorType(_WORD, 2 * LANES)
    product = builder.mul(*(builder.sext(builder.bitcast(side, pairs), wide) for side in (left, right)))
    for start in (0, 1):
        lanes = ir.Constant(ir.VectorType(_WORD, LANES), list(range(start, 2 * LANES, 2)))
        half = builder.shuffle_vector(product, ir.Constant(wide, ir.Undefined), lanes)
        total = builder.add(total, half)
    return total


def _add_four_products(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Multiply four uint8 with four int8 in each lane, and add the products to the sums: `vpdpbusd`.

    On a processor without it, the same in several instructions.
    """
    if _VNNI:
        vector = ir.VectorType(_WORD, LANES)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        instruction = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(vector, [vector] * 3))
        return builder.call(instruction, [total, left, right])
    bytes_, wide = ir.VectorType(ir.IntType(8), 4 * LANES), ir.VectorType(_WORD, 4 * LANES)
    product = builder.mul(
        builder.zext(builder.bitcast(left, bytes_), wide), builder.sext(builder.bitcast(right, bytes_), wide)
    )
    for start in range(4):
        lanes = ir.Constant(ir.VectorType(_WORD, LANES), list(range(start, 4 * LANES, 4)))
        total = builder.add(total, builder.shuffle_vector(product, ir.Constant(wide, ir.Undefined), lanes))
    return total


def add_product(builder: Any, total: Any, left: Any, right: Any) -> Any:
    """Multiply numbers and add the products to the sums, in one instruction where there is one."""
    kind = total.type
    is_vector = isinstance(kind, ir.VectorType)
    element, prefix = (kind.element, f"v{kind.count}") if is_vector else (kind, "")
    name = f"llvm.fmuladd.{prefix}f{64 if isinstance(element, ir.DoubleType) else 32}"
    compute = builder.module.declare_intrinsic(name, fnty=ir.FunctionType(kind, [kind] * 3))
    return builder.call(compute, [left, right, total])


def fetch(builder: Any, address: Any) -> None:
    """Ask for the memory around an address, which the processor then reads while it goes on."""
    flags = [_WORD(0), _WORD(2), _WORD(1)]  # to read, into the second cache, data
    pointer = builder.bitcast(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, *(flag.type for flag in flags)])
    builder.call(builder.module.declare_intrinsic("llvm.prefetch.p0i8", fnty=kind), [pointer, *flags])


def make_tile(element: Any, wide: int, multiply_add: Callable[..., Any], scaling: bool = False) -> Any:
    """Make a function that computes one tile of a matrix product: 6 rows by `wide` registers.

    `tile(c, c_at, c_row, a, a_at, a_row, b, b_at, b_row, count)` sets c[i, j] to the sum over k < count of
    a[i, k] * b[k, j]; `_at` is the offset of an array's part and `_row` the distance between its rows.

    For each k it loads `wide` registers of b, and for each of 6 rows copies a[i, k] into all lanes of a
    register and multiplies that with them. All sums stay in registers through the whole loop, so memory is
    only read, and each number read is used several times: 24 sums of AVX-512's 32 registers, 12 of AVX2's 16.

    With `scaling`, c is float32 and there are five arguments more. c[i, j] is set to the sum times
    `factors[f_at + i]`, plus c[i, j] unless `is_first` is 1. And for each k it asks for the part of b at
    `ahead` + k * `step`, which is computed with later: so memory is read while the processor multiplies.

    `generate` writes this loop as LLVM instructions: `gep` computes an address, `phi` is a variable of the
    loop, with its first value and that of each following pass, and `shuffle_vector` with zeros copies the
    first lane to all. Types are not checked and bounds are not either.
    """
    vector = ir.VectorType(element, LANES)
    undefined, zero = ir.Constant(vector, ir.Undefined), ir.Constant(vector, None)
    first = ir.Constant(ir.VectorType(_WORD, LANES), None)

    def scaled(builder: Any, total: Any, i: int, place: Any, factors: Any, arguments: Any) -> Any:
        """The sums of row i times its factor, added to the floats at `place`; as words."""
        floats = ir.VectorType(ir.FloatType(), LANES)
        factor = builder.load(builder.gep(factors, [builder.add(arguments[13], _SIZE(i))]))
        lanes = builder.insert_element(ir.Constant(floats, ir.Undefined), factor, _WORD(0))
        is_first = builder.icmp_signed("==", arguments[14], _SIZE(1))
        before = builder.bitcast(builder.select(is_first, zero, builder.load(place, align=4)), floats)
        copies = builder.shuffle_vector(lanes, ir.Constant(floats, ir.Undefined), first)
        return builder.bitcast(add_product(builder, before, builder.sitofp(total, floats), copies), vector)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def part(array: int) -> Any:
            data = make_array(signature.args[array])(context, builder, arguments[array]).data
            return builder.gep(builder.bitcast(data, element.as_pointer()), [arguments[array + 1]])

        def several(pointer: Any, at: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [at]), vector.as_pointer())

        # the function is one block so far; the loop and what follows it become two more
        (c, a, b), (c_row, a_row, b_row) = map(part, (0, 3, 6)), (arguments[i] for i in (2, 5, 8))
        before, loop, after = (builder.block, *map(builder.append_basic_block, ("loop", "after")))
        builder.branch(loop)
        builder.position_at_end(loop)
        # `phi` is a variable of the loop: its first value and that of each following pass are set below
        k, sums = builder.phi(_SIZE), [builder.phi(vector) for _ in range(TALL * wide)]
        row = builder.mul(k, b_row)
        if scaling:
            start = builder.gep(b, [builder.sub(arguments[10], arguments[7])])
            fetch(builder, builder.gep(start, [builder.mul(k, arguments[11])]))
        # a row of b in `wide` registers; then for each of 6 rows one number of a, copied to all lanes
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
        # memory is written once, when all sums are complete
        builder.position_at_end(after)
        factors = make_array(signature.args[12])(context, builder, arguments[12]).data if scaling else None
        for number, total in enumerate(added):
            i, j = divmod(number, wide)
            place = several(c, builder.add(builder.mul(_SIZE(i), c_row), _SIZE(j * LANES)))
            if scaling:
                total = scaled(builder, total, i, place, factors, arguments)
            builder.store(total, place, align=4)
        return context.get_dummy_value()

    size, sizes = types.intp, [types.intp] * 3

    @intrinsic
    def tile(
        typing: Any, c: Any, c_at: Any, c_row: Any, a: Any, a_at: Any, a_row: Any,
        b: Any, b_at: Any, b_row: Any, count: Any,
    ) -> Any:  # fmt: skip
        return types.void(c, size, size, a, size, size, b, *sizes), generate

    @intrinsic
    def block_tile(
        typing: Any, c: Any, c_at: Any, c_row: Any, a: Any, a_at: Any, a_row: Any,
        b: Any, b_at: Any, b_row: Any, count: Any, ahead: Any, step: Any,
        factors: Any, f_at: Any, is_first: Any,
    ) -> Any:  # fmt: skip
        parts = c, size, size, a, size, size, b, *sizes, size, size, factors, size, size
        return types.void(*parts), generate

    return block_tile if scaling else tile


int16_tile = make_tile(_WORD, _WIDE, _add_pair_products)
int8_tile = make_tile(_WORD, _WIDE, _add_four_products)
INTEGER_WIDTH = _WIDE * LANES  # columns of either
block_int16_tile = make_tile(_WORD, _WIDE, _add_pair_products, scaling=True)
half_int16_tile = make_tile(_WORD, _WIDE // 2, _add_pair_products)
narrow_int16_tile = make_tile(_WORD, 1, _add_pair_products)
double_tile = make_tile(ir.DoubleType(), 1, add_product)
DOUBLE_WIDTH = LANES
