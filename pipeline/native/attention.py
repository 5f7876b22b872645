"""Attention computed in int16, but for softmax.

Both products are sums over rows, of a query and a key, and of a query's shares and a column of values. As
`integers` says, queries and shares are scaled to the length ROW_LENGTH, keys and columns of values to at most
WEIGHT_LENGTH, and no sum passes an int32, however long the text is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float32

from pipeline.core.records import Float32, Int32, Int64
from pipeline.native.compiling import merged
from pipeline.native.integers import ROW_LENGTH, WEIGHT_LENGTH, aligned_memory
from pipeline.native.registers import (
    absolute,
    broadcast,
    larger,
    larger_of,
    largest,
    load,
    load_sums,
    mask_lanes,
    nearest,
    plus_product,
    power_of_two,
    square_root,
    store,
    store_pairs,
    store_rounded,
    total,
    transpose,
)
from pipeline.native.tiles import INTEGER_WIDTH, LANES, TALL, half_int16_tile, int16_tile, narrow_int16_tile

EVERYWHERE = 1 << 30  # the window of a layer whose tokens all see each other
_LOG2_E = 1.4426950408889634  # e^x is 2^(x log2 e)
_UNSEEN = -1e30  # score of a key that a query does not see
_NOTHING = 1e-30  # length of a row of zeros


class _Rows(NamedTuple):
    """Queries or keys of a text as int16, and each head's factor in each of them."""

    numbers: Any  # int16 [tokens, heads * size], laid flat
    pairs: Any  # the same memory as int32 [tokens, heads * size / 2], laid flat
    factors: Any  # float32 [heads, tokens]


class _Values(NamedTuple):
    """Values of a text as pairs of int16 of neighbouring tokens, and each column's factor."""

    pairs: Any  # int32 [heads, tokens / 2, size], laid flat
    factors: Any  # float32 [heads * size]
    inverses: Any  # 1 / factors


class _Scores(NamedTuple):
    """Memory for six queries of one head."""

    sums: Any  # int32 [6, tokens], and later [6, size]
    numbers: Any  # float32 [6, tokens], laid flat
    lanes: Any  # float32 [6, LANES], laid flat
    numerators: Any  # int16 [6, tokens], laid flat
    pairs: Any  # the same memory as int32 [6, tokens / 2], laid flat
    factors: Any  # float32 [LANES], of which six are used


@merged
def _round_heads(x: Float32, at: int, heads: int, size: int, length: int, place: int, rows: _Rows) -> None:
    """Round the row of x that begins at `at` to the row `place` of `rows`.

    Each head is scaled to a length, or less if its largest number fills an int16 before.
    """
    to = place * heads * size
    for head in range(heads):
        squares, most = broadcast(float32(0)), broadcast(float32(_NOTHING))
        for j in range(0, size, LANES):
            part = load(x, at + j)
            squares, most = plus_product(squares, part, part), larger_of(most, absolute(part))
        factor = float32(length) / np.sqrt(total(squares) + float32(_NOTHING))
        # a length above that of an int16 may be in one number alone, which must fit as well
        if length > ROW_LENGTH:
            factor = min(factor, float32(32_767) / largest(most))
        factors = broadcast(factor)
        for j in range(0, size, LANES):
            store_rounded(rows.numbers, to + j, load(x, at + j) * factors)
        rows.factors[head, place] = float32(1) / factor
        at, to = at + size, to + size


