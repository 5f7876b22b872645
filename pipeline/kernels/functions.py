"""Functions of single numbers, in forms that LLVM computes for a whole register at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import float32, int32, types
from numba.extending import intrinsic

from pipeline.kernels.compiling import inlined


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


@inlined
def gelu(x: Any) -> Any:
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
    tail = float32(0.5) * series * t * exp(-z * z)
    return float32(0.5) * (x + size) - size * tail
