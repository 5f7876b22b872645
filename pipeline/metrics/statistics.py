"""Means over queries of one collection or several: standard errors, intervals and t-tests.

Arrays come as *strata*: for each collection float64 [queries, columns], with the same columns. Of several
collections the mean is the macro mean M = Σ w_c · m_c: m_c is the mean over the n_c queries of collection c,
and the weights w_c sum to 1. Queries are a sample of those that each collection could have; the collections
are fixed. So the variance of M is Σ w_c² · s_c² / n_c, s_c the standard deviation (n_c - 1) of collection c.

One collection is one stratum of weight 1: the degrees of freedom are n - 1, and every test and interval is
Student's.
"""

from __future__ import annotations

from collections import Counter
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


@dataclass(frozen=True)
class Estimate:
    """Means of columns, float64 [columns] each.

    Attributes:
        means: M of each.
        errors: Standard errors: the root of Σ w_c² · s_c² / n_c.
        freedom: Degrees of freedom of the variance (Satterthwaite, Biometrics Bulletin 2(6), 1946):
            (Σ v_c)² / Σ v_c² / (n_c - 1), with v_c = w_c² · s_c² / n_c; 0 where a collection has one query.
    """

    means: Float64
    errors: Float64
    freedom: Float64


def weights_of(groups: Sequence[str | None]) -> Float64:
    """float64 [collections], which sum to 1: each collection counts alike, and each group as one collection.

    `groups` has the group of each collection, None where it is in none.
    """
    sizes = Counter(group for group in groups if group is not None)
    units = len(sizes) + sum(group is None for group in groups)
    return np.array([1 / units / (1 if group is None else sizes[group]) for group in groups])


def estimate(strata: Strata, weights: Float64 = ONE, more: float = 0.0) -> Estimate:
    """The mean of each column, with its standard error.

    Ties can hide spread. With `more`, a collection with fewer than 3 values that differ from the most common
    one is taken to have `more` further such values, which differ by the widest range of values in any
    collection: that adds w_c² · more · range² / n_c² to its variance.
    """
    moments = [mean_and_error(values) for values in strata]
    means = np.stack([mean for mean, _ in moments])
    shares = np.stack([error for _, error in moments]) * weights[:, None]
    sizes = np.array([[len(values)] for values in strata])
    if more:
        widest: Float64 = np.max([np.ptp(values, axis=0) for values in strata], axis=0)
        few = np.stack([_others(values) < RULE_OF_THREE for values in strata])
        shares = np.hypot(shares, few * widest * np.sqrt(more) * weights[:, None] / sizes)
    # variances are counted in units of the largest, so that no square is too small for a float
    spread = np.where(shares.max(axis=0) > 0, shares.max(axis=0), 1)
    variances = (shares / spread) ** 2
    errors = np.sqrt(variances.sum(axis=0)) * spread * (shares.max(axis=0) > 0)
    freedom = np.full(means.shape[1], float(sizes[0, 0] - 1))
    if len(strata) > 1:
        freedom = np.zeros(means.shape[1])
        if sizes.min() > 1:
            below = (variances**2 / (sizes - 1)).sum(axis=0)
            freedom = np.divide(variances.sum(axis=0) ** 2, below, out=freedom, where=below > 0)
    return Estimate(weights @ means, errors, freedom)


def mean_and_error(values: Float64) -> tuple[Float64, Float64]:
    """The mean of each column and its standard error, s / √n; of one query the error is 0."""
    n_queries = len(values)
    # columns divided by a power of two, so that no square is too large or too small
    _, power = np.frexp(np.abs(values).max(axis=0))
    scaled = np.ldexp(values, -power)
    deviations = scaled.std(axis=0, ddof=1) if n_queries > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0), np.ldexp(deviations / np.sqrt(n_queries), power)


def has_interval(strata: Strata, weights: Float64 = ONE) -> BoolArray:
    """Bool [columns]: whether an interval is shown. The one rule for it.

    The degrees of freedom are at least those of `MIN_QUERIES` queries, and `MIN_OTHERS` values or more differ
    from the most common one of their collection.
    """
    others = np.sum([_others(values) for values in strata], axis=0)
    freedom = estimate(strata, weights, HALF_A_VALUE).freedom
    shown: BoolArray = (freedom >= MIN_QUERIES - 1 - ROUNDING) & (others >= MIN_OTHERS)
    return shown


