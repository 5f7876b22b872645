"""Functions of the kernels against those of the standard library, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.kernels import functions


def test_exponentials_are_close_over_their_whole_range() -> None:
    x = np.linspace(-87, 0, 10_001).astype(np.float32)
    found = np.array([functions.exp(value) for value in x], np.float64)
    assert (np.abs(found / np.exp(x.astype(np.float64)) - 1) < 3e-7 - 1e-7 * x).all()
    assert functions.exp(np.float32(-1e30)) == pytest.approx(math.exp(-87), rel=1e-5)


def test_gelu_is_close_over_its_whole_range() -> None:
    x = np.linspace(-12, 12, 10_001).astype(np.float32)
    found = np.array([functions.gelu(value) for value in x], np.float64)
    exact = x * 0.5 * (1 + np.vectorize(math.erf)(x.astype(np.float64) / math.sqrt(2)))
    assert np.abs(found - exact).max() < 1e-6
