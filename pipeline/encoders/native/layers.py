"""What the kernels read of a network, and its linear layers, computed in int16.

`pipeline.kernels.int16` tells how rows are scaled. Integer sums are exact, whatever their order, and all else
is computed token by token or text by text, in one order. So a text's vector is the same, bit by bit,
whichever texts are computed beside it.

Finer: rerankers' scores are compared with each other, and need more than that. `fine_linear` adds up only
64 products in int32, and these sums in fp32. The bound then holds for each 64 numbers of two rows, so both
rows are scaled by more, up to where their largest number fills an int16. What is lost by rounding a text's
first token, whose last state is all that a score is made of, is computed as a further row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32, int32

from pipeline.core.records import Array, Float32, Int64
from pipeline.kernels import functions
from pipeline.kernels.compiling import merged
from pipeline.kernels.functions import larger
from pipeline.kernels.int16 import PANEL, PART, PART_LENGTH, Workspace, round_rows
from pipeline.kernels.tiles import INTEGER_WIDTH, TALL, int16_tile

RESIDUE = 11_000  # times what rounding lost, at most 1/2, is an int16; PART of them are short enough
BLOCK = 96  # tokens computed together in a layer: their activations fit into the processor's cache


class Linear(NamedTuple):
    """One kind of linear layer with n outputs and k inputs, of all layers of a network; see `pack_rows`."""

    pairs: Any  # int32 [layers, n * k / 2]
    factors: Any  # float32 [layers, n]
    bias: Any  # float32 [layers, n]


class FineLinear(NamedTuple):
    """A `Linear` for `fine_linear`: of numbers x, (x - centre) * scale is rounded and multiplied.

    Scales bring numbers that are often large, and the weights that they are multiplied with, to a like size.
    The weights were divided by the scales, and what the centres take away was added to the bias.
    """

    pairs: Any
    factors: Any
    bias: Any
    centre: Any  # float32 [layers, k]
    scale: Any  # float32 [layers, k]


class LayerNorm(NamedTuple):
    """Layer normalizations of all layers, float32 [layers, width], or of the embeddings, [width]."""

    weight: Any
    bias: Any


class Weights(NamedTuple):
    """A network's weights; the embeddings are float32 [vocabulary, width] and [positions, width]."""

    words: Any  # token embeddings
    positions: Any  # position embeddings plus that of token type 0; for pairs also plus those of other types
    embedded: LayerNorm  # of the sum of both
    query: Linear  # divided by the square root of a head's width
    key_value: Linear  # keys and below them values
    mixed: Linear  # output projection of attention
    attended: LayerNorm  # of its output plus the attention's input; with `Parts.before`, of that input alone
    up: Linear  # first feed-forward layer; with `Parts.gate` what is activated, and below it the other half
    down: Linear  # second feed-forward layer
    output: LayerNorm  # of its output plus the input of `up`; with `Parts.before`, of that input alone


GELU, SILU = 0, 1  # activations
EVERYWHERE = 1 << 30  # the window of a layer whose tokens all see each other


class Layout(NamedTuple):
    """Sizes of a network's layers."""

    width: int  # numbers of a hidden state, without the columns that were added
    heads: int  # of attention
    size: int  # columns of a head
    epsilon: Any  # float32, of every normalization


class Parts(NamedTuple):
    """How the layers of a network differ from BERT's; a field is empty or negative where they do not.

    BERT and its kin have None in place of it, which is a type of its own for Numba. What the condition `parts
    is None` makes unreachable is left out: `forward` is compiled for them without code that they do not need.
    """

    before: bool  # normalization comes before attention and feed-forward, and not after their sum with input
    normalized: Any  # int64 [layers]: whether the input of attention is normalized, with `before`
    last: LayerNorm  # of the last hidden states, with `before`; [1, width]
    gate: int  # GELU or SILU: so activated, one half of `up` is multiplied by the other; -1 is plain GELU
    windows: Any  # int64 [layers]: the largest distance of two tokens that see each other
    turns: Any  # float32 [tables, positions, size of a head]: cosines, then sines, for `rotate`
    tables: Any  # int64 [layers]: which table of `turns` gives a layer the angles of positions
    biases: Any  # float32 [heads, 2 positions - 1]: added to scores, by how far a key is ahead


@merged
def round_finely(given: Float32, centre: Float32, scale: Float32, row: Array, residue: Array) -> Any:
    """Write x = (given - centre) * scale to `row`, scaled as far as `fine_linear` allows; return the factor.

    `given`, `centre` and `scale` are float32 [k], `row` is int16 [k]. What rounding lost goes to `residue`,
    times RESIDUE, unless that is empty.
    """
    x = np.empty(len(given), np.float32)
    for j in range(len(given)):
        x[j] = (given[j] - centre[j]) * scale[j]
    square, largest = float32(1e-30), float32(1e-30)
    for start in range(0, len(x), PART):
        part, total = x[start : start + PART], float32(0)
        for j in range(PART):
            total += part[j] * part[j]
            largest = larger(largest, abs(part[j]))
        square = larger(square, total)
    by_length, by_size = float32(PART_LENGTH) / np.sqrt(square), float32(32_767) / largest
    factor = by_length if by_length < by_size else by_size
    for j in range(len(x)):
        value = x[j] * factor
        row[j] = int32(value + (float32(0.5) if value >= float32(0) else float32(-0.5)))
    for j in range(len(residue)):
        residue[j] = int32((x[j] * factor - float32(row[j])) * float32(RESIDUE))
    return factor


