"""What the kernels read of a network, and its linear layers.

`integers` says how rows are scaled. Integer sums are exact, whatever their order, and all else, such as the
sum of the blocks of a row, is computed token by token or text by text, in one order. So a text's vector is
the same, bit by bit, whichever texts are computed beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32

from pipeline.core.records import Float32, Int64, UInt8
from pipeline.native import amx
from pipeline.native.compiling import merged
from pipeline.native.integers import (
    BLOCK,
    BLOCK_LENGTH,
    PANEL,
    TILE_BYTES,
    TILE_ROWS,
    aligned_memory,
)
from pipeline.native.registers import (
    absolute,
    broadcast_panel,
    exp,
    gelu_of,
    larger_of,
    largest,
    load_panel,
    plus_product,
    store,
    store_rounded,
    total,
)
from pipeline.native.tiles import INTEGER_WIDTH, TALL, block_int16_tile

GELU, SILU = 0, 1  # activations
# Sizes for the processors that have AMX: 48 KB of first and 2 MB of second cache a core. CHUNK_COLUMNS must
# be a multiple of BLOCK, as each block of k has factors of its own. All such sizes give the same bits.
CHUNK_COLUMNS = 384
"""Columns of a tile of 16 rows that are multiplied with weights before the next ones: 16 * 384 * 2 bytes are
12 KB, a quarter of the first cache. A strip of 16 columns of weights is as much, and the next one is read."""
GROUP_NUMBERS = 1 << 17
"""Numbers of weights that are multiplied with all rows before the next ones: 256 KB. They and the next group,
which is fetched meanwhile, take a quarter of the second cache."""
MOST_TOKENS = 192
"""Most tokens computed together in a layer. What lies between the two layers of a feed-forward is 192 * 1536
* 4 bytes = 1.2 MB where a hidden state has 384 numbers, and stays in the second cache beside a group."""
MOST_TOKENS_VNNI = 96
"""The same for VNNI, for second caches of 1 MB."""
PANELS = TILE_ROWS // amx.ROWS  # of a block of AMX


@merged
def block_size(tokens: int, planes: Any) -> int:
    """Tokens of each block: blocks of about one size, because each reads all weights, however small it is.

    `planes` are those of the weights, or None.
    """
    most, multiple = (MOST_TOKENS_VNNI, TALL) if planes is None else (MOST_TOKENS, TILE_ROWS)
    blocks = max(-(-tokens // most), 1)
    return -(-tokens // (blocks * multiple)) * multiple


class Linear(NamedTuple):
    """One kind of linear layer with n outputs and k inputs, of all layers of a network; see `pack_blocks`."""

    pairs: Any  # int32 [layers, n * k / 2]; None where there are planes
    factors: Any  # float32 [layers, n]
    bias: Any  # float32 [layers, n]
    planes: Any = None  # `amx.Planes` of uint8 [layers, n * k] where AMX computes the products

    def on_tiles(self) -> Linear:
        """The same layers for AMX."""
        inputs = self.pairs.shape[1] * 2 // self.factors.shape[1]
        return self._replace(pairs=None, planes=amx.panels_to_planes(self.pairs, inputs))


class Workspace(NamedTuple):
    """Memory for the product of MOST_TOKENS rows; all but `factors` begins at a cache line."""

    rows: Any  # int16 [MOST_TOKENS * k], the rounded rows
    pairs: Any  # the same memory as int32
    high: Any  # uint8, the first half of the same memory: with `low`, the rows as `amx.Planes`
    low: Any
    factors: Any  # float32 [blocks * MOST_TOKENS], what the numbers of a row's block are multiplied with
    sums: Any  # float32, of the tile, or of the 16 rows, that are computed
    parts: Any  # int32 [3 * 256], what is in the tiles of AMX


def workspace(inputs: int, outputs: int) -> Workspace:
    """Memory for the products of MOST_TOKENS rows of so many inputs and outputs."""
    half = MOST_TOKENS * inputs
    rows = aligned_memory(np.uint8, 2 * half)
    return Workspace(
        rows.view(np.int16), rows.view(np.int32), rows[:half], rows[half:],
        np.empty(-(-inputs // BLOCK) * MOST_TOKENS, np.float32),
        aligned_memory(np.float32, max(TILE_ROWS * outputs, TALL * PANEL)),
        aligned_memory(np.int32, amx.PARTS * TILE_ROWS**2),
    )  # fmt: skip


class LayerNorm(NamedTuple):
    """Layer normalizations of all layers, float32 [layers, width], or of the embeddings, [width]."""

    weight: Any
    bias: Any


class Weights(NamedTuple):
    """A network's weights; the embeddings are float32 [vocabulary, width] and [positions, width]."""

    words: Any  # token embeddings
    positions: Any  # position embeddings plus that of token type 0
    embedding_norm: LayerNorm  # of the sum of both
    query: Linear  # divided by the square root of a head's width
    key_value: Linear  # keys and below them values
    out_proj: Linear  # output projection of attention
    attn_norm: (
        LayerNorm  # of its output plus the attention's input; with `variant.before`, of that input alone
    )
    up: Linear  # first feed-forward layer; with `variant.gate` what is activated, and below it the other half
    down: Linear  # second feed-forward layer
    output: LayerNorm  # of its output plus the input of `up`; with `variant.before`, of that input alone


