"""What kernels compute in registers, against NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from numba import njit

from pipeline.native import registers
from pipeline.native.compiling import OPTIONS
from pipeline.native.registers import absolute, broadcast, larger_of, load, load_sums, mask_lanes, store
from pipeline.native.tiles import LANES

N = 640


@njit(**OPTIONS)
def powers(x: Any, out: Any) -> None:
    for i in range(0, len(x), LANES):
        store(out, i, registers.power_of_two(load(x, i)))


@njit(**OPTIONS)
def computed(x: Any, whole: Any, rounded: Any, pairs: Any, kept_ones: Any, turned: Any) -> Any:
    best, sums = broadcast(np.float32(-9)), broadcast(np.float32(0))
    for i in range(0, len(x), LANES):
        part = load(x, i)
        best, sums = larger_of(best, absolute(part)), sums + registers.nearest(part) * load_sums(whole, i)
        registers.store_rounded(rounded, i, part)
        registers.store_pairs(pairs, i, part, load_sums(whole, i))
        store(kept_ones, i, mask_lanes(part, 5 - i, 100 - i, np.float32(-1)))
    registers.transpose(whole, 3, 2 * LANES, turned, 0, LANES)
    return registers.largest(best), registers.total(sums)


def test_powers_of_two_are_close_over_their_whole_range() -> None:
    x = np.linspace(-126, 0, N).astype(np.float32)
    found = np.empty_like(x)
    powers(x, found)
    assert np.abs(found / np.exp2(x.astype(np.float64)) - 1).max() < 2e-7
    powers(np.full(N, -1e30, np.float32), found)
    assert found == pytest.approx(2.0**-126, rel=2e-7)


def test_registers_are_numpy_s_arrays() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-32_767, 32_767, N).astype(np.float32)
    whole = generator.integers(-32_767, 32_768, N).astype(np.int32)
    rounded, pairs, kept_ones = np.empty(N, np.int16), np.empty(N, np.int32), np.empty_like(x)
    turned = np.empty((LANES, LANES), np.int32)
    best, sums = computed(x, whole, rounded, pairs, kept_ones, turned.reshape(-1))
    assert best == np.abs(x).max()
    assert sums == pytest.approx((np.rint(x.astype(np.float64)) * whole).sum(), rel=1e-5)
    assert (rounded == np.rint(x)).all()
    assert (pairs.view(np.int16).reshape(-1, 2) == np.stack([np.rint(x), whole], axis=1)).all()
    inside = (np.arange(N) >= 5) & (np.arange(N) < 100)
    assert (kept_ones == np.where(inside, x, -1)).all()
    rows = np.lib.stride_tricks.sliding_window_view(whole[3:], LANES)[:: 2 * LANES][:LANES]
    assert (turned == rows.T).all()


@njit(**OPTIONS)
def divided(x: Any, by: Any, out: Any) -> None:
    for i in range(0, len(x), LANES):
        store(out, i, load(x, i) / registers.square_root(load(by, i)))


def test_quotients_and_roots_are_rounded_as_numpy_rounds_them() -> None:
    generator = np.random.default_rng(0)
    x, by = (generator.uniform(1e-3, 1e3, 100 * N).astype(np.float32) for _ in range(2))
    found = np.empty_like(x)
    divided(x, by, found)
    assert (found == x / np.sqrt(by)).all()


def test_exponentials_are_close_over_their_whole_range() -> None:
    x = np.linspace(-87, 0, 10_001).astype(np.float32)
    found = np.array([registers.exp(value) for value in x], np.float64)
    assert (np.abs(found / np.exp(x.astype(np.float64)) - 1) < 3e-7 - 1e-7 * x).all()
    assert registers.exp(np.float32(-1e30)) == pytest.approx(math.exp(-87), rel=1e-5)


@njit(**OPTIONS)
def gelus(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i] = registers.gelu_of(x[i])


def test_gelu_is_close_over_its_whole_range() -> None:
    x = np.linspace(-12, 12, 10_001).astype(np.float32)
    found = np.empty(len(x))
    gelus(x, found)
    exact = x * 0.5 * (1 + np.vectorize(math.erf)(x.astype(np.float64) / math.sqrt(2)))
    assert np.abs(found - exact).max() < 1e-6