@merged
def _round_values(
    x: Float32, at: int, step: int, length: int, heads: int, size: int, pairs: int, values: _Values
) -> None:
    """Round the values of a text, of which each column is scaled as far as WEIGHT_LENGTH and int16 allow.

    The first row of values begins in x at `at`, and that of each following token `step` later; `length` is
    the number of tokens, and `pairs` the pairs of tokens that `values` has memory for.
    """
    # `factors` holds the squared lengths of the columns, and `inverses` their largest numbers, until both
    # are known; columns are summed row by row, as they lie in memory.
    factors, inverses, columns = values.factors, values.inverses, heads * size
    for j in range(0, columns, LANES):
        store(factors, j, broadcast(float32(_NOTHING)))
        store(inverses, j, broadcast(float32(_NOTHING)))
    for token in range(length):
        row = at + token * step
        for j in range(0, columns, LANES):
            part = load(x, row + j)
            store(factors, j, plus_product(load(factors, j), part, part))
            store(inverses, j, larger_of(load(inverses, j), absolute(part)))
    for j in range(columns):
        by_length, by_size = np.sqrt(factors[j]) / float32(WEIGHT_LENGTH), inverses[j] / float32(32_767)
        factors[j] = larger(by_length, by_size)
        inverses[j] = float32(1) / factors[j]
    for pair in range((length + 1) // 2):
        # the last pair of an odd number of tokens has zeros in place of the second one
        row, is_whole = at + 2 * pair * step, 2 * pair + 1 < length
        following, more = row + (step if is_whole else 0), broadcast(float32(1) if is_whole else float32(0))
        for head in range(heads):
            to = (head * pairs + pair) * size
            for j in range(0, size, LANES):
                column = head * size + j
                inverse = load(inverses, column)
                second = load(x, following + column) * inverse * more
                store_pairs(values.pairs, to + j, load(x, row + column) * inverse, second)


@merged
def _multiply(
    sums: Int32, n: int, row: int, a: Int32, a_at: int, a_row: int, b: Int32, b_at: int, b_row: int,
    count: int,
) -> None:  # fmt: skip
    """Six rows of pairs times n columns, a multiple of LANES, by the widest tiles that fit."""
    j = 0
    while j + INTEGER_WIDTH <= n:
        int16_tile(sums, j, row, a, a_at, a_row, b, b_at + j, b_row, count)
        j += INTEGER_WIDTH
    if j + INTEGER_WIDTH // 2 <= n:
        half_int16_tile(sums, j, row, a, a_at, a_row, b, b_at + j, b_row, count)
        j += INTEGER_WIDTH // 2
    if j < n:
        narrow_int16_tile(sums, j, row, a, a_at, a_row, b, b_at + j, b_row, count)


@merged
def _scale_scores(
    scores: _Scores, number: int, row: int, n: int, first: int, end: int, factor: Any, keys: Float32,
    biases: Any, bias: int,
) -> None:  # fmt: skip
    """Scores of one query from its sums, and the largest of each lane.

    Args:
        scores: Memory; its sums are read, and its numbers and `lanes` are written.
        number: Which of the six queries.
        row: Numbers of a row in `scores`.
        n: Number of keys, rounded up to a multiple of LANES.
        first: The first key that the query sees.
        end: The key after the last one.
        factor: Factor of the query.
        keys: Factor of each key.
        biases: What `scaled_biases` made, or None, for which no code is made.
        bias: The place in it of what is added to the first key's score, or -1 for nothing.
    """
    factors, best = broadcast(factor), broadcast(float32(_UNSEEN))
    for j in range(0, n, LANES):
        score = load_sums(scores.sums, number * row + j) * (factors * load(keys, j))
        if biases is not None and bias >= 0:
            score = score + load(biases, bias + j)
        # only registers at the edges of what the query sees have lanes to be masked
        if j < first or j + LANES > end:
            score = mask_lanes(score, first - j, end - j, float32(_UNSEEN))
        best = larger_of(best, score)
        store(scores.numbers, number * row + j, score)
    store(scores.lanes, number * LANES, best)


@merged
def _round_numerators(scores: _Scores, rows: int, row: int, n: int) -> None:
    """Softmax of the scores of some queries, rounded: 2 to the power of the scores, whose factor has log2 e.

    The largest score is subtracted first, so no power is above 1. Shares are not divided by their sum: what
    is made of them will be, so that the mean of like values is that value, however shares were rounded.

    Each step is done for all queries before the next one: a sum over the lanes of a register takes many
    cycles, in which the processor works on the other queries. Roots and quotients are those of a whole
    register: for single numbers LLVM might take exact instructions for one query and approximate ones for
    six together, and the bits of a query must not depend on how many are asked.

    Args:
        scores: Memory; its numbers and `lanes` are read, and its shares and factors are written.
        rows: Number of queries.
        row: Numbers of a row in `scores`.
        n: Number of keys, rounded up to a multiple of LANES.
    """
    # the largest score of each query
    for number in range(rows):
        scores.factors[number] = largest(load(scores.lanes, number * LANES))
    # powers, and the squares of each lane: shares are a row, to be scaled to ROW_LENGTH
    for number in range(rows):
        top, squares = broadcast(scores.factors[number]), broadcast(float32(0))
        for j in range(number * row, number * row + n, LANES):
            power = power_of_two(load(scores.numbers, j) - top)
            squares = plus_product(squares, power, power)
            store(scores.numbers, j, power)
        store(scores.lanes, number * LANES, squares)
    for number in range(rows):
        scores.factors[number] = total(load(scores.lanes, number * LANES))
    store(scores.factors, 0, broadcast(float32(ROW_LENGTH)) / square_root(load(scores.factors, 0)))
    # rounded shares, and their sums as rounded: divided by these, the mean of like values is that value
    for number in range(rows):
        scales, sums = broadcast(scores.factors[number]), broadcast(float32(0))
        for j in range(number * row, number * row + n, LANES):
            share = nearest(load(scores.numbers, j) * scales)
            sums = sums + share
            store_rounded(scores.numerators, j, share)
        store(scores.lanes, number * LANES, sums)
    for number in range(rows):
        scores.factors[number] = total(load(scores.lanes, number * LANES))
    store(scores.factors, 0, broadcast(float32(1)) / load(scores.factors, 0))


class Memory(NamedTuple):
    """Memory for attention within texts of up to `most` tokens, a multiple of LANES."""

    queries: _Rows
    keys: _Rows
    values: _Values
    keys_transposed: Any  # int32, a head's keys with rows and columns exchanged
    scores: _Scores


def memory(texts: Int64, heads: int, size: int, columns: int) -> Memory:
    """Memory for some texts; `texts` is int64 [texts + 1], the first token of each text, and the end."""
    most = -(-int(np.diff(texts).max()) // LANES) * LANES  # tokens of the longest text, rounded up

    def rows(count: int) -> _Rows:
        numbers = aligned_memory(np.int16, count * heads * size)
        return _Rows(numbers, numbers.view(np.int32), aligned_memory(np.float32, heads, count))

    numerators = aligned_memory(np.int16, TALL * most)
    scores = _Scores(
        aligned_memory(np.int32, TALL * max(most, size)), aligned_memory(np.float32, TALL * most),
        aligned_memory(np.float32, TALL * LANES), numerators, numerators.view(np.int32),
        np.ones(LANES, np.float32),
    )  # fmt: skip
    values = _Values(
        aligned_memory(np.int32, heads * most // 2 * size), *aligned_memory(np.float32, 2, columns)
    )
    keys_transposed = aligned_memory(np.int32, size // 2 * most + LANES)
    return Memory(rows(most + TALL), rows(most + LANES), values, keys_transposed, scores)


def scaled_biases(biases: Float32) -> Float32:
    """Biases [heads, n] times log2 e in one row, with some numbers behind that are read and not used."""
    return np.append(biases * np.float32(_LOG2_E), np.zeros(LANES, np.float32))


@merged
def attend(
    query: Float32, starts: Int64, key_value: Float32, texts: Int64, heads: int, size: int, window: int,
    biases: Any, memory: Memory, out: Float32,
) -> None:  # fmt: skip
    """Attention within each text, for one text and one head at a time.

    Args:
        query: float32 [n, columns]; the queries of text t are the rows `starts[t]` to `starts[t + 1]`,
            and the first of them is the text's first token.
        starts: int64 [texts + 1].
        key_value: float32 [tokens, 2 columns], keys first.
        texts: int64 [texts + 1], the first row of each text in `key_value`, and the end.
        heads: Number of heads, side by side.
        size: Columns of a head.
        window: The largest distance of a key that a query sees.
        biases: What `scaled_biases` made of those of `LayerVariant`, or None.
        memory: What `memory` made for these texts.
        out: float32 [n, columns].
    """
    width, words = query.shape[1], heads * size // 2
    queries, keys, values, keys_transposed, scores = memory
    most, ahead = len(scores.numerators) // TALL, 0
    if biases is not None:
        ahead = (len(biases) - LANES) // heads  # biases of a head
    for text in range(len(texts) - 1):
        start, length = texts[text], texts[text + 1] - texts[text]
        first_query, count = starts[text], starts[text + 1] - starts[text]
        # queries, keys and values are rounded first, all heads together, as they lie in memory
        for token in range(length):
            _round_heads(key_value, (start + token) * 2 * width, heads, size, WEIGHT_LENGTH, token, keys)
        for token in range(count):
            _round_heads(query, (first_query + token) * width, heads, size, ROW_LENGTH, token, queries)
        _round_values(key_value, start * 2 * width + width, 2 * width, length, heads, size, most // 2, values)
        for head in range(heads):
            # the head's keys, transposed: a tile multiplies a query with one key per lane
            for j in range(0, length, LANES):
                for k in range(0, size // 2, LANES):
                    at = j * words + head * size // 2 + k
                    transpose(keys.pairs, at, words, keys_transposed, k * most + j, most)
            # Six queries at a time. What a tile computes beyond a text's last token is never read.
            for place in range(0, count, TALL):
                rows = min(TALL, count - place)
                # the keys that at least one of the six sees
                low = max(place - window, 0) // 2 * 2  # a whole pair of values
                seen = min(place + rows + window, length) - low
                n = -(-seen // LANES) * LANES
                at = place * words + head * size // 2
                _multiply(
                    scores.sums, n, most, queries.pairs, at, words, keys_transposed, low, most, size // 2
                )
                for row in range(rows):
                    own, bias = place + row, -1
                    if biases is not None and ahead:
                        bias = head * ahead + ahead // 2 - own + low
                    first, end = max(own - window, 0) - low, min(own + window + 1, length) - low
                    factor = queries.factors[head, own] * float32(_LOG2_E)
                    factors = keys.factors[head, low:]
                    _scale_scores(scores, row, most, n, first, end, factor, factors, biases, bias)
                _round_numerators(scores, rows, most, n)
                # shares times values, one column per lane; pairs of tokens are the products' pairs
                at, pairs = (head * (most // 2) + low // 2) * size, (seen + 1) // 2
                _multiply(scores.sums, size, size, scores.pairs, 0, most // 2, values.pairs, at, size, pairs)
                for row in range(rows):
                    scale = broadcast(scores.factors[row])
                    at = (first_query + place + row) * width + head * size
                    for j in range(0, size, LANES):
                        weighted_sum = load_sums(scores.sums, row * size + j)
                        store(out, at + j, weighted_sum * (load(values.factors, head * size + j) * scale))
