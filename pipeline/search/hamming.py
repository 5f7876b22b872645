"""Exact search of bits: the passages whose bits differ from a query's in the fewest places.

A score is minus the Hamming distance. Distances are small integers, so many passages share one, and those at
the k-th distance all matter: the ids decide between them. Each query therefore counts how many passages it
has seen at each distance. The smallest distance within which there are k of them is its threshold, which only
falls; what lies beyond it is dropped, and nothing that belongs to the best k is lost.

Words of 64 bits lie in columns, [words, rows], so that one vector instruction compares many rows. Chunks of
rows stay in the processor's first cache while a query is compared with them; every thread has queries of its
own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types
from numba.extending import intrinsic

from pipeline.core import machine
from pipeline.core.progress import Bar, silent
from pipeline.core.records import Array, Ranking
from pipeline.kernels.compiling import compiled
from pipeline.search import rescoring

UInt64 = npt.NDArray[np.uint64]
BLOCK = 1 << 16  # rows that all queries are compared with before the next ones are read
CHUNK = 256  # rows that a query is compared with at once
GROUP = 1024  # queries that are searched in one reading of all rows
SPARE = 2048  # room for candidates beyond 2k


@intrinsic
def _ones(typing: Any, word: Any) -> Any:
    """The number of bits set in a word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@compiled
def _scan(
    words: Any,
    first_row: Any,
    queries: Any,
    k: Any,
    state: Any,
    seen: Any,
    rows: Any,
    distances: Any,
    at: Any,
) -> Any:
    """Compare queries with a block of rows, and keep those within each query's threshold.

    Args:
        words: uint64 [words, n], the bits of the rows.
        first_row: The number of the first row.
        queries: uint64 [queries, words].
        k: Hits kept for each query.
        state: int64 [queries, 3]: the threshold, how many rows lie within it, and how many are kept.
        seen: int32 [queries, bits + 1]: rows within the threshold at each distance.
        rows: int64 [queries, room], the rows kept.
        distances: uint16 [queries, room], their distances.
        at: int64 [2]: the query and the row of the block to go on with.

    Returns:
        Whether all queries were compared; if not, `at` says where to go on with more room.
    """
    width, n = words.shape
    room = rows.shape[1]
    buffer = np.empty(CHUNK, np.uint64)
    for query in range(at[0], len(queries)):
        threshold, within, kept = state[query]
        start = at[1]
        at[1] = 0
        while start < n:
            if kept + CHUNK > room:
                left = 0
                for i in range(kept):
                    if distances[query, i] <= threshold:
                        rows[query, left] = rows[query, i]
                        distances[query, left] = distances[query, i]
                        left += 1
                kept = left
                if kept + CHUNK > room:
                    state[query, 0], state[query, 1], state[query, 2] = threshold, within, kept
                    at[0], at[1] = query, start
                    return False
            count = min(CHUNK, n - start)
            buffer[:count] = 0
            for word in range(width):
                bits, column = queries[query, word], words[word, start : start + count]
                for i in range(count):
                    buffer[i] += _ones(column[i] ^ bits)
            least = buffer[0]
            for i in range(count):
                least = min(least, buffer[i])
            if least <= np.uint64(threshold):
                for i in range(count):
                    distance = np.int64(buffer[i])
                    if distance <= threshold:
                        rows[query, kept] = first_row + start + i
                        distances[query, kept] = distance
                        seen[query, distance] += 1
                        kept += 1
                        within += 1
                while within - seen[query, threshold] >= k:
                    within -= seen[query, threshold]
                    threshold -= 1
            start += count
        state[query, 0], state[query, 1], state[query, 2] = threshold, within, kept
    return True


