"""The measures as functions of arrays: judged documents at their ranks in, a value for each query out.

Each is one small function of a `JudgedRanking`, which computes all its cutoffs at once. `definitions` says
what else is true of each.

The grades of a ranking form a matrix [queries, k] that is nearly empty: few of the retrieved documents are
judged. Only its judged cells are stored, so the cost of a measure grows with the number of judgments and not
with that of hits.

Formulas are those of trec_eval (https://github.com/usnistgov/trec_eval), where it has the measure, and the C
files named beside functions are its own; `docs/measures.md` gives each formula.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Float64, Int64

MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64
HIGHEST_GRADE = 4  # gdeval's MAX_JUDGMENT
CONTENT = (2.0 ** np.arange(HIGHEST_GRADE + 1) - 1) / 2**HIGHEST_GRADE
"""The probability to be content with a document of each grade."""
EPSILON = 0.00001  # INFAP_EPSILON of trec_eval.h


@dataclass(frozen=True)
class GradedCells:
    """Judged documents at their ranks: the judged cells of a grade matrix [queries, k]."""

    n_queries: int  # rows of the matrix
    queries: Int64  # int64 [cells], row of the query, ascending
    # [cells], as of `Qrels`. A document of a grade below 0 gains nothing; for trec_eval it is one that was in
    # the pool to be judged, and was not.
    grades: Array
    ranks: Int64  # int64 [cells], from 1, ascending within a query

    def relevant(self, rel: float) -> GradedCells:
        """The cells of grade `rel` or higher."""
        mask = self.grades >= rel
        return GradedCells(self.n_queries, self.queries[mask], self.grades[mask], self.ranks[mask])

    def nth(self) -> Int64:
        """int64 [cells]: the position of each cell among its query's cells, from 1."""
        first = np.searchsorted(self.queries, np.arange(self.n_queries))
        return np.arange(1, len(self.queries) + 1) - first[self.queries]

    def total(self, cutoffs: Int64, weights: Float64 | None = None) -> Float64:
        """float64 [queries, cutoffs]: the number of cells within each cutoff, or the sum of their weights.

        Cutoffs, int64 [c], ascend; weights are float64 [cells]. One `bincount` adds up the cells between two
        successive cutoffs; a cumulative sum joins those.
        """
        width = len(cutoffs) + 1  # the last column counts cells beyond all cutoffs
        column = np.searchsorted(cutoffs, self.ranks)
        sums = np.bincount(self.queries * width + column, weights, minlength=self.n_queries * width)
        return np.cumsum(sums.reshape(self.n_queries, width)[:, :-1], axis=1, dtype=np.float64)


@dataclass(frozen=True)
class JudgedRanking:
    """A ranking with the grades of its documents: the input of every measure."""

    found: GradedCells  # the judged documents in the ranking
    ideal: GradedCells  # all judged documents, at their ranks in the best possible order
    retrieved: Int64  # int64 [queries], number of documents in the ranking, judged or not

    def n_relevant(self, rel: float) -> Int64:
        """int64 [queries, 1]: number of relevant documents of each query, retrieved or not."""
        queries = self.ideal.queries[self.ideal.grades >= rel]
        return np.bincount(queries, minlength=self.ideal.n_queries)[:, None]

    def condensed(self) -> JudgedRanking:
        """The ranking without unjudged documents; those below move up (`trec_eval -J`).

        Sakai, *Alternatives to Bpref*, SIGIR 2007. Documents of a grade below 0 are taken out as well.
        """
        labelled = self.found.relevant(0)
        retrieved = np.bincount(labelled.queries, minlength=labelled.n_queries)
        return JudgedRanking(replace(labelled, ranks=labelled.nth()), self.ideal, retrieved)


def ideal_order(n_queries: int, queries: Int64, grades: Array) -> GradedCells:
    """The given documents ([cells] each, in any order) with every query's highest grades first."""
    if grades.dtype.kind == "f":
        order = np.lexsort((-grades, queries))
        queries, grades = queries[order], grades[order]
    else:  # query and grade become one number to sort by
        highest, lowest = int(grades.max(initial=0)), int(grades.min(initial=0))
        levels = highest - lowest + 1
        queries, below_top = np.divmod(np.sort(queries * levels + (highest - grades)), levels)
        grades = highest - below_top
    cells = GradedCells(n_queries, queries, grades, ranks=np.zeros_like(queries))
    return replace(cells, ranks=cells.nth())


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


def precision(judged: JudgedRanking, cutoffs: Int64, rel: float) -> Float64:
    """Relevant in the top k, over k, also where fewer than k were retrieved (m_P.c)."""
    return judged.found.relevant(rel).total(cutoffs) / cutoffs