@merged
def fine_linear(
    x: Float32, layers: FineLinear, layer: int, gelu: bool, space: Workspace, out: Float32,
    firsts: Int64, start: int,
) -> None:  # fmt: skip
    """As `linear`, with less rounding: for weights of `pack_rows` with `fine`.

    The rows of x are start, start + 1 … of a larger array. `firsts` are rows of that array, ascending, of
    which the residues are computed as well. These are further rows below x, so `space` holds 2 BLOCK rows.
    """
    (n, k), m = x.shape, out.shape[1]
    low, high = np.searchsorted(firsts, start), np.searchsorted(firsts, start + n)
    count, pairs, extra = n + high - low, k // 2, n
    for i in range(n):
        row = space.rows[i * k : (i + 1) * k]
        is_first = extra < count and firsts[low + extra - n] == start + i
        residue = space.rows[extra * k : extra * k + (k if is_first else 0)]
        factor = round_finely(x[i], layers.centre[layer], layers.scale[layer], row, residue)
        space.factors[i] = float32(1) / factor
        extra += is_first
    rows, weights = space.rows.view(np.int32), layers.pairs[layer]
    totals = np.empty((count + TALL) * PANEL, np.float32)
    for panel in range(0, m, PANEL):
        for i in range(0, count, TALL):
            total = totals[i * PANEL : (i + TALL) * PANEL]
            total[:] = 0
            for part in range(0, pairs, PART // 2):
                for j in range(0, PANEL, INTEGER_WIDTH):
                    int16_tile(
                        space.sums, j, PANEL, rows, i * pairs + part, pairs,
                        weights, panel * pairs + part * PANEL + j, PANEL, PART // 2,
                    )  # fmt: skip
                for j in range(TALL * PANEL):
                    total[j] += float32(space.sums[j])
        factors = layers.factors[layer, panel : panel + PANEL]
        bias = layers.bias[layer, panel : panel + PANEL]
        for i in range(n, count):
            row = firsts[low + i - n] - start
            total, more = totals[row * PANEL : (row + 1) * PANEL], totals[i * PANEL : (i + 1) * PANEL]
            for j in range(PANEL):
                total[j] += more[j] * float32(1 / RESIDUE)
        for i in range(n):
            total, factor = totals[i * PANEL : (i + 1) * PANEL], space.factors[i]
            made = out[i, panel : panel + PANEL]
            if gelu:
                for j in range(PANEL):
                    made[j] = functions.gelu(total[j] * (factor * factors[j]) + bias[j])
            else:
                for j in range(PANEL):
                    made[j] = total[j] * (factor * factors[j]) + bias[j]


@merged
def linear(x: Float32, layers: Linear, layer: int, gelu: bool, space: Workspace, out: Float32) -> None:
    """Set out [n, m] to x [n, k] times a layer's weights, plus its bias; n is at most BLOCK.

    All tiles of a panel are computed before the next panel, which is read from memory once for all rows. The
    last tile may have rows beyond n: they hold what an earlier block left, and their sums are not read.
    """
    round_rows(x, space)
    n, pairs = x.shape[0], x.shape[1] // 2
    m = out.shape[1]
    rows, weights = space.rows.view(np.int32), layers.pairs[layer]
    factors, bias = layers.factors[layer], layers.bias[layer]
    for panel in range(0, m, PANEL):
        for i in range(0, n, TALL):
            for j in range(0, PANEL, INTEGER_WIDTH):
                int16_tile(
                    space.sums, i * m + panel + j, m, rows, i * pairs, pairs,
                    weights, panel * pairs + j, PANEL, pairs,
                )  # fmt: skip
    for i in range(n):
        sums, factor = space.sums[i * m : (i + 1) * m], space.factors[i]
        if gelu:
            for j in range(m):
                out[i, j] = functions.gelu(float32(sums[j]) * (factor * factors[j]) + bias[j])
        else:
            for j in range(m):
                out[i, j] = float32(sums[j]) * (factor * factors[j]) + bias[j]


@merged
def multiply(
    x: Float32, layers: Linear | FineLinear, layer: int, gelu: bool, space: Workspace, out: Float32,
    firsts: Int64, start: int, fine: bool | None,
) -> None:  # fmt: skip
    """One linear layer, by `linear` if `fine` is None, else by `fine_linear`."""
    if fine is None:
        linear(x, layers, layer, gelu, space, out)
    else:
        fine_linear(x, layers, layer, gelu, space, out, firsts, start)
