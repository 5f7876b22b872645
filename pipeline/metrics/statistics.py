"""Means over queries of one collection or several: standard errors, intervals and t-tests.

Arrays come as *strata*: for each collection float64 [queries, columns], with the same columns. Of several
collections the mean is the macro mean M = Σ w_c · m_c: m_c is the mean over the n_c queries of collection c,
and the weights w_c sum to 1. Queries are a sample of those that each collection could have; the collections
are fixed. So the variance of M is Σ w_c² · s_c² / n_c, s_c the standard deviation (n_c - 1) of collection c.

One collection is one stratum of weight 1: the degrees of freedom are n - 1, and every test and interval is
Student's.

Ties can hide spread. For wide errors, a collection with fewer than 3 values that differ from the most common
one is taken to have half a value more that does, by the widest range of values in any collection: that adds
w_c² · range² / 2 / n_c² to its variance. So much Jeffreys' prior adds to a share of which none was seen
(Brown, Cai and DasGupta, Statistical Science 16(2), 2001). In `scripts/simulate_statistics.py` such intervals
hold the mean as often as they say, where bootstrap intervals do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import BoolArray, Float64

CONFIDENCE = 0.95
MIN_QUERIES = 25
"""With fewer queries no interval is shown: of skewed values, it would hold the mean too rarely."""
MIN_OTHERS = 5
"""Nor is one shown where fewer values than this differ from the most common one: ties hide the spread."""
RULE_OF_THREE = 3
HIDDEN = 0.2
"""Largest share of a variance that ties may hide for a gate to decide."""
HALF_A_VALUE = 0.5  # that intervals count of what ties may hide
ROUNDING = 1e-12

Strata = Sequence[Float64]
ONE = np.ones(1)
"""The weights of a single collection."""
Interval = tuple[float, float] | None
"""The ends of an interval; None where none is shown."""
Ends = tuple[float, float] | tuple[None, None]
"""The same as two values."""


@dataclass(frozen=True)
class Estimate:
    """Means of columns, float64 [columns] each, with their errors, tests and intervals.

    Attributes:
        means: M of each.
        errors: Standard errors: the root of Σ w_c² · s_c² / n_c.
        freedom: Degrees of freedom of the variance (Satterthwaite, Biometrics Bulletin 2(6), 1946):
            (Σ v_c)² / Σ v_c² / (n_c - 1), with v_c = w_c² · s_c² / n_c; 0 where a collection has one query.
        p: Two-sided p of M = 0: of one collection of differences the paired t-test (Student 1908), as by
            `scipy.stats.ttest_rel`; of several that of M over its error (Welch, Biometrika 34, 1947). It is 1
            for a column of zeros and where a collection has one query, as its spread is not known; 0 if all
            queries differ by exactly the same amount, as in SciPy.
        wide_errors, wide_freedom: The same with the spread that ties may hide.
        shown: Whether an interval is shown. The one rule for it: the wide degrees of freedom are at least
            those of `MIN_QUERIES` queries, and `MIN_OTHERS` values or more differ from the most common one of
            their collection.
        intervals: M ± t · wide error, t the quantile of Student's t.
        ends: The same, as two values of each.
    """

    means: Float64
    errors: Float64
    freedom: Float64
    p: Float64
    wide_errors: Float64
    wide_freedom: Float64
    shown: BoolArray
    intervals: list[Interval]
    ends: list[Ends]


def estimate(
    strata: Strata, weights: Float64 = ONE, confidence: float = CONFIDENCE, hidden: float = HALF_A_VALUE
) -> Estimate:
    """The mean of each column, its standard error, t-test and interval; `hidden` values widen the errors."""
    from scipy.special import stdtr, stdtrit

    sizes = np.array([[len(values)] for values in strata])
    if not sizes.all():
        raise ValueError("no query to estimate a mean from")
    # columns are divided by a power of two, so that no square is too large or too small for a float
    _, power = np.frexp(np.max([np.abs(values).max(axis=0) for values in strata], axis=0))
    strata = [np.ldexp(values, -power) for values in strata]
    # how many values differ from the most common one, at most `MIN_OTHERS`: where it is all but j of n, two
    # sorted values that are n - 1 - j places apart are equal
    others = np.full((len(strata), len(power)), MIN_OTHERS)
    for counts, values in zip(others, strata, strict=True):
        n_queries, in_order = len(values), np.sort(values, axis=0)
        for j in reversed(range(min(MIN_OTHERS, n_queries))):
            counts[(in_order[: j + 1] == in_order[n_queries - 1 - j :]).any(axis=0)] = j
    deviations = [
        values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(power)) for values in strata
    ]
    shares = np.stack(deviations) / np.sqrt(sizes) * weights[:, None]
    widest = np.max([np.ptp(values, axis=0) for values in strata], axis=0)
    few = others < RULE_OF_THREE
    wide = np.hypot(shares, few * widest * np.sqrt(hidden) * weights[:, None] / sizes)
    both = np.stack([shares, wide])  # [2, collections, columns]
    largest = both.max(axis=1, keepdims=True)
    variances = (both / np.where(largest > 0, largest, 1)) ** 2
    errors = np.sqrt(variances.sum(axis=1)) * largest[:, 0]
    freedom = np.full(errors.shape, float(sizes[0, 0] - 1))
    if len(strata) > 1:
        freedom = np.zeros(errors.shape)
        below = (variances**2 / np.maximum(sizes - 1, 1)).sum(axis=1)
        np.divide(variances.sum(axis=1) ** 2, below, out=freedom, where=(below > 0) & (sizes.min() > 1))
    means = weights @ np.stack([values.mean(axis=0) for values in strata])
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(np.maximum(freedom[0], 1), -np.abs(means) / errors[0])
    p = np.where((means != 0) & (sizes.min() > 1), p, 1.0)
    shown = (freedom[1] >= MIN_QUERIES - 1 - ROUNDING) & (others.sum(axis=0) >= MIN_OTHERS)
    reach = stdtrit(np.maximum(freedom[1], 1), (1 + confidence) / 2) * errors[1]
    both = np.ldexp(np.column_stack([means - reach, means + reach]), power[:, None])
    intervals = [
        (low, high) if each else None for each, (low, high) in zip(shown, both.tolist(), strict=True)
    ]
    return Estimate(
        means=np.ldexp(means, power),
        errors=np.ldexp(errors[0], power),
        freedom=freedom[0],
        p=p,
        wide_errors=np.ldexp(errors[1], power),
        wide_freedom=freedom[1],
        shown=shown,
        intervals=intervals,
        ends=[each or (None, None) for each in intervals],
    )


def gate_decides(strata: Strata, weights: Float64 = ONE) -> BoolArray:
    """Bool [columns]: whether a gate may decide.

    Of one collection: there are `MIN_QUERIES` queries. Of several: an interval is shown and ties hide little,
    or nothing differs. Three more values are as many as there may be where none was seen (the rule of three:
    Hanley and Lippman-Hand, J. American Medical Association 249(13), 1983). What they would add to the
    variance of M is at most `HIDDEN` of it.
    """
    if len(strata) == 1:
        return np.full(strata[0].shape[1], len(strata[0]) >= MIN_QUERIES)
    made, by_three = estimate(strata, weights), estimate(strata, weights, hidden=RULE_OF_THREE)
    little: BoolArray = by_three.wide_errors <= np.sqrt(1 + HIDDEN) * made.errors
    decides: BoolArray = (made.shown & little) | (made.errors == 0)
    return decides
