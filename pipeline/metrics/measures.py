"""The measures as functions of arrays: judged documents at their ranks in, a value for each query out.

Each is one small function of a `JudgedRanking`, which computes all its cutoffs at once. `definitions` says
what else is true of each.

Formulas are those of trec_eval (https://github.com/usnistgov/trec_eval), where it has the measure, and the C
files named beside functions are its own; `docs/measures.md` gives each formula.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64
from pipeline.metrics.rankings import GradedCells, JudgedRanking, gains, ideal_order, ratio

HIGHEST_GRADE = 4  # gdeval's MAX_JUDGMENT
CONTENT = (2.0 ** np.arange(HIGHEST_GRADE + 1) - 1) / 2**HIGHEST_GRADE
"""The probability to be content with a document of each grade."""
EPSILON = 0.00001  # INFAP_EPSILON of trec_eval.h


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
    first = relevant.where(relevant.nth() == 1)
    return first.total(cutoffs, 1 / first.ranks)


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
    within = relevant.where(relevant.ranks <= n_relevant[relevant.queries, 0])
    return ratio(within.total(cutoffs), n_relevant)


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
    return judged.found.dcg(cutoffs, gain)


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    found = judged.found
    best = judged.ideal if ideal == "all" else ideal_order(found.n_queries, found.queries, found.grades)
    return ratio(found.dcg(cutoffs, gain), best.dcg(cutoffs, gain))


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
