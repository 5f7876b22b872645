"""What measures are made of: judged documents at their ranks, and what a measure's definition says.

The grades of a ranking form a matrix [queries, k] that is nearly empty: few of the retrieved documents are
judged. Only its judged cells are stored (`Graded`), so the cost of a measure grows with the number of
judgments and not with that of hits. Each measure is one small function of the cells, which computes all its
cutoffs at once, and one line of `pipeline.metrics.measures`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from pipeline.core.records import BoolArray, Float64, Int64


@dataclass(frozen=True)
class Graded:
    """Judged documents in ranked order: the judged cells of a grade matrix [queries, k].

    Attributes:
        n_queries: Rows of the matrix.
        queries: int64 [cells], row of the query, ascending.
        ranks: int64 [cells], from 1, ascending within a query.
        grades: int64 [cells]. A document of a grade below 0 gains nothing; for trec_eval it is one that was
            in the pool to be judged, and was not.
    """

    n_queries: int
    queries: Int64
    ranks: Int64
    grades: Int64

    def where(self, keep: BoolArray) -> Graded:
        """The cells where `keep`, bool [cells], is true."""
        return Graded(self.n_queries, self.queries[keep], self.ranks[keep], self.grades[keep])

    def relevant(self, rel: int) -> Graded:
        """The cells of grade `rel` or higher."""
        return self.where(self.grades >= rel)

    def nth(self) -> Int64:
        """int64 [cells]: the position of each cell among its query's cells, from 1."""
        first = np.searchsorted(self.queries, np.arange(self.n_queries))
        return np.arange(1, len(self.queries) + 1) - first[self.queries]

    def count(self) -> Int64:
        """int64 [queries, 1]: the number of cells of each query."""
        return np.bincount(self.queries, minlength=self.n_queries)[:, None]

    def total(self, cutoffs: Int64, weights: Float64 | None = None) -> Float64:
        """float64 [queries, cutoffs]: sums of `weights`, [cells], over the cells ranked within each cutoff.

        Without weights, the cells are counted. One `bincount` adds up the cells between two successive
        cutoffs, which ascend; a cumulative sum joins those.
        """
        width = len(cutoffs) + 1  # the last column counts cells beyond all cutoffs
        column = np.searchsorted(cutoffs, self.ranks)
        sums = np.bincount(self.queries * width + column, weights, minlength=self.n_queries * width)
        return np.cumsum(sums.reshape(self.n_queries, width)[:, :-1], axis=1, dtype=np.float64)


@dataclass(frozen=True)
class JudgedRanking:
    """A ranking with the grades of its documents: the input of every measure.

    Attributes:
        found: The judged documents in the ranking, at their ranks.
        ideal: All judged documents, at their ranks in the best possible order.
        retrieved: int64 [queries], number of documents in the ranking, judged or not.
    """

    found: Graded
    ideal: Graded
    retrieved: Int64

    def n_relevant(self, rel: int) -> Int64:
        """int64 [queries, 1]: number of relevant documents of each query, retrieved or not."""
        return self.ideal.relevant(rel).count()

    def condensed(self) -> JudgedRanking:
        """The ranking without unjudged documents; those below move up (`trec_eval -J`).

        Sakai, *Alternatives to Bpref*, SIGIR 2007. Documents of a grade below 0 are taken out as well.
        """
        labelled = self.found.relevant(0)
        return JudgedRanking(replace(labelled, ranks=labelled.nth()), self.ideal, labelled.count()[:, 0])


def ideal_order(n_queries: int, queries: Int64, grades: Int64) -> Graded:
    """The given documents (int64 [cells] each, in any order) with every query's highest grades first."""
    highest, lowest = int(grades.max(initial=0)), int(grades.min(initial=0))
    levels = highest - lowest + 1  # query and grade become one number to sort by
    queries, below_top = np.divmod(np.sort(queries * levels + (highest - grades)), levels)
    cells = Graded(n_queries, queries, np.zeros_like(queries), highest - below_top)
    return replace(cells, ranks=cells.nth())


def ratio(above: Float64, below: Float64 | Int64) -> Float64:
    """The quotient, broadcast; 0 where the denominator is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


class Cutoff(Enum):
    """Whether a measure's name takes `@k`."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True)
class Definition:
    """A measure's computation, and what its name takes.

    Attributes:
        compute: (judged, cutoffs int64 [c] ascending, **params) -> float64 [queries, c].
        params: Names of the parameters of `compute`; `names.PARAMETERS` has their values.
        cutoff: Whether the name takes a cutoff.
    """

    compute: Callable[..., Float64]
    params: tuple[str, ...] = ("rel",)
    cutoff: Cutoff = Cutoff.REQUIRED