class _Part:
    """The candidates of some queries, uint64 [queries, words]."""

    def __init__(self, queries: UInt64, k: int) -> None:
        bits = 64 * queries.shape[1]
        self.queries, self.k = queries, k
        self.state = np.zeros((len(queries), 3), np.int64)
        self.state[:, 0] = bits
        self.seen = np.zeros((len(queries), bits + 1), np.int32)
        self.rows = np.empty((len(queries), 2 * k + SPARE), np.int64)
        self.distances = np.empty(self.rows.shape, np.uint16)

    def scan(self, words: UInt64, first_row: int) -> None:
        """Compare the queries with a block of rows, uint64 [words, n]."""
        at = np.zeros(2, np.int64)
        while not _scan(
            words, first_row, self.queries, self.k, self.state, self.seen, self.rows, self.distances, at
        ):  # more rows are at the threshold of one query than there is room for
            more = ((0, 0), (0, self.rows.shape[1]))
            self.rows, self.distances = np.pad(self.rows, more), np.pad(self.distances, more)

    def best(self, ids: pa.ChunkedArray) -> Ranking:
        """The best k of each query."""
        threshold, kept = self.state[:, :1], self.state[:, 2:]
        candidate = (np.arange(self.rows.shape[1]) < kept) & (self.distances <= threshold)
        query, column = np.nonzero(candidate)
        scores = 0 - self.distances[query, column].astype(np.float32)
        found = self.rows[query, column]
        return rescoring.rank_pairs(found, scores, query, len(self.queries), self.k, ids)


def hamming_search(
    shards: tuple[Array, ...],
    queries: Array,
    top_k: int,
    ids: pa.ChunkedArray,
    bar: Bar,
    memory_mb: int | None = None,
) -> Ranking:
    """The passages with the least Hamming distance to each query.

    Args:
        shards: [rows, bytes] each, the passages' bits; they may be memory-mapped and are read in blocks.
        queries: [queries, bytes]. Bytes may be coded in any way, if it is the same for passages and queries.
        top_k: Hits kept for each query.
        ids: Arrow strings, the passages' ids, by which ties are ordered.
        bar: Counts queries, in proportion to the rows read.
        memory_mb: Limit of the memory used for candidates, in 10^6 bytes; None is that of `GROUP` queries.

    Returns:
        [queries, min(top_k, rows)]; scores are minus the distances.
    """
    n = sum(map(len, shards))
    k = min(top_k, n)
    ranking = Ranking(np.empty((len(queries), k), np.int64), np.empty((len(queries), k), np.float32))
    threads = machine.threads_allowed() or machine.cores()
    words = np.ascontiguousarray(_words(queries))
    query_bytes = 10 * (2 * k + SPARE) + 4 * 64 * words.shape[1]
    size = GROUP if memory_mb is None else min(max(memory_mb * 500_000 // query_bytes, 1), GROUP)
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(queries), size):
            group = words[first : first + size]
            parts = [_Part(part, k) for part in np.array_split(group, threads) if len(part)]
            counted = row = 0
            for shard in shards:
                for start in range(0, len(shard), BLOCK):
                    block = np.ascontiguousarray(_words(shard[start : start + BLOCK]).T)
                    list(pool.map(lambda part, b=block, r=row: part.scan(b, r), parts))
                    row += block.shape[1]
                    done = len(group) * row // n
                    bar.update(done - counted)
                    counted = done
            found = [part.best(ids) for part in parts]
            span = slice(first, first + len(group))
            ranking.passages[span] = np.concatenate([part.passages for part in found])
            ranking.scores[span] = np.concatenate([part.scores for part in found])
    return ranking


def _words(rows: Array) -> UInt64:
    """uint64 [n, words] of [n, bytes], zeros added at the end."""
    padded = np.pad(np.asarray(rows).view(np.uint8), ((0, 0), (0, -rows.shape[1] % 8)))
    words: UInt64 = padded.view(np.uint64)
    return words


def compile_all() -> None:
    """Compile the kernel, so that no measured time holds that."""
    with silent("", None, "") as bar:
        one = np.zeros((1, 8), np.uint8)
        hamming_search((one,), one, 1, pa.chunked_array([["a"]]), bar)
