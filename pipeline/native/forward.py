"""The forward pass of an encoder whose linear layers are computed in int16, and kernels of heads.

No padding: the tokens of all texts lie one after another, in arrays [tokens, width]. One forward pass
computes all networks; it reads from a `Layout` and `LayerVariant` how a network's layers are made. Where a
width is no multiple of what the tiles need, arrays have more columns. These hold zeros, which change no sum,
and what counts the numbers of a row leaves them out.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pipeline.core import machine
from pipeline.core.records import Float32, Int64
from pipeline.native import amx, attention
from pipeline.native.attention import EVERYWHERE, attend
from pipeline.native.compiling import compiled
from pipeline.native.integers import PANEL, aligned_memory
from pipeline.native.layers import (
    MOST_TOKENS,
    LayerNorm,
    LayerVariant,
    Layout,
    Linear,
    Weights,
    Workspace,
    add,
    add_and_normalize,
    block_size,
    copy_rows,
    gate,
    linear,
    multiply,
    normalize,
    rotate,
    round_for,
    workspace,
)
from pipeline.native.registers import larger


class _Memory(NamedTuple):
    """Memory of a forward pass, for all its layers: float32 [tokens, columns], if nothing else is said."""

    x: Any  # hidden states
    positions: Any  # position embeddings
    query: Any
    attn_out: Any  # what attention makes; columns that were added to the heads hold zeros
    key_value: Any
    up: Any  # [MOST_TOKENS, columns], what the first layer of a feed-forward makes
    down: Any  # the same of its second layer
    space: Workspace
    attention: attention.Memory
    firsts: Any  # int64 [texts + 1], 0, 1, ...: `texts` when each has its first token alone
    # what networks with `LayerVariant` need, else None
    normal: Any  # x normalized, or no rows
    gated: Any  # [MOST_TOKENS, columns]
    distances: Any  # int64 [tokens], how far a token is from the first of its text
    biases: Any  # see `attention.scaled_biases`


def _memory(texts: Int64, weights: Weights, layout: Layout, variant: LayerVariant | None) -> _Memory:
    tokens, columns = int(texts[-1]), weights.down.bias.shape[1]
    both, made_up = weights.key_value.bias.shape[1], weights.up.bias.shape[1]
    widest = max(made_up, both, columns)
    floats = partial(aligned_memory, np.float32)
    x, positions = floats(2, tokens, columns)
    query, attn_out = floats(2, tokens, both // 2)
    attn_out[:, layout.heads * layout.size :] = 0
    own: tuple[Any, Any, Any, Any] = (None, None, None, None)
    if variant is not None:
        own = (
            floats(tokens if variant.before else 0, columns),
            floats(MOST_TOKENS, made_up // 2),
            np.arange(tokens) - np.repeat(texts[:-1], np.diff(texts)),
            attention.scaled_biases(variant.biases),
        )
    return _Memory(
        x, positions, query, attn_out, floats(tokens, both),
        floats(MOST_TOKENS, made_up), floats(MOST_TOKENS, columns),
        workspace(widest, widest), attention.memory(texts, layout.heads, layout.size, both // 2),
        np.arange(len(texts)), *own,
    )  # fmt: skip


def forward(
    ids: Int64, positions: Int64, texts: Int64, weights: Weights, layout: Layout,
    variant: LayerVariant | None, only_first: bool,
) -> Float32:  # fmt: skip
    """The last hidden state of some texts' tokens.

    Args:
        ids: int64 [tokens], the token ids of all texts, one text after another.
        positions: int64 [tokens], each token's row of the position embeddings.
        texts: int64 [texts + 1], the first token of each text, and the end.
        weights: The network's weights.
        layout: Sizes of its layers.
        variant: `LayerVariant`, or None.
        only_first: Whether the last layer computes the first token of each text alone (see
            `limit_last_layer_to_first_token`).

    Returns:
        float32 [tokens, columns], or [texts, columns].
    """
    memory = _memory(texts, weights, layout, variant)
    hidden: Float32 = compute(ids, positions, texts, weights, layout, variant, only_first, memory)
    return hidden


@compiled
def compute(
    ids: Int64, positions: Int64, texts: Int64, weights: Weights, layout: Layout, variant: Any,
    only_first: bool, memory: _Memory,
) -> Float32:  # fmt: skip
    """`forward` within memory that is given: kernels that make none are compiled faster."""
    amx.begin(weights.query.planes)
    plain = bool(0)  # no literal: Numba would compile `linear` a second time for it
    tokens, width, epsilon = len(ids), layout.width, layout.epsilon
    heads, size, layers = layout.heads, layout.size, len(weights.down.bias)
    x, query, key_value, attn_out = memory.x, memory.query, memory.key_value, memory.attn_out
    # embeddings
    copy_rows(weights.words, ids, x)
    copy_rows(weights.positions, positions, memory.positions)
    add_and_normalize(
        x, memory.positions, weights.embedding_norm.weight, weights.embedding_norm.bias, width, epsilon
    )
    projections = weights.key_value, weights.query
    starts, queries, together = texts, tokens, block_size(tokens, weights.query.planes)
    if variant is not None:
        normal, places = memory.normal, memory.distances
    for layer in range(layers):
        norm, norm_bias = weights.attn_norm.weight[layer], weights.attn_norm.bias[layer]
        # the input of attention: x itself, or x normalized where normalization comes first
        given = x
        if variant is not None and variant.before:
            given = normal
            if variant.normalized[layer] == 1:
                normalize(x, norm, norm_bias, width, epsilon, normal)
            else:
                normal[:] = x
        # keys and values of all tokens, then queries, block by block
        for step in range(2):
            # From here on, the last layer needs the first token of each text alone: these rows move to the
            # top of x, and attention, feed-forward and normalization go on with them.
            if step == 1 and only_first and layer == layers - 1:
                starts, queries = memory.firsts, len(texts) - 1
                copy_rows(x, texts[:-1], x)
                if variant is not None:
                    places[:queries] = 0
                if variant is not None and variant.before:
                    copy_rows(normal, texts[:-1], normal)
            made, count = (query, queries) if step == 1 else (key_value, tokens)
            for start in range(0, count, together):
                end = min(start + together, count)
                linear(given[start:end], projections[step], layer, plain, memory.space, made[start:end])
                if variant is not None and len(variant.rope):
                    rope = variant.rope[variant.tables[layer]]
                    rotate(made[start:end], places[start:end], rope, heads, size)
        if variant is None:
            attend(query, starts, key_value, texts, heads, size, EVERYWHERE, None, memory.attention, attn_out)
        else:
            window, biases = variant.windows[layer], memory.biases
            attend(query, starts, key_value, texts, heads, size, window, biases, memory.attention, attn_out)
        # Feed-forward. A block goes through both layers before the next one does, so that what is between
        # them stays in the processor's cache.
        feed_norm, feed_bias = weights.output.weight[layer], weights.output.bias[layer]
        for start in range(0, queries, together):
            end = min(start + together, queries)
            n = end - start
            rows, up, down = x[start:end], memory.up[:n], memory.down[:n]
            linear(attn_out[start:end], weights.out_proj, layer, plain, memory.space, down)
            seen = rows
            if variant is None or not variant.before:
                add_and_normalize(rows, down, norm, norm_bias, width, epsilon)
            else:
                add(rows, down)
                seen = normal[start:end]
                normalize(rows, feed_norm, feed_bias, width, epsilon, seen)
            linear(seen, weights.up, layer, bool(variant is None or variant.gate < 0), memory.space, up)
            if variant is not None and variant.gate >= 0:
                left, up = up, memory.gated[:n]
                gate(left, variant.gate, up)
            linear(up, weights.down, layer, plain, memory.space, down)
            if variant is None or not variant.before:
                add_and_normalize(rows, down, feed_norm, feed_bias, width, epsilon)
            else:
                add(rows, down)
    if variant is not None and variant.before:
        last = variant.last
        normalize(x[:queries], last.weight[0], last.bias[0], width, epsilon, x[:queries])
    amx.end(weights.query.planes)
    hidden: Float32 = x[:queries]
    return hidden


def _one_layer(rows: int) -> Linear:
    """A layer with PANEL inputs, made for AMX where a network's will be."""
    ones = np.ones((1, rows), np.float32)
    layer = Linear(np.zeros((1, rows * PANEL // 2), np.int32), ones, ones)
    return layer.on_tiles() if machine.has_amx() else layer


def compile_forward() -> None:
    """Compile `forward` for BERT, or load it from disk, by computing one token with one layer."""
    norm, row = LayerNorm(*np.ones((2, 1, PANEL), np.float32)), np.ones((1, PANEL), np.float32)
    weights = Weights(
        row, row, LayerNorm(row[0], row[0]), _one_layer(PANEL), _one_layer(2 * PANEL), _one_layer(PANEL),
        norm, _one_layer(PANEL), _one_layer(PANEL), norm,
    )  # fmt: skip
    one = np.zeros(1, np.int64)
    layout = Layout(PANEL, 1, PANEL, np.float32(1))
    forward(one, one, np.array([0, 1]), weights, layout, None, False)


def largest_logits(
    hidden: Float32, owners: Int64, texts: int, transform: Linear, norm: LayerNorm, decoder: Linear,
    width: int, epsilon: float,
) -> Float32:  # fmt: skip
    """For each text and each word of the vocabulary the largest logit of a masked language model.

    Args:
        hidden: float32 [tokens, k], the last hidden states of all texts' tokens.
        owners: int64 [tokens], the text of each token.
        texts: How many texts there are.
        transform: The head's first layer, before GELU, as the one layer of a `Linear`.
        norm: Its normalization, float32 [1, columns].
        decoder: The layer from there to words, their number rounded up to a multiple of 64.
        width: The number of outputs of the first layer; its columns are rounded up to a multiple of 64.
        epsilon: float32, of the normalization.

    Returns:
        float32 [texts, words].
    """
    columns, words = transform.factors.shape[1], decoder.factors.shape[1]
    out = np.full((texts, words), -1e30, np.float32)
    made, panel = (aligned_memory(np.float32, MOST_TOKENS, n) for n in (columns, PANEL))
    plain = LayerNorm(np.ones(PANEL, np.float32), np.zeros(PANEL, np.float32))
    space = workspace(columns, max(columns, PANEL))
    raise_logits(hidden, owners, transform, norm, decoder, width, epsilon, space, made, panel, plain, out)
    return out


@compiled
def raise_logits(
    hidden: Float32, owners: Int64, transform: Linear, norm: LayerNorm, decoder: Linear, width: int,
    epsilon: float, space: Workspace, made: Float32, panel_rows: Float32, plain: LayerNorm, out: Float32,
) -> None:  # fmt: skip
    """Raise the numbers of out [texts, words] to the largest logits of each text's tokens."""
    tokens, columns, words = len(hidden), made.shape[1], out.shape[1]
    no_gelu = bool(0)
    amx.begin(decoder.planes)
    for start in range(0, tokens, MOST_TOKENS):
        n = min(MOST_TOKENS, tokens - start)
        rows = made[:n]
        linear(hidden[start : start + n], transform, 0, True, space, rows)
        normalize(rows, norm.weight[0], norm.bias[0], width, epsilon, rows)
        round_for(decoder.pairs, decoder.planes, rows, space)
        for panel in range(0, words, PANEL):
            # 64 words of the block's tokens; of the products only the largest of each text is kept
            logits = panel_rows[:n]
            multiply(
                decoder.pairs,
                decoder.planes,
                0,
                panel,
                columns,
                plain.weight,
                plain.bias,
                no_gelu,
                space,
                logits,
            )
            for i in range(n):
                row, best = logits[i], out[owners[start + i], panel : panel + PANEL]
                for j in range(PANEL):
                    best[j] = larger(best[j], row[j])
    amx.end(decoder.planes)
    factors, bias = decoder.factors[0], decoder.bias[0]
    # a word's factor is above 0 and its bias the same for all tokens, so both can come after the largest
    for text in range(out.shape[0]):
        for j in range(words):
            out[text, j] = out[text, j] * factors[j] + bias[j]


def project(x: Float32, layer: Linear) -> Float32:
    """The one layer of a `Linear` applied to x float32 [tokens, k]: float32 [tokens, n]."""
    out = np.empty((len(x), layer.factors.shape[1]), np.float32)
    project_rows(x, layer, workspace(x.shape[1], out.shape[1]), out)
    return out


@compiled
def project_rows(x: Float32, layer: Linear, space: Workspace, out: Float32) -> None:
    """`project` within memory that is given."""
    tokens = len(x)
    amx.begin(layer.planes)
    for start in range(0, tokens, MOST_TOKENS):
        end = min(start + MOST_TOKENS, tokens)
        linear(x[start:end], layer, 0, False, space, out[start:end])
    amx.end(layer.planes)
