"""Registers of floats as values that a kernel computes with, and functions of single floats.

`load(a, i) * broadcast(2)` is LANES products. LLVM vectorizes plain loops, but not always well: of a loop
over 80 numbers it may compute 64 in registers and 16 one by one, and it cannot round to int16 in one
addition. Numba learns a type here, `Register`, LLVM's `<16 x float>`, and its operators. Code in registers
is the same for AVX2 and AVX-512 but for the number of lanes. Arrays are indexed as if they were flat, and
bounds are not checked. A panel is 64 numbers, in as many registers as that takes, so that constants are read
once for all of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int32, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from pipeline.native.compiling import inlined, instruction
from pipeline.native.integers import PANEL
from pipeline.native.tiles import LANES, add_product

WIDE = 32  # numbers of which `total_wide` makes a sum
_FLOAT, _WORD, _SHORT = ir.FloatType(), ir.IntType(32), ir.IntType(16)
_SIZE = ir.IntType(64)
_FLOATS, _WORDS = (ir.VectorType(each, LANES) for each in (_FLOAT, _WORD))
# A float32 near 1.5 * 2^23 has no bits for fractions. Adding that number to x rounds x to a whole number,
# which then stands in the last bits of the sum, also if it is negative.
_ROUNDING = 1.5 * 2**23
_LOWEST_POWER = -126.0  # 2 to the power of less is no normal float32
_POWER = (
    1.327641773968935e-03, 9.675540961325169e-03, 5.550713464617729e-02, 2.402212023735046e-01,
    6.931469440460205e-01, 1.0000001192092896,
)  # fmt: skip
"""The polynomial nearest to 2^x for |x| <= 1/2, the highest power first; its relative error is 1.3e-7.
`scripts/fit_kernels.py` fits it, and those below, again."""
_SERIES = (
    1.5403530393381610e-4, 1.3333558146428443e-3, 9.6181291076284772e-3, 5.5504108664821580e-2,
    2.4022650695910072e-1, 6.9314718055994531e-1, 1.0,
)  # fmt: skip
"""The first terms of the Taylor series of 2^x, ln(2)^n / n!, the highest power first."""
_FAR = 5.5  # beyond it, z P(X > z) is below 1.1e-7
_TAIL = (
    -0.00560500892, 0.00536690746, 0.030181706, -0.0436106212, -0.0491053015, 0.133307889, -0.0349267796,
    -0.163107842, 0.218442023, -0.0513857007, -0.177167684, 0.271888524, -0.206807807, 0.0945579782,
    -0.0250080694, 0.00297977403,
)  # fmt: skip
"""The polynomial in 2 z / 5.5 - 1, the highest power first, whose product with z is nearest to z P(X > z)
for a normal X and z from 0 to 5.5; the error is 2e-7."""
_LARGER = ["nnan", "nsz"]  # no NaN, and no difference between 0 and -0


class _Register(types.Type):  # type: ignore[misc]
    def __init__(self, lanes: int) -> None:
        super().__init__(f"Register of {lanes}")
        self.lanes = lanes


@register_model(_Register)
class _RegisterModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.VectorType(_FLOAT, kind.lanes))


_register, panel, _place = _Register(LANES), _Register(PANEL), types.intp
_wide = _Register(WIDE)


def _define(operation: Any, name: str) -> None:
    """Let Numba know an operator of two registers, by the name of LLVM's instruction."""

    @infer_global(operation)
    class _Typed(ConcreteTemplate):  # type: ignore[misc]
        cases = tuple(signature(kind, kind, kind) for kind in (_register, panel, _wide))

    @lower_builtin(operation, _Register, _Register)
    def _lowered(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)


_OPERATORS = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
for _operation, _name in _OPERATORS.items():
    _define(_operation, _name)


def _at(builder: Any, array: Any, place: Any, kind: Any) -> Any:
    return builder.bitcast(builder.gep(array, [place]), kind.as_pointer())


def _constant(value: float, kind: Any = _FLOATS) -> Any:
    return ir.Constant(kind, [value] * LANES)


