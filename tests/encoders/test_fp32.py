"""Linear layers in fp32: against NumPy in float64, and bit by bit whatever stands in other rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.core.records import Float32, Float64
from pipeline.encoders.native.fp32 import FloatLinear, float_linear, in_panels
from pipeline.encoders.native.layers import BLOCK
from pipeline.kernels.int16 import Workspace


def layer_of(x: Float32, weights: Float32, bias: Float32, gelu: bool) -> Float32:
    size = BLOCK * max(*weights.shape)
    rows = np.full(size, np.nan, np.float32).view(np.int16)  # what an earlier block may have left
    space, out = Workspace(rows, np.empty(BLOCK, np.float32), np.empty(size, np.int32)), len(weights)
    made = np.empty((len(x), out), np.float32)
    float_linear(x, FloatLinear(in_panels(weights)[None], bias[None]), 0, gelu, space, made)
    return made


def gelu(x: Float64) -> Float64:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("rows", [1, 7, 96])
@pytest.mark.parametrize(("k", "n"), [(64, 128), (1536, 64)])
def test_a_linear_layer_is_numpy_s_whatever_rows_are_beside(rows: int, k: int, n: int) -> None:
    generator = np.random.default_rng(0)
    x, weights = (generator.standard_normal((m, k)).astype(np.float32) for m in (rows, n))
    bias = generator.standard_normal(n).astype(np.float32)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64) + bias
    size = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(weights, axis=1)
    found = layer_of(x, weights, bias, False)
    assert (np.abs(found - exact) / size).max() < 1e-6
    assert (np.abs(layer_of(x, weights, bias, True) - gelu(exact)) / (size + 1)).max() < 1e-6
    assert (found[-1] == layer_of(x[-1:], weights, bias, False)[0]).all()