def _others(values: Float64) -> Float64:
    """For each column how many values differ from the most common one; `MIN_OTHERS` for more."""
    n_queries = len(values)
    others = np.full(values.shape[1], float(MIN_OTHERS))
    if n_queries < 2 * MIN_OTHERS:
        tied = np.ones(len(others), dtype=bool)
    else:  # a value that occurs n - 4 times or more stands, sorted, in two places n - 5 apart
        in_order = np.sort(values, axis=0)
        tied = (in_order[:MIN_OTHERS] == in_order[n_queries - MIN_OTHERS :]).any(axis=0)
    for column in np.flatnonzero(tied):
        counts = np.unique(values[:, column], return_counts=True)[1]
        others[column] = min(n_queries - int(counts.max()), MIN_OTHERS)
    return others


def gate_decides(strata: Strata, weights: Float64 = ONE) -> BoolArray:
    """Bool [columns]: whether a gate may decide.

    Of one collection: there are `MIN_QUERIES` queries. Of several: an interval is shown and ties hide little,
    or nothing differs. Three more values are as many as there may be where none was seen (the rule of three:
    Hanley and Lippman-Hand, J. American Medical Association 249(13), 1983). What they would add to the
    variance of M is at most `HIDDEN` of it.
    """
    if len(strata) == 1:
        return np.full(strata[0].shape[1], len(strata[0]) >= MIN_QUERIES)
    known, hidden = estimate(strata, weights), estimate(strata, weights, RULE_OF_THREE)
    little: BoolArray = hidden.errors <= np.sqrt(1 + HIDDEN) * known.errors
    decides: BoolArray = (has_interval(strata, weights) & little) | (known.errors == 0)
    return decides


def mean_intervals(
    strata: Strata, weights: Float64 = ONE, confidence: float = CONFIDENCE
) -> tuple[Float64, Float64]:
    """Student's t interval of each mean: M ± t · standard error.

    Of what ties may hide, half a value more is counted, as Jeffreys' prior adds to a share of which none was
    seen (Brown, Cai and DasGupta, *Interval estimation for a binomial proportion*, Statistical Science 16(2),
    2001). `scripts/simulate_statistics.py` counts how often such intervals hold the mean.

    Returns:
        float64 [columns] each: the low and the high end, NaN where `has_interval` is false.
    """
    from scipy.special import stdtrit

    if not all(map(len, strata)):
        raise ValueError("no query to estimate a mean from")
    made = estimate(strata, weights, HALF_A_VALUE)
    reach = stdtrit(np.maximum(made.freedom, 1), (1 + confidence) / 2) * made.errors
    reach = np.where(has_interval(strata, weights), reach, np.nan)
    return made.means - reach, made.means + reach


def shown_intervals(strata: Strata, weights: Float64 = ONE, confidence: float = CONFIDENCE) -> list[Interval]:
    """The interval of each column's mean, of `mean_intervals`; None where none is shown."""
    bounds = zip(*mean_intervals(strata, weights, confidence), strict=True)
    return [None if np.isnan(low) else (float(low), float(high)) for low, high in bounds]


def t_quantile(n_queries: int, probability: float) -> float:
    """The quantile of Student's t with n - 1 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(max(n_queries - 1, 1), probability))


def t_test(strata: Strata, weights: Float64 = ONE) -> Float64:
    """float64 [columns]: two-sided p of M = 0.

    Of one collection of differences it is the paired t-test, as by `scipy.stats.ttest_rel`; of several that
    of M over its error with Satterthwaite's degrees of freedom (Welch, Biometrika 34, 1947). A column of
    zeros has p = 1, and so has a collection of one query: its spread is not known.
    """
    from scipy.special import stdtr

    columns = strata[0].shape[1]
    if min(map(len, strata)) < 2:
        return np.ones(columns)
    # t does not depend on the scale: a power of two keeps squares within the range of floats
    _, power = np.frexp(np.max([np.abs(values).max(axis=0) for values in strata], axis=0))
    made = estimate([np.ldexp(values, -power) for values in strata], weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(made.means) / made.errors
    p: Float64 = np.where(made.means != 0, 2 * stdtr(np.maximum(made.freedom, 1), -t), 1.0)
    return p
