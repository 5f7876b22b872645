"""Judged documents of rankings: where each stands, and sums over those above a cutoff.

The grades of a ranking form a matrix [queries, k] that is nearly empty: few of the retrieved documents are
judged. Only its judged cells are stored, so the cost of a measure grows with the number of judgments and not
with that of hits. A cell stands at a rank (`GradedCells`), or within a group of documents of equal scores
(`TiedCells`). A formula that only adds up cells (`total`) takes either; from the second it gives the mean
over all orders of tied documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, BoolArray, Float64, Int64

MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64

Discount = Callable[[Float64, Int64], Float64]
"""What values, float64 [n], are worth at their ranks, int64 [n]."""


@dataclass(frozen=True)
class Cells(ABC):
    """Judged documents in ranked order: the judged cells of a grade matrix [queries, k].

    Attributes:
        n_queries: Rows of the matrix.
        queries: int64 [cells], row of the query, ascending.
        grades: [cells], as of `Qrels`. A document of a grade below 0 gains nothing; for trec_eval it is one
            that was in the pool to be judged, and was not.
    """

    n_queries: int
    queries: Int64
    grades: Array

    @abstractmethod
    def where(self, mask: BoolArray) -> Self:
        """The cells where `mask`, bool [cells], is true."""

    @abstractmethod
    def moved_up(self) -> Self:
        """The cells in a ranking that holds no other documents."""

    @abstractmethod
    def total(
        self, cutoffs: Int64, weights: Float64 | None = None, discount: Discount | None = None
    ) -> Float64:
        """float64 [queries, cutoffs]: sums over the cells within each cutoff.

        Args:
            cutoffs: int64 [c], ascending.
            weights: float64 [cells]; None counts the cells.
            discount: What a weight is worth at a rank; None is the same at every rank.
        """

    def relevant(self, rel: float) -> Self:
        """The cells of grade `rel` or higher."""
        return self.where(self.grades >= rel)

    def count(self) -> Int64:
        """int64 [queries, 1]: the number of cells of each query."""
        return np.bincount(self.queries, minlength=self.n_queries)[:, None]

    def dcg(self, cutoffs: Int64, gain: str) -> Float64:
        """float64 [queries, cutoffs]: the discounted cumulative gain; see `measures.dcg`."""
        return self.total(cutoffs, gains(self.grades, gain), by_log2)


@dataclass(frozen=True)
class GradedCells(Cells):
    """Judged documents at their ranks.

    Attributes:
        ranks: int64 [cells], from 1, ascending within a query.
    """

    ranks: Int64

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

    def total(
        self, cutoffs: Int64, weights: Float64 | None = None, discount: Discount | None = None
    ) -> Float64:
        """float64 [queries, cutoffs]: as `Cells.total`.

        One `bincount` adds up the cells between two successive cutoffs; a cumulative sum joins those.
        """
        if discount is not None:
            weights = discount(np.ones(len(self.ranks)) if weights is None else weights, self.ranks)
        width = len(cutoffs) + 1  # the last column counts cells beyond all cutoffs
        column = np.searchsorted(cutoffs, self.ranks)
        sums = np.bincount(self.queries * width + column, weights, minlength=self.n_queries * width)
        return np.cumsum(sums.reshape(self.n_queries, width)[:, :-1], axis=1, dtype=np.float64)


@dataclass(frozen=True)
class TiedCells(Cells):
    """Judged documents in groups of equal scores; a document without a tie is a group of one.

    Attributes:
        above: int64 [cells], number of documents of higher scores, ascending within a query.
        size: int64 [cells], number of documents in the group, judged or not.
    """

    above: Int64
    size: Int64

    def where(self, mask: BoolArray) -> TiedCells:
        """The cells where `mask`, bool [cells], is true."""
        return TiedCells(
            self.n_queries, self.queries[mask], self.grades[mask], self.above[mask], self.size[mask]
        )

    def counts(self) -> tuple[Int64, Int64]:
        """int64 [cells] each: how many cells of its query are in groups above, and how many in its own."""
        query_start, start, end = self.groups()
        return start - query_start, end - start

    def groups(self) -> tuple[Int64, Int64, Int64]:
        """int64 [cells] each: the first cell of the query, the first of the group, and one past its last."""
        key = self.queries * (int(self.above.max(initial=0)) + 1) + self.above
        start, end = np.searchsorted(key, key), np.searchsorted(key, key, side="right")
        return np.searchsorted(self.queries, self.queries), start, end

    def moved_up(self) -> TiedCells:
        """The cells in a ranking that holds no other documents."""
        above, size = self.counts()
        return replace(self, above=above, size=size)

    def ordered(self, best_first: bool) -> GradedCells:
        """The cells with every group's highest grades first and unjudged documents last, or reversed."""
        order = np.lexsort((-self.grades if best_first else self.grades, self.above, self.queries))
        _, start, end = self.groups()
        unjudged = 0 if best_first else self.size - (end - start)
        ranks = self.above + unjudged + np.arange(len(start)) - start + 1
        return GradedCells(self.n_queries, self.queries, self.grades[order], ranks)

    def total(
        self, cutoffs: Int64, weights: Float64 | None = None, discount: Discount | None = None
    ) -> Float64:
        """float64 [queries, cutoffs]: as `Cells.total`, the mean over all orders of each group.

        A cell is at each rank of its group with the same probability. `cutoffs` may be int64 [cells, 1], a
        cutoff for each cell.
        """
        ranks = self.ranks()
        worth = np.ones(len(ranks)) if discount is None else discount(np.ones(len(ranks)), ranks)
        within = np.concatenate(([0.0], np.cumsum(worth)))
        end, start = (self.above + self.size)[:, None], self.above[:, None]
        shares = (within[np.minimum(end, cutoffs)] - within[np.minimum(start, cutoffs)]) / self.size[:, None]
        values = shares if weights is None else shares * weights[:, None]
        columns = [np.bincount(self.queries, column, minlength=self.n_queries) for column in values.T]
        return np.stack(columns, axis=1).astype(np.float64)  # without cells, they are counts

    def ranks(self) -> Int64:
        """The ranks from 1 down to the last judged group's end."""
        return np.arange(1, int((self.above + self.size).max(initial=0)) + 1)


AnyCells = TypeVar("AnyCells", bound=Cells, covariant=True)


@dataclass(frozen=True)
class JudgedRanking(Generic[AnyCells]):
    """A ranking with the grades of its documents: the input of every measure.

    Attributes:
        found: The judged documents in the ranking.
        ideal: All judged documents, at their ranks in the best possible order.
        retrieved: int64 [queries], number of documents in the ranking, judged or not.
    """

    found: AnyCells
    ideal: GradedCells
    retrieved: Int64

    def n_relevant(self, rel: float) -> Int64:
        """int64 [queries, 1]: number of relevant documents of each query, retrieved or not."""
        return self.ideal.relevant(rel).count()

    def condensed(self) -> JudgedRanking[AnyCells]:
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


def by_log2(values: Float64, ranks: Int64) -> Float64:
    """The discount of DCG: values over log2(rank + 1)."""
    return values / np.log2(ranks + 1)
