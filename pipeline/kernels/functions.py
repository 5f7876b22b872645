"""Functions of single numbers, in forms that LLVM computes for a whole register at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int32, types
from numba.extending import intrinsic

from pipeline.kernels.compiling import inlined
from pipeline.kernels.tiles import add_product

_FAR = 5.5
_TAIL = (
    -0.00560500892, 0.00536690746, 0.030181706, -0.0436106212, -0.0491053015, 0.133307889, -0.0349267796,
    -0.163107842, 0.218442023, -0.0513857007, -0.177167684, 0.271888524, -0.206807807, 0.0945579782,
    -0.0250080694, 0.00297977403,
)  # fmt: skip
"""The polynomial in 2 z / 5.5 - 1, the highest power first, whose product with z is nearest to z P(X > z)
for a normal X and z from 0 to 5.5; the error is 2e-7."""


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
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


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
    series = float32(1.5403530393381610e-4)
    series = series * f + float32(1.3333558146428443e-3)
    series = series * f + float32(9.6181291076284772e-3)
    series = series * f + float32(5.5504108664821580e-2)
    series = series * f + float32(2.4022650695910072e-1)
    series = series * f + float32(6.9314718055994531e-1)
    series = series * f + float32(1.0)
    return series * _float_of_bits((int32(whole) + int32(127)) << int32(23))


def write_gelu(builder: Any, x: Any) -> Any:
    """LLVM's instructions for GELU, x times the normal distribution function at x, of a number or a vector.

    That is the larger of x and 0, less z P(X > z) with z = |x| and a normal X. The second term has no kink,
    and beyond z = 5.5 it is below 1.1e-7. A polynomial needs one instruction for each of its powers, and is
    faster than an exponential and a division.
    """

    def number(value: float) -> Any:
        return ir.Constant(x.type, [value] * x.type.count if isinstance(x.type, ir.VectorType) else value)

    flags = ["nnan", "nsz"]
    above = builder.fcmp_ordered(">", x, number(0.0), flags=flags)
    positive, z = builder.select(above, x, number(0.0)), builder.select(above, x, builder.fneg(x))
    z = builder.select(builder.fcmp_ordered("<", z, number(_FAR), flags=flags), z, number(_FAR))
    t = add_product(builder, number(-1.0), z, number(2 / _FAR))
    tail = number(_TAIL[0])
    for coefficient in _TAIL[1:]:
        tail = add_product(builder, number(coefficient), tail, t)
    return add_product(builder, positive, builder.fneg(z), tail)


@intrinsic
def _gelu(typing: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return write_gelu(builder, arguments[0])

    return types.float32(types.float32), generate


@inlined
def gelu(x: Any) -> Any:
    """See `write_gelu`; the error is below 5e-7, about the rounding of the largest numbers that have one."""
    return _gelu(x)
