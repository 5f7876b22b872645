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
(Brown, Cai and DasGupta, Statistical Science 16(2), 2001).

No spread tells of losses that are rare, large and not in the sample. So an interval is shown only where one
query more, at the far end of the measure's range, would not decide it (see `Estimate.shown`).
`scripts/simulate_statistics.py` counts how often the intervals hold the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import BoolArray, Float64, Int64

CONFIDENCE = 0.95
MIN_QUERIES = 25
"""With fewer queries no interval is shown: of skewed values, it would hold the mean too rarely."""
MIN_OTHERS = 5
"""Nor is one shown where fewer values than this differ from the most common one: ties hide the spread."""
MANY_OTHERS = 10
"""To pass anything a gate does not look at the spread either where fewer values than this differ from it."""
MOST_OF_ONE = 1 / 3
"""Nor where one query more, at the far end of the measure's range, would carry more of the variance."""
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
        others: int [columns]: the values that differ from the most common one of their collection; of each
            collection at most `MANY_OTHERS` are counted.
        shown: Whether an interval is shown. The one rule for it: the wide degrees of freedom are at least
            those of `MIN_QUERIES` queries; `MIN_OTHERS` values or more differ from the most common one of
            their collection; and one query more, at the far end of the measure's range, would carry at most
            `MOST_OF_ONE` of the variance. Differences are asked the last only in collections where two thirds
            of them or more are ties: there few queries carry the variance.
        intervals: M ± t · wide error, t the quantile of Student's t; within the range.
        ends: The same, as two values of each.
    """

    means: Float64
    errors: Float64
    freedom: Float64
    p: Float64
    wide_errors: Float64
    wide_freedom: Float64
    others: Int64
    shown: BoolArray
    intervals: list[Interval]
    ends: list[Ends]


def estimate(
    strata: Strata,
    weights: Float64 = ONE,
    confidence: float = CONFIDENCE,
    hidden: float = HALF_A_VALUE,
    low: ArrayLike = -inf,
    high: ArrayLike = inf,
) -> Estimate:
    """The mean of each column, its standard error, t-test and interval.

    Args:
        strata: For each collection float64 [queries, columns].
        weights: float64 [collections].
        confidence: Of the intervals.
        hidden: How many values, hidden by ties, widen the errors.
        low: The lowest that values can be, float64 [columns] or one for all; of differences below 0.
        high: The highest; infinite where there is none.
    """
    from scipy.special import stdtr, stdtrit

    sizes = np.array([[len(values)] for values in strata])
    if not sizes.all():
        raise ValueError("no query to estimate a mean from")
    # columns are divided by a power of two, so that no square is too large or too small for a float
    _, power = np.frexp(np.max([np.abs(values).max(axis=0) for values in strata], axis=0))
    strata = [np.ldexp(values, -power) for values in strata]
    lowest, highest = (
        np.ldexp(np.broadcast_to(end, power.shape).astype(np.float64), -power) for end in (low, high)
    )
    # how many values differ from the most common one, at most `MANY_OTHERS`; whether at most a third do
    others = np.full((len(strata), len(power)), MANY_OTHERS)
    mostly_ties = np.zeros(others.shape, dtype=bool)
    for counts, ties, values in zip(others, mostly_ties, strata, strict=True):
        n_queries, in_order = len(values), np.sort(values, axis=0)
        for j in reversed(range(min(MANY_OTHERS, n_queries))):
            counts[_all_but(j, in_order)] = j
        ties |= _all_but(n_queries // 3, in_order)
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
    by_collection = np.stack([values.mean(axis=0) for values in strata])
    means = weights @ by_collection
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(np.maximum(freedom[0], 1), -np.abs(means) / errors[0])
    p = np.where((means != 0) & (sizes.min() > 1), p, 1.0)
    # what one query more at the far end of the range would add to the variance, in the collection where
    # that is the most; nothing where there is no range
    far = np.maximum(by_collection - lowest, highest - by_collection) * weights[:, None] / sizes
    far = np.where(np.isfinite(far) & (mostly_ties | (lowest >= 0)), far, 0).max(axis=0)
    shown = (freedom[1] >= MIN_QUERIES - 1 - ROUNDING) & (others.sum(axis=0) >= MIN_OTHERS)
    shown &= far**2 * (1 - MOST_OF_ONE) <= errors[0] ** 2 * MOST_OF_ONE
    reach = stdtrit(np.maximum(freedom[1], 1), (1 + confidence) / 2) * errors[1]
    both = np.ldexp(np.clip([means - reach, means + reach], lowest, highest).T, power[:, None])
    intervals = [
        (start, end) if each else None for each, (start, end) in zip(shown, both.tolist(), strict=True)
    ]
    return Estimate(
        means=np.ldexp(means, power),
        errors=np.ldexp(errors[0], power),
        freedom=freedom[0],
        p=p,
        wide_errors=np.ldexp(errors[1], power),
        wide_freedom=freedom[1],
        others=others.sum(axis=0),
        shown=shown,
        intervals=intervals,
        ends=[each or (None, None) for each in intervals],
    )


def _all_but(j: int, in_order: Float64) -> BoolArray:
    """Bool [columns]: whether all but j values of a column, or more, are equal; values are sorted."""
    alike: BoolArray = (in_order[: j + 1] == in_order[len(in_order) - 1 - j :]).any(axis=0)
    return alike


def by_query(strata: Strata, weights: Float64, ids: Sequence[Sequence[str]]) -> tuple[Strata, Float64]:
    """The same macro mean, as one over independent queries, where collections share some.

    One query id is one query, in whatever collections it is: translations of the same questions stand or fall
    together, and count as one draw. Their texts differ, so only ids can tell. Where unrelated collections use
    the same numbers as ids, all holds as well: their covariance is estimated and is near 0. It costs degrees
    of freedom, n - 1 in place of 2 (n - 1) for two collections of n queries: 1% in width at 50.

    A query of several collections adds z = Σ w_c / n_c · x_c to M. The queries that are in the same
    collections are a stratum. Strata of fewer than `MIN_QUERIES` queries are joined, as long as they are
    parts of a collection: of its other queries they differ only by what they are shared with.

    Args:
        strata: For each collection float64 [queries, columns].
        weights: float64 [collections].
        ids: For each collection those of its queries.

    Returns:
        Strata and weights; those given, where no id is in two collections.
    """
    rows_of: dict[str, int] = {}
    rows = [np.array([rows_of.setdefault(each, len(rows_of)) for each in names]) for names in ids]
    if len(rows_of) == sum(map(len, rows)):
        return strata, weights
    values, counted = np.zeros((len(rows_of), strata[0].shape[1])), np.zeros((len(rows_of), 1))
    is_in = np.zeros((len(rows_of), len(strata)), dtype=bool)
    for number, (own, added, weight) in enumerate(zip(rows, strata, weights, strict=True)):
        values[own] += weight / len(own) * added
        counted[own] += weight / len(own)
        is_in[own, number] = True
    patterns, stratum_of = np.unique(is_in, axis=0, return_inverse=True)
    stratum_of, sizes = stratum_of.ravel(), np.bincount(stratum_of.ravel())
    of_collections = is_in.sum(axis=0)
    smallest = np.where(patterns, of_collections, len(rows_of)).min(axis=1)
    is_part = np.where(patterns, of_collections, 0).max(axis=1) > sizes
    parts = sorted(np.flatnonzero(is_part).tolist(), key=sizes.__getitem__)
    joined: list[int] = []
    while parts and (
        sizes[parts[0]] < MIN_QUERIES
        or (joined and sizes[joined].sum() < min(MIN_QUERIES, smallest[joined].min()))
    ):
        joined.append(parts.pop(0))
    for part in joined:
        stratum_of[stratum_of == part] = joined[0]
    made, new_weights = [], []
    for stratum in dict.fromkeys(stratum_of.tolist()):
        inside = stratum_of == stratum
        new_weights.append(float(counted[inside].sum()))
        made.append(values[inside] * (inside.sum() / new_weights[-1]))
    return made, np.array(new_weights)


def spread_known(made: Estimate, strata: Strata, weights: Float64 = ONE) -> BoolArray:
    """Bool [columns]: whether a gate may look at the spread, by one rule for one collection and for several.

    An interval of `made`, which knows no range, is shown, and ties in single collections hide little. Three
    more values are as many as there may be where none was seen (the rule of three: Hanley and Lippman-Hand,
    J. American Medical Association 249(13), 1983). What they would add to the variance of M is at most
    `HIDDEN` of it.
    """
    by_three = estimate(strata, weights, hidden=RULE_OF_THREE)
    known: BoolArray = made.shown & (by_three.wide_errors <= np.sqrt(1 + HIDDEN) * made.errors)
    return known