def recall(judged: JudgedRanking, cutoffs: Int64, rel: float, cap: bool) -> Float64:
    """Relevant in the top k, over all relevant (m_recall.c); capped: over min(k, all relevant)."""
    n_relevant = judged.n_relevant(rel)
    reachable = np.minimum(n_relevant, cutoffs) if cap else n_relevant
    return ratio(judged.found.relevant(rel).total(cutoffs), reachable)


def mrr(judged: JudgedRanking, cutoffs: Int64, rel: float) -> Float64:
    """One over the rank of the first relevant document (m_recip_rank.c); 0 if none is in the top k."""
    relevant = judged.found.relevant(rel)
    return relevant.total(cutoffs, (relevant.nth() == 1) / relevant.ranks)


def average_precision(judged: JudgedRanking, cutoffs: Int64, rel: float, norm: str) -> Float64:
    """Sum of precision at each relevant rank in the top k, over all relevant (m_map_cut.c)."""
    relevant = judged.found.relevant(rel)
    precisions = relevant.total(cutoffs, relevant.nth() / relevant.ranks)
    return ratio(precisions, judged.n_relevant(rel) if norm == "all" else relevant.total(cutoffs))


def success(judged: JudgedRanking, cutoffs: Int64, rel: float) -> Float64:
    """1 if a relevant document is in the top k, else 0 (m_success.c)."""
    return np.minimum(judged.found.relevant(rel).total(cutoffs), 1)


def r_precision(judged: JudgedRanking, cutoffs: Int64, rel: float) -> Float64:
    """Precision at rank R, R being the number of all relevant documents (m_Rprec.c)."""
    n_relevant = judged.n_relevant(rel)
    relevant = judged.found.relevant(rel)
    within = relevant.ranks <= n_relevant[relevant.queries, 0]
    return ratio(relevant.total(cutoffs, within), n_relevant)


def judged_share(judged: JudgedRanking, cutoffs: Int64) -> Float64:
    """Judged documents, of any grade, over those retrieved in the top k (ir_measures' Judged)."""
    return ratio(judged.found.total(cutoffs), np.minimum(cutoffs, judged.retrieved[:, None]))


def bpref(judged: JudgedRanking, cutoffs: Int64, rel: float) -> Float64:
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


def infap(judged: JudgedRanking, cutoffs: Int64, rel: float) -> Float64:
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


def _non_relevant_above(judged: JudgedRanking, rel: float) -> tuple[GradedCells, Int64]:
    """The relevant cells, and for each the number of cells above of a grade from 0 to below `rel`."""
    labelled = judged.found.relevant(0)
    relevant = labelled.relevant(rel)
    return relevant, labelled.nth()[labelled.grades >= rel] - relevant.nth()


def cg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gains in the top k (Järvelin and Kekäläinen, TOIS 20(4), 2002)."""
    return judged.found.total(cutoffs, gains(judged.found.grades, gain))


def dcg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gain over log2(rank + 1) in the top k (m_ndcg_cut.c; Burges et al. 2005 for gain=exp)."""
    found = judged.found
    return found.total(cutoffs, gains(found.grades, gain) / np.log2(found.ranks + 1))


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    found = judged.found
    best = judged.ideal if ideal == "all" else ideal_order(found.n_queries, found.queries, found.grades)
    return ratio(dcg(judged, cutoffs, gain), dcg(replace(judged, found=best), cutoffs, gain))


def rbp(judged: JudgedRanking, cutoffs: Int64, p: float, rel: float) -> Float64:
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
    grades = judged.ideal.grades
    unfit = grades[(grades > HIGHEST_GRADE) | (grades % 1 != 0)]
    if unfit.size:
        raise InputError(
            f"grade {unfit.max():g} with err",
            allowed=f"whole grades up to {HIGHEST_GRADE}, as in gdeval",
            fix="use ndcg, or judgments of fewer grades",
        )
    return found.total(cutoffs, CONTENT[found.grades.astype(np.int64)] * _still_reading(found) / found.ranks)


def _still_reading(cells: GradedCells) -> Float64:
    """float64 [cells]: the probability that no document of the query above each cell ends the reading.

    Counted for each grade by itself: counts are exact, where sums of logarithms over all queries are not.
    """
    start = np.searchsorted(cells.queries, cells.queries)
    reading = np.ones(len(cells.queries))
    for grade in range(1, HIGHEST_GRADE + 1):
        above = np.cumsum(cells.grades == grade) - (cells.grades == grade)
        reading *= (1 - CONTENT[grade]) ** (above - above[start])
    return reading
