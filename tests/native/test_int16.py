"""The arithmetic in int16: against NumPy in float64, at the edge of an int32, for every length of text."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numba import njit, typeof

from pipeline.core import machine
from pipeline.core.records import Float32, Float64
from pipeline.native import attention, compiling, layers
from pipeline.native.amx import CONFIGURATION
from pipeline.native.integers import PANEL, TILE_ROWS, pack_blocks
from pipeline.native.layers import MOST_TOKENS, MOST_TOKENS_VNNI, Linear
from pipeline.native.tiles import TALL

linear, add_and_normalize, attend, block_size = (
    njit(**compiling.OPTIONS)(each.py_func)  # with an entry point for Python
    for each in (layers.linear, layers.add_and_normalize, attention.attend, layers.block_size)
)


def arguments(x: Float32, weights: Float32, bias: Float32 | None = None, gelu: bool = False) -> Any:
    """What `layers.linear` takes."""
    pairs, factors = pack_blocks(weights)
    bias = np.zeros(len(weights), np.float32) if bias is None else bias
    layer, space = Linear(pairs[None], factors[None], bias[None]), layers.workspace(*weights.shape[::-1])
    return x, layer, 0, gelu, space, np.empty((len(x), len(weights)), np.float32)


def layer_of(x: Float32, weights: Float32, bias: Float32 | None = None, gelu: bool = False) -> Float32:
    given = arguments(x, weights, bias, gelu)
    linear(*given)
    out: Float32 = given[-1]
    return out


def gelu(x: Float64) -> Float64:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("rows", [1, 5, 6, 7, 96])
@pytest.mark.parametrize(("k", "n"), [(64, 128), (384, 64), (1536, 384), (64, 64)])
def test_a_linear_layer_is_numpy_s(rows: int, k: int, n: int) -> None:
    generator = np.random.default_rng(0)
    x, weights = (generator.standard_normal((m, k)).astype(np.float32) for m in (rows, n))
    bias = generator.standard_normal(n).astype(np.float32)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64) + bias
    size = np.sqrt((x.astype(np.float64) ** 2).sum(1))[:, None] * np.linalg.norm(weights, axis=1)
    assert (np.abs(layer_of(x, weights, bias) - exact) / size).max() < 1e-4
    assert (np.abs(layer_of(x, weights, bias, gelu=True) - gelu(exact)) / (size + 1)).max() < 1e-4


@pytest.mark.parametrize(
    ("planes", "most", "rows"), [(None, MOST_TOKENS_VNNI, TALL), (CONFIGURATION, MOST_TOKENS, TILE_ROWS)]
)
def test_blocks_are_of_one_size_and_end_with_a_whole_tile(planes: Any, most: int, rows: int) -> None:
    for tokens in (1, 6, 95, 96, 97, 192, 193, 500, 512, 577):
        size, fewest = block_size(tokens, planes), -(-tokens // most)
        assert size % rows == 0
        assert size <= most
        assert -(-tokens // size) <= fewest
        assert size * fewest - tokens < rows * fewest


@pytest.mark.parametrize("width", [64, 50, 128, 100])
def test_normalization_is_numpy_s_and_leaves_added_columns_at_0(width: int) -> None:
    generator, columns = np.random.default_rng(0), -(-width // PANEL) * PANEL
    x, more = np.zeros((2, 3, columns), np.float32)
    weight, bias = np.zeros((2, columns), np.float32)
    for array in (x, more, weight, bias):
        array[..., :width] = generator.standard_normal((*array.shape[:-1], width)) + 1
    added = (x.astype(np.float64) + more)[:, :width]
    scaled = (added - added.mean(1, keepdims=True)) / np.sqrt(added.var(1, keepdims=True) + 1e-12)
    add_and_normalize(x, more, weight, bias, width, np.float32(1e-12))
    assert x[:, :width] == pytest.approx(scaled * weight[:width] + bias[:width], abs=2e-6)
    assert (x[:, width:] == 0).all()


@pytest.mark.parametrize("k", [64, 384, 1536, 4096, 16384])
@pytest.mark.parametrize("ones", [1, 2, None], ids=["one number", "two", "all"])
def test_the_largest_sum_there_can_be_fits(k: int, ones: int | None) -> None:
    """By Cauchy and Schwarz that of a row with itself, whether its length is in one number or in all."""
    row = np.zeros((1, k), np.float32)
    row[:, :ones] = 7.5
    weights = np.repeat(row, 64, axis=0) * 0.01
    weights[1::2] *= -1
    expected = 7.5 * 0.075 * (ones or k) * np.tile([1, -1], 32)
    assert layer_of(row, weights)[0] == pytest.approx(expected, rel=2e-3)


@given(
    st.lists(st.sampled_from([0.0, 1e-20, 1e-3, 1.0, 1e3, 1e15]), min_size=64, max_size=64), st.integers(0)
)
def test_one_number_above_all_costs_no_more_than_its_own_precision(sizes: list[float], seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = (generator.standard_normal((2, 64)) * sizes).astype(np.float32)
    weights = generator.standard_normal((64, 64)).astype(np.float32)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    size = np.linalg.norm(x.astype(np.float64), axis=1)[:, None] * np.linalg.norm(weights, axis=1)
    assert (np.abs(layer_of(x, weights) - exact) <= 3e-4 * size + 1e-12).all()


@pytest.mark.parametrize("lengths", [[1], [5, 6, 7], [31, 1, 33, 16], [1031]], ids=str)
@pytest.mark.parametrize(
    ("heads", "size", "window", "biased"),
    [(2, 32, 9999, False), (1, 64, 9999, True), (1, 96, 20, False), (2, 32, 0, True)],
)
def test_attention_is_numpy_s(lengths: list[int], heads: int, size: int, window: int, biased: bool) -> None:
    generator, tokens, width = np.random.default_rng(2), sum(lengths), heads * size
    query = (generator.standard_normal((tokens, width)) * 8 / size**0.5).astype(np.float32)
    key_value = generator.standard_normal((tokens, 2 * width)).astype(np.float32)
    texts = np.concatenate([[0], np.cumsum(lengths)])
    out = np.empty_like(query)
    drawn = generator.standard_normal((heads, 2 * max(lengths) - 1)).astype(np.float32)
    biases = attention.scaled_biases(drawn) if biased else None
    memory = attention.memory(texts, heads, size, width)
    attend(query, texts, key_value, texts, heads, size, window, biases, memory, out)
    first = np.empty_like(query)
    firsts = np.concatenate([query[texts[:-1]], query])
    attend(firsts, np.arange(len(texts)), key_value, texts, heads, size, window, biases, memory, first)
    for text, (start, end) in enumerate(itertools.pairwise(texts)):
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            keys, values = key_value[start:end, part], key_value[start:end, width:][:, part]
            scores = query[start:end, part].astype(np.float64) @ keys.T
            ahead = np.arange(end - start) - np.arange(end - start)[:, None]
            if biased:
                scores += drawn[head, ahead + max(lengths) - 1]
            scores[np.abs(ahead) > window] = -np.inf
            shares = np.exp(scores - scores.max(1, keepdims=True))
            expected = shares / shares.sum(1, keepdims=True) @ values
            assert np.abs(out[start:end, part] - expected).max() < 5e-3
            assert np.abs(first[text, part] - expected[0]).max() < 5e-3


@pytest.mark.parametrize("tokens", [1, 2, 15, 2999])
@pytest.mark.parametrize("value", [3.7, -1e-20])
def test_the_largest_sum_of_attention_fits(tokens: int, value: float) -> None:
    query, out = np.zeros((2, tokens, 32), np.float32)
    query[::2] = 5  # along the keys, which are all alike: as the others, these see all with like shares
    key_value = np.full((tokens, 64), value, np.float32)
    texts = np.array([0, tokens])
    memory = attention.memory(texts, 1, 32, 32)
    attend(query, texts, key_value, texts, 1, 32, attention.EVERYWHERE, None, memory, out)
    assert out == pytest.approx(value, rel=5e-4)


def test_two_products_and_their_sum_are_one_instruction() -> None:
    """Where there is one, as `has_vnni` says; LLVM has to find it in what is written out."""
    types = tuple(map(typeof, arguments(np.ones((6, 64), np.float32), np.ones((64, 64), np.float32))))
    linear.compile(types)
    assert ("vpdpwssd" in linear.inspect_asm(types)) == machine.has_vnni()