def _copied(builder: Any, number: Any, kind: Any) -> Any:
    """A register with one number in all lanes."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, number, _WORD(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_WORD, kind.count), None))


def _rounded(builder: Any, numbers: Any) -> Any:
    """Words whose lower 16 bits are the numbers, rounded."""
    lanes = numbers.type.count
    sums = builder.fadd(numbers, ir.Constant(numbers.type, [_ROUNDING] * lanes))
    return builder.bitcast(sums, ir.VectorType(_WORD, lanes))


def _larger(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", one, other, flags=_LARGER), one, other)


def _computed(name: str) -> Callable[[Any, Any], Any]:
    """Calls LLVM's function of that name of each number of a register."""

    def write(builder: Any, numbers: Any) -> Any:
        kind = ir.FunctionType(_FLOATS, [_FLOATS])
        compute = builder.module.declare_intrinsic(f"llvm.{name}.v{LANES}f32", fnty=kind)
        return builder.call(compute, [numbers])

    return write


_nearest = _computed("rint")


def _loading(result: Any, element: Any) -> Any:
    """Make a function that reads a register, or a panel, of floats, or of whole numbers as floats."""
    floats, stored = (ir.VectorType(each, result.lanes) for each in (_FLOAT, element))

    @instruction(result, None, _place)
    def load(builder: Any, array: Any, at: Any) -> Any:
        numbers = builder.load(_at(builder, array, at, stored), align=4)
        return numbers if element is _FLOAT else builder.sitofp(numbers, floats)

    return load


def _broadcasting(result: Any) -> Any:
    """Make a function that copies a float32 to all lanes of a register, or of a panel."""
    kind = ir.VectorType(_FLOAT, result.lanes)

    @instruction(result, types.float32)
    def broadcast(builder: Any, number: Any) -> Any:
        return _copied(builder, number, kind)

    return broadcast


load, load_panel = _loading(_register, _FLOAT), _loading(panel, _FLOAT)
load_wide, broadcast_wide = _loading(_wide, _FLOAT), _broadcasting(_wide)
load_sums = _loading(_register, _WORD)
broadcast, broadcast_panel = _broadcasting(_register), _broadcasting(panel)


@instruction(types.void, None, _place, None)
def store(builder: Any, array: Any, at: Any, numbers: Any) -> None:
    """Write the numbers of a register, or of a panel, to a float32 array."""
    builder.store(numbers, _at(builder, array, at, numbers.type), align=4)


@instruction(types.void, None, _place, None)
def store_rounded(builder: Any, array: Any, at: Any, numbers: Any) -> None:
    """Write the numbers of a register, or of a panel, rounded, to an int16 array."""
    kind = ir.VectorType(_SHORT, numbers.type.count)
    builder.store(builder.trunc(_rounded(builder, numbers), kind), _at(builder, array, at, kind), align=2)


@instruction(types.void, None, _place, _register, _register)
def store_pairs(builder: Any, array: Any, at: Any, first: Any, second: Any) -> None:
    """Write pairs of numbers of two registers, rounded to int16, to an int32 array."""
    low = builder.and_(_rounded(builder, first), _constant(0xFFFF, _WORDS))
    high = builder.shl(_rounded(builder, second), _constant(16, _WORDS))
    builder.store(builder.or_(low, high), _at(builder, array, at, _WORDS), align=4)


@instruction(types.float32)
def total(builder: Any, numbers: Any) -> Any:
    """The sum of the numbers of a register, or of a panel."""
    kind = ir.FunctionType(_FLOAT, [_FLOAT, numbers.type])
    add = builder.module.declare_intrinsic(f"llvm.vector.reduce.fadd.v{numbers.type.count}f32", fnty=kind)
    return builder.call(add, [ir.Constant(_FLOAT, -0.0), numbers], fastmath=["reassoc"])


