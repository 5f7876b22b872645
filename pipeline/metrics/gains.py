"""Cumulative gain: measures that add up the grades, discounted by rank."""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Definition, Graded, JudgedRanking, ideal_order, ratio

MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64


def cg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gains in the top k (Järvelin and Kekäläinen, TOIS 20(4), 2002)."""
    return judged.found.total(cutoffs, gains(judged.found.grades, gain))


def dcg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gain over log2(rank + 1) in the top k (m_ndcg_cut.c; Burges et al. 2005 for gain=exp)."""
    return _dcg(judged.found, cutoffs, gain)


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    return ratio(_dcg(judged.found, cutoffs, gain), _dcg(best_order(judged, ideal), cutoffs, gain))


def best_order(judged: JudgedRanking, ideal: str) -> Graded:
    """The best order of all judged documents, or with `ideal` "retrieved" of those in the ranking."""
    found = judged.found
    return judged.ideal if ideal == "all" else ideal_order(found.n_queries, found.queries, found.grades)


def gains(grades: Int64, gain: str) -> Float64:
    """float64 [n]: the grade, or 2**grade - 1; 0 for grades below 0."""
    grades = np.maximum(grades, 0)
    if gain == "linear":
        return grades.astype(np.float64)
    highest = grades.max(initial=0)
    if highest > MAX_EXP_GRADE:
        raise InputError(f"grade {highest} with gain=exp", allowed=f"grades up to {MAX_EXP_GRADE}")
    return np.exp2(grades) - 1


def _dcg(graded: Graded, cutoffs: Int64, gain: str) -> Float64:
    return graded.total(cutoffs, gains(graded.grades, gain) / np.log2(graded.ranks + 1))


MEASURES = {
    "cg": Definition(cg, ("gain",)),
    "dcg": Definition(dcg, ("gain",)),
    "ndcg": Definition(ndcg, ("gain", "ideal")),
}
