"""Measures of a user who reads down the ranking until something stops it."""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, Graded, JudgedRanking

HIGHEST_GRADE = 4  # gdeval's MAX_JUDGMENT


def rbp(judged: JudgedRanking, cutoffs: Int64, p: float, rel: int) -> Float64:
    """Sum of (1 - p) p^(rank - 1) over the relevant in the top k (Moffat and Zobel, TOIS 27(1), 2008).

    A user reads the first document, and each next one with a probability of `p`.
    """
    relevant = judged.found.relevant(rel)
    return relevant.total(cutoffs, _attention(relevant, p))


def rbp_residual(judged: JudgedRanking, cutoffs: Int64, p: float) -> Float64:
    """What unjudged documents, those below rank k among them, could add to RBP (Moffat and Zobel, 2008).

    The weight of all ranks is 1, so it is 1 less the weight of the judged documents in the top k. Those of a
    grade below 0 do not count as judged, as in trec_eval 10 (m_rbp_resid.c).
    """
    labelled = judged.found.relevant(0)
    return 1 - labelled.total(cutoffs, _attention(labelled, p))


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


def _attention(cells: Graded, p: float) -> Float64:
    """float64 [cells]: the share of reading that is spent at each rank."""
    return (1 - p) * np.power(p, cells.ranks - 1, dtype=np.float64)


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
    "rbp": Definition(rbp, ("p", "rel"), Cutoff.OPTIONAL, "raise"),
    "rbp_residual": Definition(rbp_residual, ("p",), Cutoff.OPTIONAL),
    "err": Definition(err, (), unjudged="raise"),
}