@instruction(types.float32, _wide)
def total_wide(builder: Any, numbers: Any) -> Any:
    """The sum of 32 numbers: four registers of 8 numbers are added first, whatever the processor's size."""
    undefined, eight = ir.Constant(numbers.type, ir.Undefined), ir.VectorType(_FLOAT, 8)
    parts = [
        builder.shuffle_vector(
            numbers, undefined, ir.Constant(ir.VectorType(_WORD, 8), list(range(start, start + 8)))
        )
        for start in range(0, WIDE, 8)
    ]
    whole = builder.fadd(builder.fadd(parts[0], parts[1]), builder.fadd(parts[2], parts[3]))
    kind = ir.FunctionType(_FLOAT, [_FLOAT, eight])
    add = builder.module.declare_intrinsic("llvm.vector.reduce.fadd.v8f32", fnty=kind)
    return builder.call(add, [ir.Constant(_FLOAT, -0.0), whole], fastmath=["reassoc"])


@instruction(types.float32)
def largest(builder: Any, numbers: Any) -> Any:
    """The largest of the numbers of a register, or of a panel."""
    kind, lanes = ir.FunctionType(_FLOAT, [numbers.type]), numbers.type.count
    find = builder.module.declare_intrinsic(f"llvm.vector.reduce.fmax.v{lanes}f32", fnty=kind)
    return builder.call(find, [numbers], fastmath=_LARGER)


larger_of = instruction(None)(_larger)
"""In each lane the larger number of two registers, or panels."""


@instruction(None)
def absolute(builder: Any, numbers: Any) -> Any:
    """In each lane the absolute value."""
    words = ir.VectorType(_WORD, numbers.type.count)
    mask = ir.Constant(words, [0x7FFFFFFF] * words.count)
    return builder.bitcast(builder.and_(builder.bitcast(numbers, words), mask), numbers.type)


plus_product = instruction(None)(add_product)
"""In each lane total + left * right, rounded once; of registers or panels."""
square_root, nearest = (instruction(_register)(_computed(name)) for name in ("sqrt", "rint"))
"""In each lane the square root; the nearest whole number."""


@instruction(_register, _register, _place, _place, types.float32)
def mask_lanes(builder: Any, numbers: Any, first: Any, end: Any, other: Any) -> Any:
    """The numbers of lanes from `first` to `end`, which may be any whole numbers; `other` in other lanes."""
    lanes = ir.Constant(_WORDS, list(range(LANES)))
    first, end = (_copied(builder, builder.trunc(each, _WORD), _WORDS) for each in (first, end))
    inside = builder.and_(builder.icmp_signed(">=", lanes, first), builder.icmp_signed("<", lanes, end))
    return builder.select(inside, numbers, _copied(builder, other, _FLOATS))


@instruction(_register, _register)
def power_of_two(builder: Any, numbers: Any) -> Any:
    """2 to the power of numbers x <= 0, with a relative error below 2e-7; 2^-126 where x is below -126.

    2^x = 2^n 2^f with a whole number n and |f| <= 1/2. A float32 has its exponent from its 23rd bit on, so n,
    which rounding left in the last bits of a word, is added there to the exponent of 2^f.
    """
    numbers = _larger(builder, numbers, _constant(_LOWEST_POWER))
    f = builder.fsub(numbers, _nearest(builder, numbers))
    sum_ = _constant(_POWER[0])
    for coefficient in _POWER[1:]:
        sum_ = add_product(builder, _constant(coefficient), sum_, f)
    exponents = builder.shl(_rounded(builder, numbers), _constant(23, _WORDS))
    return builder.bitcast(builder.add(builder.bitcast(sum_, _WORDS), exponents), _FLOATS)


