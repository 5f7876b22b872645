"""What the kernels read of a network, and its linear layers.

`pipeline.kernels.int16` tells how rows are scaled. Integer sums are exact, whatever their order, and all else
is computed token by token or text by text, in one order. So a text's vector is the same, bit by bit,
whichever texts are computed beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32
from pipeline.encoders.native.rows import scale_sums
from pipeline.kernels.compiling import merged
from pipeline.kernels.int16 import PANEL, Workspace, round_rows
from pipeline.kernels.tiles import INTEGER_WIDTH, TALL, fetching_int16_tile

BLOCK = 96  # tokens computed together in a layer: their activations fit into the processor's cache


@merged
def block_size(tokens: int) -> int:
    """Tokens of each block: blocks of about one size, because each reads all weights, however small it is."""
    blocks = max(-(-tokens // BLOCK), 1)
    return -(-tokens // (blocks * TALL)) * TALL


class Linear(NamedTuple):
    """One kind of linear layer with n outputs and k inputs, of all layers of a network; see `pack_rows`."""

    pairs: Any  # int32 [layers, n * k / 2]
    factors: Any  # float32 [layers, n]
    bias: Any  # float32 [layers, n]


class LayerNorm(NamedTuple):
    """Layer normalizations of all layers, float32 [layers, width], or of the embeddings, [width]."""

    weight: Any
    bias: Any


class Weights(NamedTuple):
    """A network's weights; the embeddings are float32 [vocabulary, width] and [positions, width]."""

    words: Any  # token embeddings
    positions: Any  # position embeddings plus that of token type 0
    embedded: LayerNorm  # of the sum of both
    query: Linear  # divided by the square root of a head's width
    key_value: Linear  # keys and below them values
    mixed: Linear  # output projection of attention
    attended: LayerNorm  # of its output plus the attention's input; with `Parts.before`, of that input alone
    up: Linear  # first feed-forward layer; with `Parts.gate` what is activated, and below it the other half
    down: Linear  # second feed-forward layer
    output: LayerNorm  # of its output plus the input of `up`; with `Parts.before`, of that input alone


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
def multiply_rows(sums: Any, n: int, m: int, rows: Any, pairs: int, weights: Any) -> None:
    """Set sums int32 [n, m] to rows of pairs, int32 [n, pairs], times weights in panels; all are laid flat.

    All tiles of a panel are computed before the next panel, which is read from memory once for all rows. The
    last tile may have rows beyond n: they hold what an earlier block left, and their sums are not read.
    """
    step = -(-PANEL // -(-n // TALL))  # all tiles of a panel together fetch the next one
    for panel in range(0, m, PANEL):
        for i in range(0, n, TALL):
            ahead = (panel + PANEL) * pairs + i // TALL * step * pairs
            for j in range(0, PANEL, INTEGER_WIDTH):
                fetching_int16_tile(
                    sums, i * m + panel + j, m, rows, i * pairs, pairs,
                    weights, panel * pairs + j, PANEL, pairs, ahead, step,
                )  # fmt: skip


@merged
def linear(x: Float32, layers: Linear, layer: int, gelu: bool, space: Workspace, out: Float32) -> None:
    """Set out [n, m] to x [n, k] times a layer's weights, plus its bias; n is at most BLOCK."""
    round_rows(x, space)
    n, m = out.shape
    multiply_rows(space.sums, n, m, space.rows.view(np.int32), x.shape[1] // 2, layers.pairs[layer])
    factors, bias = layers.factors[layer], layers.bias[layer]
    for i in range(n):
        scale_sums(space.sums[i * m : (i + 1) * m], space.factors[i], factors, bias, gelu, out[i])
