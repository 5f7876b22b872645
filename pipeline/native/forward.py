"""The forward pass of an encoder whose linear layers are computed in int16, and kernels of heads.

No padding: the tokens of all texts lie one after another, in arrays [tokens, width]. One forward pass
computes all networks; it reads from a `Layout` and `Parts` how a network's layers are made. Where a width is
no multiple of what the tiles need, arrays have more columns. These hold zeros, which change no sum, and what
counts the numbers of a row leaves them out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.core import machine
from pipeline.core.records import Float32, Int64
from pipeline.native import amx
from pipeline.native.attention import EVERYWHERE, attend
from pipeline.native.compiling import compiled
from pipeline.native.integers import PANEL
from pipeline.native.layers import (
    BLOCK,
    LayerNorm,
    Layout,
    Linear,
    Weights,
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
from pipeline.native.tiles import TALL


def _forward(
    ids: Int64, positions: Int64, texts: Int64, weights: Weights, layout: Layout, parts: Any,
    only_first: bool,
) -> Float32:  # fmt: skip
    """The last hidden state of some texts' tokens.

    Args:
        ids: int64 [tokens], the token ids of all texts, one text after another.
        positions: int64 [tokens], each token's row of the position embeddings.
        texts: int64 [texts + 1], the first token of each text, and the end.
        weights: The network's weights.
        layout: Sizes of its layers.
        parts: `Parts`, or None.
        only_first: Whether the last layer computes the first token of each text alone (see
            `encoders.torch.first_token`).

    Returns:
        float32 [tokens, columns], or [texts, columns].
    """
    amx.begin(weights.query.planes)
    plain = bool(0)  # no literal: Numba would compile `linear` a second time for it
    tokens, width, epsilon = len(ids), layout.width, layout.epsilon
    heads, size = layout.heads, layout.size
    layers, columns = weights.down.bias.shape
    both, made_up = weights.key_value.bias.shape[1], weights.up.bias.shape[1]
    # embeddings
    x = np.empty((tokens, columns), np.float32)
    position_rows = np.empty((tokens, columns), np.float32)
    copy_rows(weights.words, ids, x)
    copy_rows(weights.positions, positions, position_rows)
    add_and_normalize(x, position_rows, weights.embedded.weight, weights.embedded.bias, width, epsilon)
    # memory for all layers; the last tile of attention may write TALL rows below a text's last token
    query = np.zeros((tokens + TALL, both // 2), np.float32)
    attended = np.zeros((tokens + TALL, both // 2), np.float32)
    key_value = np.empty((tokens, both), np.float32)
    widest = max(made_up, both, columns)
    space = workspace(widest, widest)
    up_rows, added_rows = np.empty((BLOCK, made_up), np.float32), np.empty((BLOCK, columns), np.float32)
    starts, queries, together = texts, tokens, block_size(tokens, weights.query.planes)
    if parts is not None:
        gated_rows = np.empty((BLOCK, made_up // 2), np.float32)
        normal = np.zeros((tokens if parts.before else 0, columns), np.float32)
        places = np.empty(tokens, np.int64)
        for text in range(len(texts) - 1):
            for token in range(texts[text], texts[text + 1]):
                places[token] = token - texts[text]
    for layer in range(layers):
        norm, bias = weights.attended.weight[layer], weights.attended.bias[layer]
        # the input of attention: x itself, or x normalized where normalization comes first
        given = x
        if parts is not None and parts.before:
            given = normal
            if parts.normalized[layer] == 1:
                normalize(x, norm, bias, width, epsilon, normal)
            else:
                normal[:] = x
        # keys and values of all tokens, block by block
        for start in range(0, tokens, together):
            end = min(start + together, tokens)
            both_rows = key_value[start:end]
            linear(given[start:end], weights.key_value, layer, plain, space, both_rows)
            if parts is not None and len(parts.turns):
                turns = parts.turns[parts.tables[layer]]
                rotate(key_value[start:end], places[start:end], turns, heads, size)
        # From here on, the last layer needs the first token of each text alone: these rows move to the top of
        # x, and attention, feed-forward and normalization go on with them.
        if only_first and layer == layers - 1:
            queries = len(texts) - 1
            starts = np.arange(queries + 1)
            copy_rows(x, texts[:-1], x)
            if parts is not None:
                places[:queries] = 0
            if parts is not None and parts.before:
                copy_rows(normal, texts[:-1], normal)
        for start in range(0, queries, together):
            end = min(start + together, queries)
            query_rows = query[start:end]
            linear(given[start:end], weights.query, layer, plain, space, query_rows)
            if parts is not None and len(parts.turns):
                turns = parts.turns[parts.tables[layer]]
                rotate(query[start:end], places[start:end], turns, heads, size)
        if parts is None:
            attend(query, starts, key_value, texts, heads, size, EVERYWHERE, None, attended)
        else:
            window, biases = parts.windows[layer], parts.biases
            attend(query, starts, key_value, texts, heads, size, window, biases, attended)
        # Feed-forward. A block goes through both layers before the next one does, so that what is between
        # them stays in the processor's cache.
        feed_norm, feed_bias = weights.output.weight[layer], weights.output.bias[layer]
        for start in range(0, queries, together):
            end = min(start + together, queries)
            n = end - start
            rows, up, down = x[start:end], up_rows[:n], added_rows[:n]
            linear(attended[start:end], weights.mixed, layer, plain, space, down)
            seen = rows
            if parts is None or not parts.before:
                add_and_normalize(rows, down, norm, bias, width, epsilon)
            else:
                add(rows, down)
                seen = normal[start:end]
                normalize(rows, feed_norm, feed_bias, width, epsilon, seen)
            linear(seen, weights.up, layer, bool(parts is None or parts.gate < 0), space, up)
            if parts is not None and parts.gate >= 0:
                left, up = up, gated_rows[:n]
                gate(left, parts.gate, up)
            linear(up, weights.down, layer, plain, space, down)
            if parts is None or not parts.before:
                add_and_normalize(rows, down, feed_norm, feed_bias, width, epsilon)
            else:
                add(rows, down)
    if parts is not None and parts.before:
        last = parts.last
        normalize(x[:queries], last.weight[0], last.bias[0], width, epsilon, x[:queries])
    amx.end(weights.query.planes)
    return x[:queries]


forward: Any = compiled(_forward)


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


def _largest_logits(
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
    tokens, columns = len(hidden), transform.factors.shape[1]
    words = decoder.factors.shape[1]
    out = np.full((texts, words), np.float32(-1e30), np.float32)
    space = workspace(columns, max(columns, PANEL))
    made, panel_rows = np.empty((BLOCK, columns), np.float32), np.empty((BLOCK, PANEL), np.float32)
    factors, bias = decoder.factors[0], decoder.bias[0]
    ones, zeros, plain = np.ones(PANEL, np.float32), np.zeros(PANEL, np.float32), bool(0)
    amx.begin(decoder.planes)
    for start in range(0, tokens, BLOCK):
        n = min(BLOCK, tokens - start)
        rows = made[:n]
        linear(hidden[start : start + n], transform, 0, True, space, rows)
        normalize(rows, norm.weight[0], norm.bias[0], width, epsilon, rows)
        round_for(decoder, rows, space)
        for panel in range(0, words, PANEL):
            # 64 words of the block's tokens; of the products only the largest of each text is kept
            logits = panel_rows[:n]
            multiply(decoder, 0, panel, columns, ones, zeros, plain, space, logits)
            for i in range(n):
                row, best = logits[i], out[owners[start + i], panel : panel + PANEL]
                for j in range(PANEL):
                    best[j] = larger(best[j], row[j])
    amx.end(decoder.planes)
    # a word's factor is above 0 and its bias the same for all tokens, so both can come after the largest
    for text in range(texts):
        for j in range(words):
            out[text, j] = out[text, j] * factors[j] + bias[j]
    return out


def _project(x: Float32, layer: Linear) -> Float32:
    """The one layer of a `Linear` applied to x float32 [tokens, k]: float32 [tokens, n]."""
    tokens, width = x.shape
    n = layer.factors.shape[1]
    out = np.empty((tokens, n), np.float32)
    space = workspace(width, n)
    amx.begin(layer.planes)
    for start in range(0, tokens, BLOCK):
        end = min(start + BLOCK, tokens)
        linear(x[start:end], layer, 0, False, space, out[start:end])
    amx.end(layer.planes)
    return out


largest_logits: Any = compiled(_largest_logits)
project: Any = compiled(_project)
