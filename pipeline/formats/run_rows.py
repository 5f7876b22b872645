"""The lines of a run as rows of queries, in parts of like lengths: memory follows the number of lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import Int64, Scores
from pipeline.formats.runs import Run

PADDED_CELLS = 1 << 20  # of rows that are laid out together, whatever share of them is padding


@dataclass(frozen=True)
class RunRows:
    """A run's lines, query by query."""

    run: Run
    lines: Int64  # int64 [lines], numbers of its lines, query by query, in the order of the file
    ends: Int64  # int64 [queries + 1], where each query's lines begin in `lines`, and the end

    @classmethod
    def of(cls, run: Run, row: Int64, n_queries: int) -> RunRows:
        """The rows of `n_queries` queries.

        `row` is int64 [run queries], the row of each query of the run; lines of row `n_queries` are left out.
        """
        # in the smallest type that holds the row numbers: NumPy sorts up to 16 bits in one pass
        rows = row.astype(np.min_scalar_type(n_queries))[run.queries]
        lines = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows, np.arange(n_queries + 1), sorter=lines)
        return cls(run, lines[: ends[-1]], ends)

    @property
    def counts(self) -> Int64:
        """int64 [queries]: how many lines each query has."""
        return np.diff(self.ends)

    def parts(self) -> Iterator[tuple[Int64, Int64, Scores]]:
        """Rows of queries of like lengths, their lines and scores, as `laid_out` gives them."""
        for rows in like_lengths([self.counts]):
            yield rows, *self.laid_out(rows)

    def laid_out(self, rows: Int64) -> tuple[Int64, Scores]:
        """The lines of some queries, int64 [rows, most lines], padded with -1; scores, padded with -inf."""
        starts, counts = self.ends[rows], self.counts[rows]
        shape = (len(rows), int(counts.max(initial=0)))
        if len(rows) == len(self.ends) - 1 and (counts == shape[1]).all():
            lines = self.lines.reshape(shape)
            return lines, self.run.scores[lines]
        ranks = np.arange(shape[1])
        filled = ranks < counts[:, None]
        lines, scores = np.full(shape, -1), np.full(shape, -np.inf, self.run.scores.dtype)
        lines[filled] = self.lines[(starts[:, None] + ranks)[filled]]
        scores[filled] = self.run.scores[lines[filled]]
        return lines, scores


def like_lengths(counts: Sequence[Int64]) -> list[Int64]:
    """Rows of queries to lay out together: all, or those of like numbers of lines.

    Padding takes as much memory as the lines do, at most; or little.

    Args:
        counts: For each run int64 [queries], the lines of each query.
    """
    longest = np.max(counts, axis=0)
    rows, cells = np.arange(len(longest)), len(counts) * len(longest) * int(longest.max(initial=0))
    if cells <= max(2 * int(np.sum(counts)), PADDED_CELLS):
        return [rows]
    _, doublings = np.frexp(np.maximum(longest, 1) - 0.5)  # the number of doublings of 1 that it takes
    return [rows[doublings == number] for number in np.unique(doublings)]
