"""Exact MaxSim scores of single pairs of a query and a passage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pipeline.core import machine
from pipeline.core.records import Float32, Int64, TokenEmbeddings
from pipeline.search import maxsim_kernels
from pipeline.storage import vector_shards

CHUNK = 1 << 18  # numbers of the token vectors that a core scores at a time


class PairScorer:
    """Scores pairs of passages and of some queries; see `candidates.ExactScore`.

    Args:
        passages: The passages' token vectors.
        vectors: float32 [tokens, dimension], the queries' token vectors.
        bounds: int64 [queries + 1], the first token of each query, and the end.
        mean: Whether a score is the mean over the query's tokens, not the sum.

    Attributes:
        divisors: float32 [queries], by which the sum over a query's tokens is divided.
    """

    def __init__(self, passages: TokenEmbeddings, vectors: Float32, bounds: Int64, mean: bool) -> None:
        self.passages, self.starts = passages, passages.bounds
        self.divisors = divisors_of(bounds, mean)
        self.wide = maxsim_kernels.widen_queries(operand(vectors), bounds, self.divisors)

    def __call__(self, rows: Int64, query: Int64) -> Float32:
        """float32 [pairs]: passages are read in the order in which they are stored."""
        order = np.argsort(rows, kind="stable")
        sorted_rows, sorted_query = rows[order], query[order].astype(np.int64)
        scores = np.empty(len(rows), np.float32)
        tokens = self.starts[sorted_rows + 1] - self.starts[sorted_rows]
        pieces = chunks_of(self.passages, np.concatenate([[0], np.cumsum(tokens)]))

        def score_piece(piece: tuple[int, int]) -> None:
            span = slice(*piece)
            scores[order[span]] = self._score_pairs(sorted_rows[span], sorted_query[span])

        with ThreadPoolExecutor(machine.threads_allowed() or machine.cores()) as threads:
            list(threads.map(score_piece, pieces))
        return scores

    def _score_pairs(self, rows: Int64, query: Int64) -> Float32:
        """Scores of pairs, `rows` ascending, whose passages fit into memory together."""
        distinct, passage = np.unique(rows, return_inverse=True)
        starts, counts = self.starts[distinct], self.starts[distinct + 1] - self.starts[distinct]
        bounds = np.concatenate([[0], np.cumsum(counts)])
        of_tokens = np.repeat(starts - bounds[:-1], counts) + np.arange(bounds[-1])
        tokens = operand(vector_shards.gather_rows(self.passages.vectors, of_tokens))
        scores = np.empty(len(rows), np.float32)
        maxsim_kernels.score_exactly(tokens, bounds, passage, self.wide, query, scores)
        return scores


def divisors_of(bounds: Int64, mean: bool) -> Float32:
    """float32 [queries]: what the sum over a query's tokens is divided by; `bounds` as of `PairScorer`."""
    return (np.diff(bounds) if mean else np.ones(len(bounds) - 1)).astype(np.float32)


def operand(vectors: Float32) -> Float32:
    """The vectors as a contiguous array with an even number of dimensions: a last one of zeros if need be.

    It is read-only, whether it was or not: Numba compiles a kernel for each case.
    """
    if vectors.shape[1] % 2:
        vectors = np.pad(vectors, ((0, 0), (0, 1)))
    contiguous: Float32 = np.ascontiguousarray(vectors).view()
    contiguous.flags.writeable = False
    return contiguous


def chunks_of(passages: TokenEmbeddings, bounds: Int64) -> list[tuple[int, int]]:
    """Texts in runs [start, stop) that a core scores at a time; `bounds` as in `runs`."""
    return runs(bounds, max(CHUNK // passages.vectors.dimension, 1))


def runs(bounds: Int64, most: int) -> list[tuple[int, int]]:
    """Texts in runs [start, stop) of at most `most` tokens or of one text; `bounds` int64 [texts + 1]."""
    found = []
    start = 0
    while start < len(bounds) - 1:
        stop = int(np.searchsorted(bounds, bounds[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), len(bounds) - 1)
        found.append((start, stop))
        start = stop
    return found
