"""Measures for judgments that are not complete: how many there are, and what is known without the others."""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, Graded, JudgedRanking, ratio

EPSILON = 0.00001  # INFAP_EPSILON of trec_eval.h


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
    "judged": Definition(judged_share, ()),
    "bpref": Definition(bpref, cutoff=Cutoff.NONE, complete=True),
    "infap": Definition(infap, cutoff=Cutoff.NONE, complete=True),
}
