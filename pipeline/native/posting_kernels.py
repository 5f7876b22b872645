"""Kernels of sparse search: the scores of the passages that share a word with a query, and the best of them.

Words' products are added to a number for each passage of a block, in ascending order of words and in float64.
A hit is one integer: the bits of its float32 score, above those of the passage's place in the order of ids.
Positive floats are in the order of their bits, so the largest integers are the best hits in the contract's
order, ties included.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.native.compiling import compiled

BLOCK_PASSAGES = 1 << 14  # passages whose scores are summed at a time: 128 KB, which fits a core's own cache


@compiled
def search_queries(
    starts: Any, passages: Any, weights: Any, query_starts: Any, words: Any, factors: Any,
    group: Any, ranks: Any, hits: Any, counts: Any, k: int,
) -> None:  # fmt: skip
    """Search one segment for some queries.

    Args:
        starts: int64 [words + 1], where the postings of each word start.
        passages: int32 [postings].
        weights: float32 [postings].
        query_starts: int64 [queries + 1], where the words of each query start.
        words: int32, of all queries.
        factors: float32, the words' weights.
        group: int64 [g], the queries to search for.
        ranks: uint32 [passages of the segment], the places of their ids in descending order.
        hits: uint64 [g, ROOM k], updated.
        counts: int64 [g], the number of hits of each query, updated.
        k: Hits wanted.
    """
    scores = np.zeros(BLOCK_PASSAGES, np.float64)
    bits = np.empty(1, np.float32)
    as_integer = bits.view(np.uint32)
    for row in range(len(group)):
        first, last = query_starts[group[row]], query_starts[group[row] + 1]
        # where each word's postings go on in the next block; -1 for a word that no passage has
        places = np.empty(last - first, np.int64)
        for n in range(last - first):
            word = words[first + n]
            places[n] = starts[word] if word + 1 < len(starts) else -1
        count = counts[row]
        floor = np.float32(0)
        if count >= k:
            count = keep_best(hits[row], count, k)
            as_integer[0] = hits[row, k - 1] >> np.uint64(32)
            floor = bits[0]
        for begin in range(0, len(ranks), BLOCK_PASSAGES):
            end = min(begin + BLOCK_PASSAGES, len(ranks))
            for n in range(last - first):
                if places[n] >= 0:
                    places[n] = _add_postings(
                        scores, passages, weights, places[n], starts[words[first + n] + 1],
                        begin, end, np.float64(factors[first + n]),
                    )  # fmt: skip
            for place in range(end - begin):
                score = np.float32(scores[place])
                scores[place] = 0.0
                # Equal to the floor may still be among the best: ids decide. The integer is the score's bits,
                # then the inverted place of the id, so that a larger integer is a better hit.
                if score > 0 and score >= floor:
                    bits[0] = score
                    low = ~np.uint64(ranks[begin + place]) & np.uint64(0xFFFFFFFF)
                    hits[row, count] = np.uint64(as_integer[0]) << np.uint64(32) | low
                    count += 1
                    if count == hits.shape[1]:
                        count = keep_best(hits[row], count, k)
                        as_integer[0] = hits[row, k - 1] >> np.uint64(32)
                        floor = bits[0]
        counts[row] = count


@compiled
def _add_postings(
    scores: Any, passages: Any, weights: Any, place: int, stop: int, begin: int, end: int, factor: float
) -> int:
    """Add a word's products to the scores of passages [begin, end); returns its first posting after them."""
    while place < stop and passages[place] < end:
        scores[passages[place] - begin] += factor * np.float64(weights[place])
        place += 1
    return place


@compiled
def keep_best(values: Any, count: int, k: int) -> int:
    """Move the largest k of the first `count` values to the front, the least of them to k - 1; returns k.

    This is Hoare's selection: parts of the array are exchanged around the value in the middle of the range
    that holds the k-th, until the range is that value alone.
    """
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break
    return k