@instruction(None)
def gelu_of(builder: Any, x: Any) -> Any:
    """GELU, x P(X <= x) for a normal X, of a float, a register or a panel; the error is below 5e-7.

    That is max(x, 0) - z P(X > z) with z = |x|: for x < 0 it is -z P(X > z) as such, and for x >= 0 it is
    x (1 - P(X > x)). P(X > z) is smooth and small, so a polynomial in z serves for both signs: it needs one
    instruction for each power, and is faster than an exponential and a division. The polynomial is `_TAIL`
    in t = 2 z / _FAR - 1, which is in [-1, 1]; beyond `_FAR` z is taken to be `_FAR`, where z P(X > z) is
    below 1.1e-7.
    """

    def number(value: float) -> Any:
        return ir.Constant(x.type, [value] * x.type.count if isinstance(x.type, ir.VectorType) else value)

    flags = ["nnan", "nsz"]
    is_positive = builder.fcmp_ordered(">", x, number(0.0), flags=flags)
    positive = builder.select(is_positive, x, number(0.0))  # max(x, 0)
    z = builder.select(is_positive, x, builder.fneg(x))  # |x|
    z = builder.select(builder.fcmp_ordered("<", z, number(_FAR), flags=flags), z, number(_FAR))
    t = add_product(builder, number(-1.0), z, number(2 / _FAR))
    tail = number(_TAIL[0])  # becomes P(X > z), by Horner's scheme
    for coefficient in _TAIL[1:]:
        tail = add_product(builder, number(coefficient), tail, t)
    return add_product(builder, positive, builder.fneg(z), tail)


@instruction(types.void, None, _place, _place, None, _place, _place)
def transpose(builder: Any, array: Any, at: Any, row: Any, out: Any, out_at: Any, out_row: Any) -> None:
    """Write a square of LANES by LANES words of an int32 array, with rows and columns exchanged, to another.

    `at` is the place of its first number and `row` the distance between its rows. Halves of the square that
    lie across from each other change places, then quarters within them, and so on.
    """

    def place(array: Any, at: Any, number: int, row: Any) -> Any:
        return _at(builder, array, builder.add(at, builder.mul(row, _SIZE(number))), _WORDS)

    lines = [builder.load(place(array, at, number, row), align=4) for number in range(LANES)]
    half = LANES // 2
    while half:
        low = [lane + (LANES - half if lane & half else 0) for lane in range(LANES)]
        high = [lane + (LANES if lane & half else half) for lane in range(LANES)]
        for number in range(LANES):
            if not number & half:
                pair = lines[number], lines[number + half]
                lines[number], lines[number + half] = (
                    builder.shuffle_vector(*pair, ir.Constant(_WORDS, lanes)) for lanes in (low, high)
                )
        half //= 2
    for number, line in enumerate(lines):
        builder.store(line, place(out, out_at, number, out_row), align=4)


@instruction(types.float32, types.float32, types.float32)
def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two floats, in a form that LLVM vectorizes in loops, unlike Python's `max`."""
    more = builder.fcmp_ordered(">", a, b, flags=["fast"])
    return builder.select(more, a, b, flags=["fast"])


@instruction(types.float32, types.int32)
def float_of_bits(builder: Any, bits: Any) -> Any:
    """The float32 that has the same bits as an int32."""
    return builder.bitcast(bits, _FLOAT)


@inlined
def exp(x: Any) -> Any:
    """The exponential of x <= 0, with a relative error below 3e-7 - 1e-7 x.

    e^x = 2^(x log2 e) = 2^n 2^f with a whole number n and |f| <= 1/2. The bits of n + 127, moved to the
    place of a float32's exponent, are the float 2^n; 2^f is the first terms of its Taylor series. No branch
    and no table, so LLVM computes as many at once as a register has lanes. Below -87, 2^n would have no such
    bits.
    """
    power = larger(x, float32(-87.0)) * float32(1.4426950408889634)
    whole = np.floor(power + float32(0.5))
    f = power - whole
    series = float32(_SERIES[0])
    series = series * f + float32(_SERIES[1])
    series = series * f + float32(_SERIES[2])
    series = series * f + float32(_SERIES[3])
    series = series * f + float32(_SERIES[4])
    series = series * f + float32(_SERIES[5])
    series = series * f + float32(_SERIES[6])
    return series * float_of_bits((int32(whole) + int32(127)) << int32(23))
