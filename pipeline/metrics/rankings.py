"""Judged documents of rankings: where each stands, and sums over those above a cutoff.

The grades of a ranking form a matrix [queries, k] that is nearly empty: few of the retrieved documents are
judged. Only its judged cells are stored, so the cost of a measure grows with the number of judgments and not
with that of hits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, BoolArray, Float64, Int64

MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64


@dataclass(frozen=True)
class GradedCells:
    """Judged documents at their ranks: the judged cells of a grade matrix [queries, k]."""

    n_queries: int  # rows of the matrix
    queries: Int64  # int64 [cells], row of the query, ascending
    # [cells], as of `Qrels`. A document of a grade below 0 gains nothing; for trec_eval it is one that was in
    # the pool to be judged, and was not.
    grades: Array
    ranks: Int64  # int64 [cells], from 1, ascending within a query

    def where(self, mask: BoolArray) -> GradedCells:
        """The cells where `mask`, bool [cells], is true."""
        return GradedCells(self.n_queries, self.queries[mask], self.grades[mask], self.ranks[mask])

    def nth(self) -> Int64:
        """int64 [cells]: the position of each cell among its query's cells, from 1."""
        first = np.searchsorted(self.queries, np.arange(self.n_queries))
        return np.arange(1, len(self.queries) + 1) - first[self.queries]

    def moved_up(self) -> GradedCells:
        """The cells in a ranking that holds no other documents."""
        return replace(self, ranks=self.nth())

    def total(self, cutoffs: Int64, weights: Float64 | None = None) -> Float64:
        """float64 [queries, cutoffs]: sums over the cells within each cutoff.

        One `bincount` adds up the cells between two successive cutoffs; a cumulative sum joins those.

        Args:
            cutoffs: int64 [c], ascending.
            weights: float64 [cells]; None counts the cells.
        """
        width = len(cutoffs) + 1  # the last column counts cells beyond all cutoffs
        column = np.searchsorted(cutoffs, self.ranks)
        sums = np.bincount(self.queries * width + column, weights, minlength=self.n_queries * width)
        return np.cumsum(sums.reshape(self.n_queries, width)[:, :-1], axis=1, dtype=np.float64)

    def relevant(self, rel: float) -> GradedCells:
        """The cells of grade `rel` or higher."""
        return self.where(self.grades >= rel)

    def count(self) -> Int64:
        """int64 [queries, 1]: the number of cells of each query."""
        return np.bincount(self.queries, minlength=self.n_queries)[:, None]

    def dcg(self, cutoffs: Int64, gain: str) -> Float64:
        """float64 [queries, cutoffs]: the discounted cumulative gain; see `measures.dcg`."""
        return self.total(cutoffs, gains(self.grades, gain) / np.log2(self.ranks + 1))


@dataclass(frozen=True)
class JudgedRanking:
    """A ranking with the grades of its documents: the input of every measure."""

    found: GradedCells  # the judged documents in the ranking
    ideal: GradedCells  # all judged documents, at their ranks in the best possible order
    retrieved: Int64  # int64 [queries], number of documents in the ranking, judged or not

    def n_relevant(self, rel: float) -> Int64:
        """int64 [queries, 1]: number of relevant documents of each query, retrieved or not."""
        return self.ideal.relevant(rel).count()

    def condensed(self) -> JudgedRanking:
        """The ranking without unjudged documents; those below move up (`trec_eval -J`).

        Sakai, *Alternatives to Bpref*, SIGIR 2007. Documents of a grade below 0 are taken out as well.
        """
        labelled = self.found.relevant(0)
        return JudgedRanking(labelled.moved_up(), self.ideal, labelled.count()[:, 0])


def ideal_order(n_queries: int, queries: Int64, grades: Array) -> GradedCells:
    """The given documents ([cells] each, in any order) with every query's highest grades first."""
    if grades.dtype.kind == "f":
        order = np.lexsort((-grades, queries))
        return GradedCells(n_queries, queries[order], grades[order], np.zeros_like(queries)).moved_up()
    highest, lowest = int(grades.max(initial=0)), int(grades.min(initial=0))
    levels = highest - lowest + 1  # query and grade become one number to sort by
    queries, below_top = np.divmod(np.sort(queries * levels + (highest - grades)), levels)
    return GradedCells(n_queries, queries, highest - below_top, np.zeros_like(queries)).moved_up()


def ratio(above: Float64, below: Float64 | Int64) -> Float64:
    """The quotient, broadcast; 0 where the denominator is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def gains(grades: Array, gain: str) -> Float64:
    """float64 [n]: the grade, whole or not, or 2**grade - 1; 0 for grades below 0."""
    grades = np.maximum(grades, 0)
    if gain == "linear":
        return grades.astype(np.float64)
    highest = grades.max(initial=0)
    if highest > MAX_EXP_GRADE:
        raise InputError(f"grade {highest} with gain=exp", allowed=f"grades up to {MAX_EXP_GRADE}")
    return np.exp2(grades) - 1
