"""Measures that ask of a document only whether it is relevant: of a grade of `rel` or more."""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, JudgedRanking, ratio


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


MEASURES = {
    "precision": Definition(precision),
    "recall": Definition(recall, ("cap", "rel")),
    "mrr": Definition(mrr, cutoff=Cutoff.OPTIONAL),
    "map": Definition(average_precision, ("norm", "rel"), Cutoff.OPTIONAL),
    "success": Definition(success),
    "r_precision": Definition(r_precision, cutoff=Cutoff.NONE),
}
