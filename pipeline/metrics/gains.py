"""Measures that weight documents by grade or rank: cumulative gain, and users who read until they stop."""

from __future__ import annotations

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64
from pipeline.metrics.graded import Cutoff, Definition, Ends, Graded, JudgedRanking, ideal_order, ratio

HIGHEST_GRADE = 4  # gdeval's MAX_JUDGMENT
MAX_EXP_GRADE = 1000  # 2**1024 overflows a float64
MOST_ROUNDS, ROUNDING = 100, 1e-12  # of Dinkelbach's method, which takes fewer than 10


def cg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gains in the top k (Järvelin and Kekäläinen, TOIS 20(4), 2002)."""
    return judged.found.total(cutoffs, gains(judged.found.grades, gain))


def dcg(judged: JudgedRanking, cutoffs: Int64, gain: str) -> Float64:
    """Sum of gain over log2(rank + 1) in the top k (m_ndcg_cut.c; Burges et al. 2005 for gain=exp)."""
    return _dcg(judged.found, cutoffs, gain)


def ndcg(judged: JudgedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    """DCG over the DCG of the best order of all judged, or of all retrieved, documents (m_ndcg_cut.c)."""
    return ratio(_dcg(judged.found, cutoffs, gain), _dcg(best_order(judged, ideal), cutoffs, gain))


def ndcg_ends(judged: JudgedRanking, cutoff: int, grade: int, gain: str, ideal: str) -> Ends:
    """The lowest and the highest nDCG that unjudged documents in the top k could give.

    A grade adds to DCG and to the ideal DCG, so that nDCG may rise or fall. Both are sums over the steps
    between grades: a step's part of DCG is its gain times the discounts of the documents of that grade or
    more, and its part of the ideal that times the discounts of as many first ranks. Of so many documents, the
    first unjudged ranks give the highest DCG, the last ones the lowest.

    The lowest nDCG gives each document no grade or the highest: in the gain of one document DCG is linear and
    the ideal convex, and so their quotient lowest at an end. The highest is found by Dinkelbach's method (*On
    nonlinear fractional programming*, Management Science 13(7), 1967): for a quotient q, maximize DCG less q
    times the ideal, which each step does by itself, and take the quotient found as the next q, until it does
    not rise.
    """
    best, unjudged = best_order(judged, ideal), judged.unjudged(cutoff)
    grades = np.unique(np.append(best.grades[best.grades > 0], grade))
    steps = np.diff(gains(grades, gain), prepend=0)
    counts = [best.relevant(g).count() for g in grades.tolist()]
    more = np.arange(unjudged.shape[1] + 1)
    most = min(cutoff, int(max(count.max() for count in counts)) + len(more))
    discounts = 1 / np.log2(np.arange(2, most + 2))
    first = np.append(0, np.cumsum(discounts))  # discounts of the first n ranks
    ideals = [first[np.minimum(count + more, most)] for count in counts]
    discounts = discounts[: unjudged.shape[1]]
    (value,) = _dcg(judged.found, np.array([cutoff]), gain).T

    falling, rising = (
        -np.sort(np.where(unjudged, -discounts, 0)),
        np.sort(np.where(unjudged, discounts, np.inf)),
    )
    from_top, from_bottom = (np.cumsum(np.insert(d, 0, 0, axis=1), axis=1) for d in (falling, rising))
    all_steps = sum(step * part for step, part in zip(steps, ideals, strict=True))
    lowest = ratio(value[:, None] + steps.sum() * from_bottom, all_steps).min(axis=1)
    rows, highest = np.arange(len(value)), np.zeros(len(value))
    for _ in range(MOST_ROUNDS):
        above, below = value.copy(), np.zeros(len(value))
        for step, part in zip(steps, ideals, strict=True):
            chosen = (from_top - highest[:, None] * part).argmax(axis=1)
            above += step * from_top[rows, chosen]
            below += step * part[rows, chosen]
        found = ratio(above, below)
        if (found <= highest + ROUNDING).all():
            break
        highest = np.maximum(found, highest)
    return lowest, highest


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
    "cg": Definition(cg, ("gain",), unjudged="raise"),
    "dcg": Definition(dcg, ("gain",), unjudged="raise"),
    "ndcg": Definition(ndcg, ("gain", "ideal"), unjudged=ndcg_ends, complete=True),
    "rbp": Definition(rbp, ("p", "rel"), Cutoff.OPTIONAL, "raise"),
    "rbp_residual": Definition(rbp_residual, ("p",), Cutoff.OPTIONAL),
    "err": Definition(err, (), unjudged="raise"),
}