class Layout(NamedTuple):
    """Sizes of a network's layers."""

    width: int  # numbers of a hidden state, without the columns that were added
    heads: int  # of attention
    size: int  # columns of a head
    epsilon: Any  # float32, of every normalization


class LayerVariant(NamedTuple):
    """How the layers of a network differ from BERT's; a field is empty or negative where they do not.

    BERT-like networks have None in place of it, which is a type of its own for Numba. What the condition
    `variant is None` makes unreachable is left out: `forward` is compiled for them without code that they do
    not need.
    """

    before: bool  # normalization comes before attention and feed-forward, and not after their sum with input
    normalized: Any  # int64 [layers]: whether the input of attention is normalized, with `before`
    last: LayerNorm  # of the last hidden states, with `before`; [1, width]
    gate: int  # GELU or SILU: so activated, one half of `up` is multiplied by the other; -1 is plain GELU
    windows: Any  # int64 [layers]: the largest distance of two tokens that see each other
    rope: Any  # float32 [tables, positions, size of a head]: cosines, then sines, for `rotate`
    tables: Any  # int64 [layers]: which table of `rope` gives a layer the angles of positions
    biases: Any  # float32 [heads, 2 positions - 1]: added to scores, by how far a key is ahead


@merged
def _block_factor(x: Float32, start: int, end: int) -> Any:
    """What x[start:end] is multiplied with to have the length BLOCK_LENGTH, or its largest number an int16's.

    Written in registers: LLVM would add the squares of a plain loop in one order for VNNI's kernel and in
    another for AMX's, and the last bits of both must be the same.
    """
    # a block of zeros has a length as well, so nothing is divided by 0
    squares, most = broadcast_panel(float32(0)), broadcast_panel(float32(1e-30))
    for at in range(start, end, PANEL):
        numbers = load_panel(x, at)
        squares, most = plus_product(squares, numbers, numbers), larger_of(most, absolute(numbers))
    by_length = float32(BLOCK_LENGTH) / np.sqrt(total(squares) + float32(1e-30))
    by_size = float32(32_767) / largest(most)
    return by_size if by_size < by_length else by_length  # NaN, if there is one


