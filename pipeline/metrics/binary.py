"""Measures that ask only whether a document is relevant (of grade `rel` or more), or judged at all."""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, Graded, JudgedRanking, ratio

EPSILON = 0.00001  # INFAP_EPSILON of trec_eval.h


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


MEASURES = {
    "precision": Definition(precision),
    "recall": Definition(recall, ("cap", "rel"), complete=True),
    "mrr": Definition(mrr, cutoff=Cutoff.OPTIONAL),
    "map": Definition(average_precision, ("norm", "rel"), Cutoff.OPTIONAL, complete=True),
    "success": Definition(success),
    "r_precision": Definition(r_precision, cutoff=Cutoff.NONE, complete=True),
    "judged": Definition(judged_share, ()),
    "bpref": Definition(bpref, cutoff=Cutoff.NONE, complete=True),
    "infap": Definition(infap, cutoff=Cutoff.NONE, complete=True),
}
