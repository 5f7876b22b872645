"""Measures that weight documents by grade or rank: cumulative gain, and users who read until they stop."""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, Graded, JudgedRanking, ideal_order, ratio

HIGHEST_GRADE = 4  # gdeval's MAX_JUDGMENT
MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64


def cg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gains in the top k (Järvelin and Kekäläinen, TOIS 20(4), 2002)."""
    return judged.found.total(cutoffs, gains(judged.found.grades, gain))


def dcg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gain over log2(rank + 1) in the top k (m_ndcg_cut.c; Burges et al. 2005 for gain=exp)."""
    return _dcg(judged.found, cutoffs, gain)


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    found = judged.found
    best = judged.ideal if ideal == "all" else ideal_order(found.n_queries, found.queries, found.grades)
    return ratio(_dcg(found, cutoffs, gain), _dcg(best, cutoffs, gain))


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
    return found.total(cutoffs, _content(found.grades) * _still_reading(found) / found.ranks)


def _content(grades: Int64) -> Float64:
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
        reading *= (1 - _content(np.array(grade))) ** (above - above[start])
    return reading


MEASURES = {
    "cg": Definition(cg, ("gain",)),
    "dcg": Definition(dcg, ("gain",)),
    "ndcg": Definition(ndcg, ("gain", "ideal"), complete=True),
    "rbp": Definition(rbp, ("p", "rel"), Cutoff.OPTIONAL),
    "err": Definition(err, ()),
}
