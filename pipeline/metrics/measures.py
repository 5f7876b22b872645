"""The measures as functions of arrays: judged documents at their ranks in, a value for each query out.

The grades of a ranking form a matrix [queries, k] that is nearly empty: few of the retrieved documents are
judged. Only its judged cells are stored (`Graded`), so the cost of a measure grows with the number of
judgments and not with that of hits. Each measure is one small function of the cells, which computes all its
cutoffs at once, and one line of `MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from math import inf

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Float64, Int64

HIGHEST_GRADE = 4  # gdeval's MAX_JUDGMENT
MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64
EPSILON = 0.00001  # INFAP_EPSILON of trec_eval.h


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

    def dcg(self, cutoffs: Int64, gain: str) -> Float64:
        """float64 [queries, cutoffs]: the discounted cumulative gain; see `dcg`."""
        return self.total(cutoffs, gains(self.grades, gain) / np.log2(self.ranks + 1))


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
        highest: The highest value that a query can have; the lowest is 0.
        added: Empty for the measures of this package. A measure that a program added has a new identifier in
            each program: keys hold it, as they cannot tell whether its code changed.
    """

    compute: Callable[..., Float64]
    params: tuple[str, ...] = ("rel",)
    cutoff: Cutoff = Cutoff.REQUIRED
    highest: float = 1.0
    added: str = ""


