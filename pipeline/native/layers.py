"""What the kernels read of a network, and its linear layers.

`integers` says how rows are scaled. Integer sums are exact, whatever their order, and all else
is computed token by token or text by text, in one order. So a text's vector is the same, bit by bit,
whichever texts are computed beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32, int32

from pipeline.core.records import Float32, Int32, Int64, UInt8
from pipeline.native import amx
from pipeline.native.compiling import merged
from pipeline.native.integers import PANEL, ROW_LENGTH, TILE_BYTES, TILE_ROWS, Workspace, aligned_bytes
from pipeline.native.registers import (
    STRETCH,
    exp,
    gelu,
    gelu_panel,
    load_panel,
    load_stretch,
    load_sums_panel,
    spread_panel,
    spread_stretch,
    store,
    total,
    total_of_stretch,
)
from pipeline.native.tiles import INTEGER_WIDTH, TALL, fetching_int16_tile

GELU, SILU = 0, 1  # activations
CHUNK = 384  # columns of a tile of rows that AMX multiplies with weights before the next ones
GROUP = 1 << 17  # numbers of weights that are multiplied with all rows before the next ones
SCRATCH = 3 * amx.SUMS  # int32 at the end of a workspace's sums that AMX writes its tiles to
BLOCK = 192  # most tokens computed together in a layer: their activations fit into the processor's cache
SMALL_BLOCK = 96  # the same for VNNI, which needs less of the next weights at a time


@merged
def block_size(tokens: int, planes: Any) -> int:
    """Tokens of each block: blocks of about one size, because each reads all weights, however small it is.

    `planes` are those of the weights, or None.
    """
    most, multiple = (SMALL_BLOCK, TALL) if planes is None else (BLOCK, TILE_ROWS)
    blocks = max(-(-tokens // most), 1)
    return -(-tokens // (blocks * multiple)) * multiple


class Linear(NamedTuple):
    """One kind of linear layer with n outputs and k inputs, of all layers of a network; see `pack_rows`."""

    pairs: Any  # int32 [layers, n * k / 2]; None where there are planes
    factors: Any  # float32 [layers, n]
    bias: Any  # float32 [layers, n]
    planes: Any = None  # `amx.Planes` of uint8 [layers, n * k] where AMX computes the products

    def on_tiles(self) -> Linear:
        """The same layers for AMX."""
        inputs = self.pairs.shape[1] * 2 // self.factors.shape[1]
        return self._replace(pairs=None, planes=amx.panels_to_planes(self.pairs, inputs))


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
def _row_factor(row: Float32) -> Any:
    """What a row is multiplied with to have the length ROW_LENGTH.

    Written in registers: LLVM would add the squares of a plain loop in one order for VNNI's kernel and in
    another for AMX's, and the last bits of both must be the same.
    """
    squares, whole = spread_stretch(float32(0)), len(row) // STRETCH * STRETCH
    for start in range(0, whole, STRETCH):
        numbers = load_stretch(row, start)
        squares = squares + numbers * numbers
    # a row of zeros has a length as well, so nothing is divided by 0
    square = float32(1e-30) + total_of_stretch(squares)
    for j in range(whole, len(row)):
        square += row[j] * row[j]
    return float32(ROW_LENGTH) / np.sqrt(square)


@merged
def round_rows(x: Float32, space: Workspace) -> None:
    """Write x float32 [n, k] to `space.rows` as int16, each row scaled to ROW_LENGTH and rounded."""
    n, k = x.shape
    for i in range(n):
        factor = _row_factor(x[i])
        space.factors[i] = float32(1) / factor
        row = space.rows[i * k : (i + 1) * k]
        for j in range(k):
            row[j] = int32(np.rint(x[i, j] * factor))


@merged
def round_planes(x: Float32, space: Workspace, high: UInt8, low: UInt8) -> None:
    """As `round_rows`, to the left side of a product on AMX; see `amx.Planes`."""
    n, k = x.shape
    for i in range(n):
        factor = _row_factor(x[i])
        space.factors[i] = float32(1) / factor
        for start in range(0, k, TILE_BYTES):
            to = (i // TILE_ROWS * k + start) * TILE_ROWS + i % TILE_ROWS * TILE_BYTES
            part = x[i, start : start + TILE_BYTES]
            high_row, low_row = high[to : to + TILE_BYTES], low[to : to + TILE_BYTES]
            for j in range(TILE_BYTES):
                whole = int32(np.rint(part[j] * factor))
                high_row[j], low_row[j] = whole >> int32(8), whole


@merged
def multiply_rows(sums: Any, n: int, m: int, rows: Any, pairs: int, weights: Any) -> None:
    """Set sums int32 [n, m] to rows of pairs, int32 [n, pairs], times weights in panels; all are laid flat.

    All tiles of a panel are computed before the next panel, which is read from memory once for all rows. The
    last tile may have rows beyond n: they hold what an earlier block left, and their sums are not read.
    """
    # Each tile also asks for a part of the next panel, so that memory is read while the processor multiplies:
    # all tiles of a panel together fetch the whole next one.
    step = -(-PANEL // -(-n // TALL))
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
    round_for(layers, x, space)
    factors, bias = layers.factors[layer], layers.bias[layer]
    _scaled_products(layers.planes, layers.pairs, x.shape[1], layer, factors, bias, gelu, space, out)


aligned: Any = merged(aligned_bytes)


@merged
def workspace(inputs: int, outputs: int) -> Workspace:
    """Memory for the products of BLOCK rows of so many inputs and outputs."""
    return Workspace(
        aligned(BLOCK * inputs * 2).view(np.int16),
        np.empty(BLOCK, np.float32),
        aligned((BLOCK * outputs + SCRATCH) * 4).view(np.int32),
    )


@merged
def round_for(layers: Linear, x: Float32, space: Workspace) -> None:
    """Round x [n, k] as the product with weights in planes, or in pairs, reads it."""
    _round_for(layers.pairs, layers.planes, x, space)


@merged
def _round_for(pairs: Any, planes: Any, x: Float32, space: Workspace) -> None:
    # Of an argument that is None, Numba does not compile what stands below "is not None", here and below: so
    # neither VNNI's code where AMX is used nor the other way round.
    if pairs is not None:
        round_rows(x, space)
    if planes is not None:
        memory, half = space.rows.view(np.uint8), len(space.rows)
        round_planes(x, space, memory[:half], memory[half:])


@merged
def _scaled_products(
    planes: Any, pairs: Int32, k: int, layer: int, factors: Float32, bias: Float32, gelu: bool,
    space: Workspace, out: Float32,
) -> None:  # fmt: skip
    n, m = out.shape
    if pairs is not None:
        multiply_rows(space.sums, n, m, space.rows.view(np.int32), k // 2, pairs[layer])
        _scale_sums(space, 0, n, factors, bias, 0, m, gelu, out)
    if planes is not None:
        group = min(max(GROUP // (k * PANEL), 1) * PANEL, m)
        # sums are scaled while they are in the first cache: the more chunks a row has, the more of them
        # must wait for all chunks, so that each chunk is read once
        wide = min(-(-k // CHUNK) * PANEL, group)
        for start in range(0, m, group):
            stop = min(start + group, m)
            far = stop * k
            for first in range(0, n, TILE_ROWS):
                last = min(first + TILE_ROWS, n)
                for left in range(start, stop, wide):
                    right = min(left + wide, stop)
                    far = _multiply_tile(space.sums, first, space, planes, layer, left, right, k, far)
                    _scale_sums(space, first, last, factors, bias, left, right, gelu, out)


@merged
def multiply_panel(sums: Int32, n: int, layers: Linear, space: Workspace, panel: int, k: int) -> None:
    """Set sums int32 [n, 64] to products of rows that `round_for` wrote with 64 rows of the first layer."""
    _multiply_panel(layers.planes, layers.pairs, sums, n, space, panel, k)


@merged
def _multiply_panel(
    planes: Any, pairs: Int32, sums: Int32, n: int, space: Workspace, panel: int, k: int
) -> None:
    if pairs is not None:
        multiply_rows(sums, n, PANEL, space.rows.view(np.int32), k // 2, pairs[0, panel * k // 2 :])
    if planes is not None:
        far = (panel + PANEL) * k
        for first in range(0, n, TILE_ROWS):
            part, end = sums[first * PANEL :], panel + PANEL
            far = _multiply_tile(part, first, space, planes, 0, panel, end, k, far)


@merged
def _multiply_tile(
    sums: Int32, first: int, space: Workspace, planes: Any, layer: int, start: int, end: int, k: int, far: int
) -> int:
    """Set sums int32 [16, end - start] to the products of 16 rows with weights [start, end).

    Reading tiles limits the product, not multiplying them. So CHUNK columns of the rows stay in the first
    cache, and the weights pass by, 16 of them at a time. The weights of a group stay in the second cache
    until all rows are multiplied with them, while the next ones are fetched.

    Returns:
        `far`, the place of what is fetched, moved on.
    """
    memory, half = space.rows.view(np.uint8), len(space.rows)
    high, low, scratch = planes.high[layer], planes.low[layer], space.sums[-SCRATCH:]
    for column in range(0, k, CHUNK):
        steps = min(CHUNK, k - column) // TILE_BYTES
        left = first * k + column * TILE_ROWS
        for strip in range(start, end, TILE_ROWS):
            right = strip * k + column * TILE_ROWS
            amx.int16_block(
                sums, strip - start, end - start, memory[:half], memory[half:], left,
                high, low, right, steps, column, scratch, far,
            )  # fmt: skip
            far += steps * amx.FETCHED * TILE_BYTES
    return far


@merged
def _scale_sums(
    space: Workspace, first: int, last: int, factors: Float32, bias: Float32, left: int, right: int,
    gelu: bool, out: Float32,
) -> None:  # fmt: skip
    """Set a part of `out` to the sums of these rows and columns times both factors, plus bias.

    The factors of `space` are those of the layer's input, and `factors` those of the rows of weights.
    """
    width, m = right - left, out.shape[1]
    for row in range(first, last):
        scale, sums_at, out_at = spread_panel(space.factors[row]), (row - first) * width, row * m + left
        for j in range(0, width, PANEL):
            factor = scale * load_panel(factors, left + j)
            numbers = load_sums_panel(space.sums, sums_at + j) * factor + load_panel(bias, left + j)
            if gelu:
                numbers = gelu_panel(numbers)
            store(out, out_at + j, numbers)


@merged
def copy_rows(rows: Float32, numbers: Int64, out: Float32) -> None:
    """Set out [n, width] to rows[numbers]; `out` may be `rows` itself if numbers[i] >= i."""
    for i in range(len(numbers)):
        row, copy = rows[numbers[i]], out[i]
        for j in range(len(copy)):
            copy[j] = row[j]


@merged
def add(x: Float32, more: Float32) -> None:
    """Add `more` to x [n, width] in place."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += more[i, j]


