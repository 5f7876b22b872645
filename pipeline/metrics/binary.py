"""Measures that ask only whether a document is relevant (of grade `rel` or more), or judged at all."""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, Ends, Graded, JudgedRanking, ratio

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


def average_precision_ends(judged: JudgedRanking, cutoff: int, grade: int, rel: int, norm: str) -> Ends:
    """The lowest and the highest average precision that unjudged documents in the top k could give.

    One more relevant document adds to the sum of precisions, and to the number that it is divided by, so
    that the value may rise or fall. Of so many, the first unjudged ranks give the highest sum, and the last
    ones the lowest; so the ranks are made relevant one by one, from the top and from the bottom, and every
    quotient on the way is a candidate. A rank adds its own precision, and 1 / rank at each relevant rank
    below it.
    """
    (value,) = average_precision(judged, np.array([cutoff]), rel, norm).T
    if grade < rel:
        return value, value
    unjudged = judged.unjudged(cutoff)
    ranks = np.arange(1, unjudged.shape[1] + 1)
    relevant = np.zeros(unjudged.shape, dtype=np.bool_)
    cells = judged.found.relevant(rel)
    cells = cells.where(cells.ranks <= len(ranks))
    relevant[cells.queries, cells.ranks - 1] = True
    above = np.cumsum(relevant, axis=1, dtype=np.int64)
    total = (relevant * above / ranks).sum(axis=1, keepdims=True)
    divisor = judged.n_relevant(rel) if norm == "all" else above[:, -1:]
    below = _sum_below(relevant / ranks)
    made = np.cumsum(unjudged, axis=1, dtype=np.int64)
    from_top = unjudged * ((above + made) / ranks + below)
    from_bottom = unjudged * ((above + 1) / ranks + below + _sum_below(unjudged / ranks))
    left = made[:, -1:] - made + unjudged  # at this rank and below
    high = ratio(total + np.cumsum(from_top, axis=1), divisor + made)
    low = ratio(total + from_bottom + _sum_below(from_bottom), divisor + left)
    return (
        np.minimum(value, low.min(axis=1, initial=np.inf, where=unjudged)),
        np.maximum(value, high.max(axis=1, initial=0, where=unjudged)),
    )


def _sum_below(weights: Float64) -> Float64:
    """float64 [queries, k]: the sum of the weights further down the ranking, which stand further right."""
    below: Float64 = weights.sum(axis=1, keepdims=True) - np.cumsum(weights, axis=1)
    return below


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
    "precision": Definition(precision, unjudged="raise"),
    "recall": Definition(recall, ("cap", "rel"), unjudged="raise", complete=True),
    "mrr": Definition(mrr, cutoff=Cutoff.OPTIONAL, unjudged="raise"),
    "map": Definition(
        average_precision, ("norm", "rel"), Cutoff.OPTIONAL, average_precision_ends, complete=True
    ),
    "success": Definition(success, unjudged="raise"),
    "r_precision": Definition(r_precision, cutoff=Cutoff.NONE, complete=True),
    "judged": Definition(judged_share, ()),
    "bpref": Definition(bpref, cutoff=Cutoff.NONE, complete=True),
    "infap": Definition(infap, cutoff=Cutoff.NONE, complete=True),
}