def precision(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """Relevant in the top k, over k, also where fewer than k were retrieved (m_P.c)."""
    return judged.found.relevant(rel).total(cutoffs) / cutoffs


def recall(judged: JudgedRanking, cutoffs: Int64, rel: int, cap: bool) -> Float64:
    """Relevant in the top k, over all relevant (m_recall.c); capped: over min(k, all relevant)."""
    n_relevant = judged.n_relevant(rel)
    reachable = np.minimum(n_relevant, cutoffs) if cap else n_relevant
    return ratio(judged.found.relevant(rel).total(cutoffs), reachable)


def mrr(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """One over the rank of the first relevant document (m_recip_rank.c); 0 if none is in the top k."""
    relevant = judged.found.relevant(rel)
    first = relevant.where(relevant.nth() == 1)
    return first.total(cutoffs, 1 / first.ranks)


def average_precision(judged: JudgedRanking, cutoffs: Int64, rel: int, norm: str) -> Float64:
    """Sum of precision at each relevant rank in the top k, over all relevant (m_map_cut.c)."""
    relevant = judged.found.relevant(rel)
    precisions = relevant.total(cutoffs, relevant.nth() / relevant.ranks)
    return ratio(precisions, judged.n_relevant(rel) if norm == "all" else relevant.total(cutoffs))


def success(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """1 if a relevant document is in the top k, else 0 (m_success.c)."""
    return np.minimum(judged.found.relevant(rel).total(cutoffs), 1)


def r_precision(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """Precision at rank R, R being the number of all relevant documents (m_Rprec.c)."""
    n_relevant = judged.n_relevant(rel)
    relevant = judged.found.relevant(rel)
    within = relevant.where(relevant.ranks <= n_relevant[relevant.queries, 0])
    return ratio(within.total(cutoffs), n_relevant)


def judged_share(judged: JudgedRanking, cutoffs: Int64) -> Float64:
    """Judged documents, of any grade, over those retrieved in the top k (ir_measures' Judged)."""
    return ratio(judged.found.total(cutoffs), np.minimum(cutoffs, judged.retrieved[:, None]))


def bpref(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """The share of judged pairs, relevant and not, that stand in this order (m_bpref.c).

    The mean over the R relevant documents of 1 - min(n, R) / min(N, R), n being the judged non-relevant ones
    above, N all of them; 0 for a relevant one that was not retrieved (Buckley and Voorhees, SIGIR 2004).
    """
    relevant, above = _non_relevant_above(judged, rel)
    n_relevant = judged.n_relevant(rel)
    n_other = judged.n_relevant(0) - n_relevant
    most = np.minimum(n_relevant, n_other)[relevant.queries, 0]
    lost = ratio(np.minimum(above, most).astype(np.float64), most)
    return ratio(relevant.total(cutoffs, 1 - lost), n_relevant)


def infap(judged: JudgedRanking, cutoffs: Int64, rel: int) -> Float64:
    """Inferred average precision (Yilmaz and Aslam, CIKM 2006; m_infap.c).

    The precision expected at a relevant rank i with r relevant and n other judged documents above, and u in
    the pool but not judged (a grade below 0), is 1/i + (r + n + u)/i · (r + ε) / (r + n + 2ε).
    """
    relevant, others = _non_relevant_above(judged, rel)
    found = judged.found
    place = found.nth()[found.grades >= rel] - 1  # in the pool and above, whatever the grade
    above = relevant.nth() - 1
    share = (above + EPSILON) / (above + others + 2 * EPSILON)
    return ratio(relevant.total(cutoffs, (1 + place * share) / relevant.ranks), judged.n_relevant(rel))


def _non_relevant_above(judged: JudgedRanking, rel: int) -> tuple[Graded, Int64]:
    """The relevant cells, and for each the number of cells above of a grade from 0 to below `rel`."""
    labelled = judged.found.relevant(0)
    relevant = labelled.relevant(rel)
    return relevant, labelled.nth()[labelled.grades >= rel] - relevant.nth()


def cg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gains in the top k (Järvelin and Kekäläinen, TOIS 20(4), 2002)."""
    return judged.found.total(cutoffs, gains(judged.found.grades, gain))


def dcg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gain over log2(rank + 1) in the top k (m_ndcg_cut.c; Burges et al. 2005 for gain=exp)."""
    return judged.found.dcg(cutoffs, gain)


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    found = judged.found
    best = judged.ideal if ideal == "all" else ideal_order(found.n_queries, found.queries, found.grades)
    return ratio(found.dcg(cutoffs, gain), best.dcg(cutoffs, gain))


def gains(grades: Int64, gain: str) -> Float64:
    """float64 [n]: the grade, or 2**grade - 1; 0 for grades below 0."""
    grades = np.maximum(grades, 0)
    if gain == "linear":
        return grades.astype(np.float64)
    highest = grades.max(initial=0)
    if highest > MAX_EXP_GRADE:
        raise InputError(f"grade {highest} with gain=exp", allowed=f"grades up to {MAX_EXP_GRADE}")
    return np.exp2(grades) - 1


def rbp(judged: JudgedRanking, cutoffs: Int64, p: float, rel: int) -> Float64:
    """Sum of (1 - p) p^(rank - 1) over the relevant in the top k (Moffat and Zobel, TOIS 27(1), 2008).

    A user reads the first document, and each next one with a probability of `p`.
    """
    relevant = judged.found.relevant(rel)
    return relevant.total(cutoffs, (1 - p) * np.power(p, relevant.ranks - 1, dtype=np.float64))


def err(judged: JudgedRanking, cutoffs: Int64) -> Float64:
    """Expected reciprocal rank (Chapelle, Metzler, Zhang and Grinspan, CIKM 2009), as in gdeval.pl 1.2.

    A user who reads a document of grade g is content with probability s = (2^g - 1) / 2^4, and stops. A rank
    adds s / rank, times the probability 1 - s of each document before it not to end the reading.
    """
    found = judged.found.relevant(1)
    highest = int(max(found.grades.max(initial=0), judged.ideal.grades.max(initial=0)))
    if highest > HIGHEST_GRADE:
        raise InputError(
            f"grade {highest} with err",
            allowed=f"grades up to {HIGHEST_GRADE}, as in gdeval",
            fix="use ndcg, or judgments of fewer grades",
        )
    return found.total(cutoffs, content(found.grades) * _still_reading(found) / found.ranks)


def content(grades: Int64) -> Float64:
    """float64 [cells]: the probability to be content with a document of each grade."""
    content: Float64 = (np.exp2(grades, dtype=np.float64) - 1) / 2**HIGHEST_GRADE
    return content


def _still_reading(cells: Graded) -> Float64:
    """float64 [cells]: the probability that no document of the query above each cell ends the reading.

    Counted for each grade by itself: counts are exact, where sums of logarithms over all queries are not.
    """
    start = np.searchsorted(cells.queries, cells.queries)
    reading = np.ones(len(cells.queries))
    for grade in range(1, HIGHEST_GRADE + 1):
        above = np.cumsum(cells.grades == grade) - (cells.grades == grade)
        reading *= (1 - content(np.array(grade))) ** (above - above[start])
    return reading


MEASURES: dict[str, Definition] = {
    "precision": Definition(precision),
    "recall": Definition(recall, ("cap", "rel")),
    "mrr": Definition(mrr, cutoff=Cutoff.OPTIONAL),
    "map": Definition(average_precision, ("norm", "rel"), Cutoff.OPTIONAL),
    "success": Definition(success),
    "r_precision": Definition(r_precision, cutoff=Cutoff.NONE),
    "judged": Definition(judged_share, ()),
    "bpref": Definition(bpref, cutoff=Cutoff.NONE),
    "infap": Definition(infap, cutoff=Cutoff.NONE),
    "cg": Definition(cg, ("gain",), highest=inf),
    "dcg": Definition(dcg, ("gain",), highest=inf),
    "ndcg": Definition(ndcg, ("gain", "ideal")),
    "rbp": Definition(rbp, ("p", "rel"), Cutoff.OPTIONAL),
    "err": Definition(err, ()),
}
"""The measures by name.

Formulas are those of trec_eval (https://github.com/usnistgov/trec_eval), where it has the measure, and the C
files named beside functions are its own; `docs/measures.md` gives each formula.
"""