@merged
def _normalize_row(
    x: Float32, sums: Any, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32
) -> None:
    """Normalize a row, of which `sums` is the sum of all panels; columns from `width` on hold zeros."""
    mean = total(sums) / float32(width)
    means, squares = spread_panel(mean), spread_panel(float32(0))
    for j in range(0, len(x), PANEL):
        apart = load_panel(x, j) - means
        squares = squares + apart * apart
    # each added column, which holds 0, counted the square of the mean
    square = total(squares) - float32(len(x) - width) * (mean * mean)
    factor = float32(1) / np.sqrt(square / float32(width) + epsilon)
    scale = spread_panel(factor)
    for j in range(0, len(x), PANEL):
        scaled = (load_panel(x, j) - means) * scale
        store(out, j, scaled * load_panel(weight, j) + load_panel(bias, j))


@merged
def normalize(x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32) -> None:
    """Set `out` to x [n, columns] with the first `width` numbers of each row normalized; it may be x."""
    for i in range(x.shape[0]):
        row, sums = x[i], spread_panel(float32(0))
        for j in range(0, len(row), PANEL):
            sums = sums + load_panel(row, j)
        _normalize_row(row, sums, weight, bias, width, epsilon, out[i])


@merged
def add_and_normalize(
    x: Float32, more: Float32, weight: Float32, bias: Float32, width: int, epsilon: float
) -> None:
    """Add `more` to x in place, then normalize it; see `normalize`."""
    for i in range(x.shape[0]):
        row, added, sums = x[i], more[i], spread_panel(float32(0))
        for j in range(0, len(row), PANEL):
            numbers = load_panel(row, j) + load_panel(added, j)
            sums = sums + numbers
            store(row, j, numbers)
        _normalize_row(row, sums, weight, bias, width, epsilon, row)