@merged
def _round_blocks(x: Float32, rows: Any, high: Any, low: Any, factors: Float32) -> None:
    """Write x [n, k] in int16, block by block; `factors` gets 1 / the scales, [blocks, MOST_TOKENS].

    VNNI reads them from `rows`, and AMX from the planes (see `amx.Planes`); what is not read is None.
    """
    n, k = x.shape
    for i in range(n):
        for block in range(0, k, BLOCK):
            end = min(block + BLOCK, k)
            factor = _block_factor(x, i * k + block, i * k + end)
            factors[block // BLOCK * MOST_TOKENS + i] = float32(1) / factor
            scale = broadcast_panel(factor)
            for start in range(block, end, PANEL):
                numbers = load_panel(x, i * k + start) * scale
                if rows is not None:
                    store_rounded(rows, i * k + start, numbers)
                if high is not None:
                    to = i // TILE_ROWS * TILE_ROWS * k + i % TILE_ROWS * TILE_BYTES + start * TILE_ROWS
                    amx.store_planes(high, low, to, numbers)


@merged
def _multiply_rows(
    weights: Any, k: int, factors: Float32, bias: Float32, gelu: bool, space: Workspace, out: Float32
) -> None:
    """As `multiply`, by tiles of 6 rows and 64 columns; weights are in panels.

    All tiles of a panel are computed before the next panel, which is read from memory once for all rows. The
    last tile may have rows beyond n: they hold what an earlier block left, and their sums are not read.
    """
    n, m = out.shape
    pairs = k // 2
    # Each tile also asks for a part of the next panel, so that memory is read while the processor multiplies:
    # all tiles of a panel together fetch the whole next one.
    step = -(-PANEL // -(-n // TALL))
    for panel in range(0, m, PANEL):
        for i in range(0, n, TALL):
            for j in range(0, PANEL, INTEGER_WIDTH):
                for start in range(0, k, BLOCK):
                    at, count = start // 2, min(BLOCK, k - start) // 2
                    block_int16_tile(
                        space.sums, j, PANEL, space.pairs, i * pairs + at, pairs,
                        weights, panel * pairs + at * PANEL + j, PANEL, count,
                        (panel + PANEL) * pairs + (i // TALL * pairs + at) * step, step,
                        space.factors, start // BLOCK * MOST_TOKENS + i, int(start == 0),
                    )  # fmt: skip
            for row in range(min(TALL, n - i)):
                sums = load_panel(space.sums, row * PANEL)
                numbers = plus_product(load_panel(bias, panel), sums, load_panel(factors, panel))
                if gelu:
                    numbers = gelu_of(numbers)
                store(out, (i + row) * m + panel, numbers)


@merged
def linear(x: Float32, layers: Linear, layer: int, gelu: bool, space: Workspace, out: Float32) -> None:
    """Set out [n, m] to x [n, k] times a layer's weights, plus its bias; n is at most MOST_TOKENS."""
    round_for(layers.pairs, layers.planes, x, space)
    factors, bias = layers.factors[layer], layers.bias[layer]
    multiply(layers.pairs, layers.planes, layer, 0, x.shape[1], factors, bias, gelu, space, out)


# Of an argument that is None, Numba does not compile what stands below "is not None", here and below: so
# neither VNNI's code where AMX is used nor the other way round.


@merged
def round_for(pairs: Any, planes: Any, x: Float32, space: Workspace) -> None:
    """Round x [n, k] as the product with weights in pairs, or in planes, reads it."""
    if pairs is not None:
        _round_blocks(x, space.rows, None, None, space.factors)
    if planes is not None:
        _round_blocks(x, None, space.high, space.low, space.factors)


@merged
def multiply(
    pairs: Any, planes: Any, layer: int, first: int, k: int, factors: Float32, bias: Float32, gelu: bool,
    space: Workspace, out: Float32,
) -> None:  # fmt: skip
    """Set out [n, m] to rows that `round_for` wrote times m rows of a layer's weights, from `first` on.

    They are multiplied with the factors of the rows and with `factors`, float32 [m], and `bias` is added.
    """
    if pairs is not None:
        _multiply_rows(pairs[layer, first * k // 2 :], k, factors, bias, gelu, space, out)
    if planes is not None:
        high, low = planes.high[layer, first * k :], planes.low[layer, first * k :]
        _multiply_tiles(high, low, k, factors, bias, gelu, space, out)


@merged
def _multiply_tiles(
    high: UInt8, low: UInt8, k: int, factors: Float32, bias: Float32, gelu: bool, space: Workspace,
    out: Float32,
) -> None:  # fmt: skip
    """As `multiply`, on AMX: block by block of 16 rows by 16 columns of `out`, and BLOCK columns of k.

    The loops, from outside in, and what stays in which cache while the next one runs:

    - groups of columns of `out`: their weights, GROUP_NUMBERS, stay in the second cache
    - tiles of 16 rows
    - `wide` columns of a group
    - chunks of k: the chunk of the 16 rows stays in the first cache, and the weights pass by
    - strips of 16 columns: 16 by 16 sums over one chunk
    - blocks of k, of which each has its own factors
    - steps of TILE_BYTES of k: one instruction of AMX

    Two things go on beside the multiplication, a bit in each step. Weights that lie `ahead`, of the next
    group, are fetched into the second cache. And as the AMX unit works beside the others, the sums of the
    block before are joined, scaled and added by `_finish`: at step 0, `begin_products` puts the block's sums
    aside, so `block` is set after its last step. The last block has none after it. k is a multiple of
    TILE_BYTES and m of PANEL.
    """
    n, m = out.shape
    group = min(max(GROUP_NUMBERS // (k * PANEL), 1) * PANEL, m)
    # a row of more chunks goes through more columns before the next chunk, so that each chunk is read once
    wide = min(-(-k // CHUNK_COLUMNS) * PANEL, group)
    block = n, n, n, n * 0  # none: of it no row counts (no literals, for which Numba would compile again)
    for group_start in range(0, m, group):
        group_end = min(group_start + group, m)
        ahead = group_end * k
        for top in range(0, n, TILE_ROWS):
            for left in range(group_start, group_end, wide):
                for chunk in range(0, k, CHUNK_COLUMNS):
                    chunk_end = min(chunk + CHUNK_COLUMNS, k)
                    for strip in range(left, min(left + wide, group_end), TILE_ROWS):
                        for start in range(chunk, chunk_end, BLOCK):
                            steps = min(BLOCK, chunk_end - start) // TILE_BYTES
                            panels_a_step = -(-PANELS // steps)
                            for step in range(steps):
                                column = (start + step * TILE_BYTES) * TILE_ROWS
                                row_tile, weight_tile = top * k + column, strip * k + column
                                amx.fetch_weights(high, low, ahead)
                                ahead += amx.FETCHED * TILE_BYTES
                                if step == 0:
                                    amx.begin_products(
                                        space.high, space.low, row_tile, high, low, weight_tile, space.parts
                                    )
                                else:
                                    amx.add_products(space.high, space.low, row_tile, high, low, weight_tile)
                                first, end = step * panels_a_step, min((step + 1) * panels_a_step, PANELS)
                                _finish(block, first, end, k, factors, bias, gelu, space, out)
                            block = top, strip, start, min(TILE_ROWS, n - top)
    amx.store_parts(space.parts)
    for panel in range(PANELS):
        _finish(block, panel, panel + 1, k, factors, bias, gelu, space, out)


@merged
def _finish(
    block: tuple[int, int, int, int], first: int, end: int, k: int, factors: Float32, bias: Float32,
    gelu: bool, space: Workspace, out: Float32,
) -> None:  # fmt: skip
    """Add panels [first, end) of a block to the sums of earlier blocks of k; after the last, scale them.

    The block is its first row and column in `out`, its first column of k, and how many of its rows count;
    `space.parts` holds its sums.
    """
    top, strip, start, rows = block
    m, factors_at = out.shape[1], start // BLOCK * MOST_TOKENS + top
    for row in range(first * amx.ROWS, min(end * amx.ROWS, rows), amx.ROWS):
        at, before = (strip + row) * TILE_ROWS, broadcast_panel(float32(0))
        if start > 0:
            before = load_panel(space.sums, at)
        scale = amx.broadcast_rows(space.factors, factors_at + row)
        sums = plus_product(before, amx.load_parts(space.parts, row), scale)
        if start + BLOCK >= k:
            scale = amx.broadcast_columns(factors, strip)
            numbers = plus_product(amx.broadcast_columns(bias, strip), sums, scale)
            if gelu:
                numbers = gelu_of(numbers)
            amx.store_rows(out, (top + row) * m + strip, m, numbers, rows - row)
        else:
            store(space.sums, at, sums)


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
    means, squares = broadcast_panel(mean), broadcast_panel(float32(0))
    for j in range(0, len(x), PANEL):
        apart = load_panel(x, j) - means
        squares = plus_product(squares, apart, apart)
    # each added column, which holds 0, counted the square of the mean
    square = total(squares) - float32(len(x) - width) * (mean * mean)
    factor = float32(1) / np.sqrt(square / float32(width) + epsilon)
    scale = broadcast_panel(factor)
    for j in range(0, len(x), PANEL):
        scaled = (load_panel(x, j) - means) * scale
        store(out, j, plus_product(load_panel(bias, j), scaled, load_panel(weight, j)))


@merged
def normalize(x: Float32, weight: Float32, bias: Float32, width: int, epsilon: float, out: Float32) -> None:
    """Set `out` to x [n, columns] with the first `width` numbers of each row normalized; it may be x."""
    for i in range(x.shape[0]):
        row, sums = x[i], broadcast_panel(float32(0))
        for j in range(0, len(row), PANEL):
            sums = sums + load_panel(row, j)
        _normalize_row(row, sums, weight, bias, width, epsilon, out[i])


@merged
def add_and_normalize(
    x: Float32, more: Float32, weight: Float32, bias: Float32, width: int, epsilon: float
) -> None:
    """Add `more` to x in place, then normalize it; see `normalize`."""
    for i in range(x.shape[0]):
        row, added, sums = x[i], more[i], broadcast_panel(float32(0))
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
                out[i, j] = gelu_of(left[j]) * right[j]
        else:
            for j in range(inner):
                small = exp(-abs(left[j]))
                share = (float32(1) if left[j] >= float32(0) else small) / (float32(1) + small)
                out[i, j] = left[j] * share * right[j]


@merged
def rotate(x: Float32, places: Int64, rope: Float32, heads: int, size: int) -> None:
    """Turn the heads of x [n, columns] in place, by angles of each row's place in its text (RoPE).

    Numbers j and j + half of a head are a point in the plane, turned by the angle number j of the place: so
    the product of a query and a key depends on how far apart they are, and not on where.

    Args:
        x: float32, with heads of `size` columns, one beside the other.
        places: int64 [n].
        rope: float32 [positions, width of a head]: cosines of the angles, then their sines.
        heads: Number of heads.
        size: Columns of a head.
    """
    half = rope.shape[1] // 2
    for i in range(x.shape[0]):
        cosines, sines = rope[places[i], :half], rope[places[i], half:]
        for head in range(0, heads * size, size):
            left, right = x[i, head : head + half], x[i, head + half : head + 2 * half]
            for j in range(half):
                across, up = left[j], right[j]
                left[j] = across * cosines[j] - up * sines[j]
                right[j] = up * cosines[j] + across * sines[j]
