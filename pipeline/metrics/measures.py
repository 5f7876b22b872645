"""Definitions of the measures: functions of arrays that return a value for each query and cutoff.

The grades of a ranking form a matrix [queries, k] that is nearly empty: few of the retrieved documents are
judged. Only its judged cells are stored (`Graded`), so the cost of a measure grows with the number of
judgments and not with that of hits. Each measure is one small function of the cells, which computes all its
cutoffs at once, and one line of `MEASURES`.

Formulas are those of trec_eval (https://github.com/usnistgov/trec_eval); `docs/measures.md` gives each one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64

MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64


@dataclass(frozen=True)
class Graded:
    """Judged documents in ranked order: the judged cells of a grade matrix [queries, k].

    Attributes:
        n_queries: Rows of the matrix.
        queries: int64 [cells], row of the query, ascending.
        ranks: int64 [cells], from 1, ascending within a query.
        grades: int64 [cells], at least 0.
    """

    n_queries: int
    queries: Int64
    ranks: Int64
    grades: Int64

    def where(self, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Graded:
        """The cells where `keep`, bool [cells], is true."""
        return Graded(self.n_queries, self.queries[keep], self.ranks[keep], self.grades[keep])

    def relevant(self, rel: int) -> Graded:
        """The cells of grade `rel` or higher."""
        return self.where(self.grades >= rel)

    def nth(self) -> Int64:
        """int64 [cells]: the position of each cell among its query's cells, from 1."""
        first = np.searchsorted(self.queries, np.arange(self.n_queries))
        return np.arange(1, len(self.queries) + 1) - first[self.queries]

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
        relevant = self.ideal.relevant(rel)
        return np.bincount(relevant.queries, minlength=relevant.n_queries)[:, None]


def ideal_order(n_queries: int, queries: Int64, grades: Int64) -> Graded:
    """The given documents (int64 [cells] each, in any order) with every query's highest grades first."""
    levels = int(grades.max(initial=0)) + 1  # query and grade become one number to sort by
    queries, below_top = np.divmod(np.sort(queries * levels + (levels - 1 - grades)), levels)
    cells = Graded(n_queries, queries, np.zeros_like(queries), levels - 1 - below_top)
    return Graded(n_queries, queries, cells.nth(), cells.grades)


def precision(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """Relevant in the top k, over k, also where fewer than k were retrieved (m_P.c)."""
    return judged.found.relevant(rel).total(cutoffs) / cutoffs


def recall(judged: JudgedRanking, cutoffs: Int64, rel: int, cap: bool) -> Float64:
    """Relevant in the top k, over all relevant (m_recall.c); capped: over min(k, all relevant)."""
    n_relevant = judged.n_relevant(rel)
    reachable = np.minimum(n_relevant, cutoffs) if cap else n_relevant
    return _ratio(judged.found.relevant(rel).total(cutoffs), reachable)


def mrr(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """One over the rank of the first relevant document (m_recip_rank.c); 0 if none is in the top k."""
    relevant = judged.found.relevant(rel)
    first = relevant.where(relevant.nth() == 1)
    return first.total(cutoffs, 1 / first.ranks)


def average_precision(judged: JudgedRanking, cutoffs: Int64, rel: int, norm: str) -> Float64:
    """Sum of precision at each relevant rank in the top k, over all relevant (m_map_cut.c)."""
    relevant = judged.found.relevant(rel)
    precisions = relevant.total(cutoffs, relevant.nth() / relevant.ranks)
    return _ratio(precisions, judged.n_relevant(rel) if norm == "all" else relevant.total(cutoffs))


def cg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gains in the top k (Järvelin and Kekäläinen, TOIS 20(4), 2002)."""
    return judged.found.total(cutoffs, _gains(judged.found, gain))


def dcg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gain over log2(rank + 1) in the top k (m_ndcg_cut.c; Burges et al. 2005 for gain=exp)."""
    return _dcg(judged.found, cutoffs, gain)


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    found = judged.found
    best = judged.ideal if ideal == "all" else ideal_order(found.n_queries, found.queries, found.grades)
    return _ratio(_dcg(found, cutoffs, gain), _dcg(best, cutoffs, gain))


def success(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """1 if a relevant document is in the top k, else 0 (m_success.c)."""
    return np.minimum(judged.found.relevant(rel).total(cutoffs), 1)


def judged_share(judged: JudgedRanking, cutoffs: Int64) -> Float64:
    """Judged documents, of any grade, over those retrieved in the top k (ir_measures' Judged)."""
    return _ratio(judged.found.total(cutoffs), np.minimum(cutoffs, judged.retrieved[:, None]))


def r_precision(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """Precision at rank R, R being the number of all relevant documents (m_Rprec.c)."""
    n_relevant = judged.n_relevant(rel)
    relevant = judged.found.relevant(rel)
    within = relevant.where(relevant.ranks <= n_relevant[relevant.queries, 0])
    return _ratio(within.total(cutoffs), n_relevant)


def _dcg(graded: Graded, cutoffs: Int64, gain: str) -> Float64:
    return graded.total(cutoffs, _gains(graded, gain) / np.log2(graded.ranks + 1))


def _gains(graded: Graded, gain: str) -> Float64:
    """float64 [cells]: the grade, or 2**grade - 1."""
    if gain == "linear":
        return graded.grades.astype(np.float64)
    highest = graded.grades.max(initial=0)
    if highest > MAX_EXP_GRADE:
        raise InputError(f"grade {highest} with gain=exp", allowed=f"grades up to {MAX_EXP_GRADE}")
    return np.exp2(graded.grades) - 1


def _ratio(above: Float64, below: Float64 | Int64) -> Float64:
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


MEASURES = {
    "precision": Definition(precision),
    "recall": Definition(recall, ("cap", "rel")),
    "mrr": Definition(mrr, cutoff=Cutoff.OPTIONAL),
    "map": Definition(average_precision, ("norm", "rel"), Cutoff.OPTIONAL),
    "cg": Definition(cg, ("gain",)),
    "dcg": Definition(dcg, ("gain",)),
    "ndcg": Definition(ndcg, ("gain", "ideal")),
    "success": Definition(success),
    "judged": Definition(judged_share, ()),
    "r_precision": Definition(r_precision, cutoff=Cutoff.NONE),
}