@merged
def gate(made: Float32, activation: int, out: Float32) -> None:
    """Set out [n, inner] to the left half of `made` [n, 2 inner], activated, times its right half.

    SiLU is x / (1 + e^-x); with e^-|x|, which `exp` gives, that is x / (1 + e) or x e / (1 + e).
    """
    inner = out.shape[1]
    for i in range(out.shape[0]):
        left, right = made[i, :inner], made[i, inner:]
        if activation == GELU:
            for j in range(inner):
                out[i, j] = gelu(left[j]) * right[j]
        else:
            for j in range(inner):
                small = exp(-abs(left[j]))
                share = (float32(1) if left[j] >= float32(0) else small) / (float32(1) + small)
                out[i, j] = left[j] * share * right[j]


@merged
def rotate(x: Float32, places: Int64, turns: Float32, heads: int, size: int) -> None:
    """Turn the heads of x [n, columns] in place, by angles of each row's place in its text (RoPE).

    Numbers j and j + half of a head are a point in the plane, turned by the angle number j of the place: so
    the product of a query and a key depends on how far apart they are, and not on where.

    Args:
        x: float32, with heads of `size` columns, one beside the other.
        places: int64 [n].
        turns: float32 [positions, width of a head]: cosines of the angles, then their sines.
        heads: Number of heads.
        size: Columns of a head.
    """
    half = turns.shape[1] // 2
    for i in range(x.shape[0]):
        cosines, sines = turns[places[i], :half], turns[places[i], half:]
        for head in range(0, heads * size, size):
            left, right = x[i, head : head + half], x[i, head + half : head + 2 * half]
            for j in range(half):
                across, up = left[j], right[j]
                left[j] = across * cosines[j] - up * sines[j]
                right[j] = up * cosines[j] + across * sines[j]
