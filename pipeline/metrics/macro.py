"""Macro means: means over collections of means over queries, with their intervals and tests.

A macro mean is M = Σ w_c · m_c, with m_c the mean over the n_c queries of collection c, and weights w_c that
sum to 1. Queries are a sample of those that each collection could have; the collections are as they are. So
the variance of M is Σ w_c² · s_c² / n_c, s_c the standard deviation (n_c - 1) of collection c.

Arrays come as *strata*: for each collection float64 [queries, columns], with the same columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import BoolArray, Float64, Int64
from pipeline.metrics.noninferiority import ROUNDING
from pipeline.metrics.statistics import CONFIDENCE, MIN_OTHERS, MIN_QUERIES, mean_and_error

RESAMPLES = 10_000
SEED = 20192
RULE_OF_THREE = 3
HIDDEN = 0.2
"""The share of a variance that ties may hide at most, where a gate decides."""
HALF_A_VALUE = 0.5  # that intervals count of what ties may hide
BLOCK_DRAWS = 1 << 20  # random draws made at once
MOST_DRAWN = 1000
"""Queries of a collection up to which resamples are drawn query by query."""

Strata = Sequence[Float64]


@dataclass(frozen=True)
class Macro:
    """Macro means of columns, float64 [columns] each.

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


def macro(strata: Strata, weights: Float64, more: float = 0.0) -> Macro:
    """The macro mean of each column, with its standard error.

    Ties can hide spread. With `more`, a collection with fewer than 3 values that differ from the most common
    one is taken to have so many more such values, which differ by the widest range of values in any
    collection: that adds w_c² · more · range² / n_c² to its variance.
    """
    moments = [mean_and_error(values) for values in strata]
    means = np.stack([mean for mean, _ in moments])
    shares = np.stack([error for _, error in moments]) * weights[:, None]
    if more:
        widest: Float64 = np.max([np.ptp(values, axis=0) for values in strata], axis=0)
        few = np.stack([_others(values) < RULE_OF_THREE for values in strata])
        sizes = np.array([[len(values)] for values in strata])
        shares = np.hypot(shares, few * widest * np.sqrt(more) * weights[:, None] / sizes)
    return _joined(means, shares, weights, np.array([len(values) for values in strata]))


def _joined(means: Float64, shares: Float64, weights: Float64, sizes: Int64) -> Macro:
    """The macro mean of float64 [collections, columns]: means, and standard errors times the weights."""
    spread = np.where(shares.max(axis=0) > 0, shares.max(axis=0), 1)
    variances = (shares / spread) ** 2  # of the largest, so that no square is too small
    freedom = np.zeros(means.shape[1])
    if sizes.min() > 1:
        below = (variances**2 / (sizes - 1)[:, None]).sum(axis=0)
        freedom = np.divide(variances.sum(axis=0) ** 2, below, out=freedom, where=below > 0)
    return Macro(weights @ means, np.sqrt(variances.sum(axis=0)) * spread * (shares.max(axis=0) > 0), freedom)


def macro_shown(strata: Strata, weights: Float64) -> BoolArray:
    """Bool [columns]: whether an interval is shown.

    As of one collection: the degrees of freedom are at least those of 25 queries, and 5 values or more differ
    from the most common one of their collection.
    """
    made = macro(strata, weights, HALF_A_VALUE)
    others = np.sum([_others(values) for values in strata], axis=0)
    shown: BoolArray = (made.freedom >= MIN_QUERIES - 1 - ROUNDING) & (others >= MIN_OTHERS)
    return shown


def macro_decides(strata: Strata, weights: Float64) -> BoolArray:
    """Bool [columns]: whether a gate may decide: an interval is shown, and ties hide little.

    Three more values are as many as there may be where none was seen (the rule of three: Hanley and
    Lippman-Hand, J. American Medical Association 249(13), 1983). What they would add to the variance of M is
    at most `HIDDEN` of it.
    """
    known, hidden = macro(strata, weights), macro(strata, weights, RULE_OF_THREE)
    little: BoolArray = hidden.errors <= np.sqrt(1 + HIDDEN) * known.errors
    return macro_shown(strata, weights) & little


def _others(values: Float64) -> Float64:
    """For each column how many values differ from the most common one; `MIN_OTHERS` for more."""
    n_queries = len(values)
    others = np.full(values.shape[1], float(MIN_OTHERS))
    if n_queries < 2 * MIN_OTHERS:
        tied = np.ones(len(others), dtype=bool)
    else:  # the most common one of n - 4 or more stands, sorted, in two places n - 5 apart
        in_order = np.sort(values, axis=0)
        tied = (in_order[:MIN_OTHERS] == in_order[n_queries - MIN_OTHERS :]).any(axis=0)
    for column in np.flatnonzero(tied):
        counts = np.unique(values[:, column], return_counts=True)[1]
        others[column] = min(n_queries - int(counts.max()), MIN_OTHERS)
    return others


def macro_intervals(
    strata: Strata, weights: Float64, confidence: float = CONFIDENCE
) -> tuple[Float64, Float64]:
    """Intervals, of 95% if not said otherwise, of macro means: M ± t · standard error.

    t is the quantile of Student's t with Satterthwaite's degrees of freedom. Of what ties may hide, half a
    value more is counted, as Jeffreys' prior adds to a share of which none was seen (Brown, Cai and DasGupta,
    *Interval estimation for a binomial proportion*, Statistical Science 16(2), 2001). In the simulation of
    `scripts/simulate_statistics.py suites` such intervals hold the mean as often as they say, where the
    stratified bootstrap's percentiles do not if many values are equal.

    Args:
        strata: Values of the queries of each collection.
        weights: float64 [collections], of `weights_of`.
        confidence: The share of intervals that hold the true macro mean.

    Returns:
        float64 [columns] each: the low and the high end, NaN where no interval is shown.
    """
    from scipy.special import stdtrit

    made = macro(strata, weights, HALF_A_VALUE)
    reach = stdtrit(np.maximum(made.freedom, 1), (1 + confidence) / 2) * made.errors
    reach = np.where(macro_shown(strata, weights), reach, np.nan)
    return made.means - reach, made.means + reach


def resampled_macro(strata: Strata, weights: Float64) -> Float64:
    """float64 [resamples, columns]: macro means of resamples, drawn from a fixed seed within collections.

    Each of 10,000 resamples draws n_c - 1 of the n_c queries of every collection, with replacement, so that
    its variance is that of M without bias (Rao and Wu, J. American Statistical Association 83(401), 1988).

    The means of a collection with more than `MOST_DRAWN` queries are drawn from the normal distribution of
    their covariance instead of query by query: they do not differ from it any more, and take a hundredth of
    the time.
    """
    generator = np.random.default_rng(SEED)
    total = np.zeros((RESAMPLES, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        centre = values.mean(axis=0)  # sums of small numbers round less
        if len(values) > MOST_DRAWN:
            total += weight * (centre + _normal_means(values - centre, generator))
            continue
        for start, times in _draws(len(values), generator):
            means = times @ (values - centre) / (len(values) - 1)
            total[start : start + len(times)] += weight * (centre + means)
    return total


def _normal_means(centred: Float64, generator: np.random.Generator) -> Float64:
    """float64 [resamples, columns]: means of resamples of n - 1 of float64 [queries, columns] around 0."""
    n_queries = len(centred)
    widest = np.abs(centred).max() or 1.0
    shares, axes = np.linalg.eigh((centred / widest).T @ (centred / widest) / n_queries)
    root = axes * np.sqrt(np.maximum(shares, 0) / (n_queries - 1))
    drawn: Float64 = generator.standard_normal((RESAMPLES, len(shares))) @ root.T * widest
    return drawn


def _draws(n_queries: int, generator: np.random.Generator) -> Iterator[tuple[int, Float64]]:
    """Blocks of resamples of n - 1 queries: the first one's number, and how often each query was drawn."""
    rows = max(BLOCK_DRAWS // n_queries, 1)
    for start in range(0, RESAMPLES, rows):
        block = min(rows, RESAMPLES - start)
        drawn = generator.integers(n_queries, size=(block, n_queries - 1), dtype=np.int32)
        drawn += np.arange(block, dtype=np.int32)[:, None] * n_queries
        times = np.bincount(drawn.ravel(), minlength=block * n_queries).reshape(block, n_queries)
        yield start, times.astype(np.float64)


def macro_t_test(strata: Strata, weights: Float64) -> Float64:
    """float64 [columns]: two-sided p of M = 0: Student's t of M over its error (Welch, Biometrika 34, 1947).

    Its degrees of freedom are Satterthwaite's. A column of zeros has p = 1, and so has a suite of which a
    collection has one query: its spread is not known. Of equal differences in every collection p is 0.
    """
    from scipy.special import stdtr

    made = macro(strata, weights)
    known = min(len(values) for values in strata) > 1
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(made.means) / made.errors
    p = 2 * stdtr(np.maximum(made.freedom, 1), -t)
    return np.where((made.means != 0) & known, p, 1.0)


def weighted_values(strata: Strata, weights: Float64) -> Float64:
    """float64 [queries, columns]: values times w_c / n_c, so that their sum over all queries is M.

    A randomization within collections changes the sign of the differences of single queries; of these, as of
    those of one collection, `pipeline.metrics.randomization.randomize` compares the sums.
    """
    return np.vstack(
        [values * (weight / len(values)) for values, weight in zip(strata, weights, strict=True)]
    )


def macro_noninferiority(strata: Strata, weights: Float64, margins: Float64) -> tuple[Float64, Float64]:
    """One-sided p-values of macro means of differences against margins, float64 [columns].

    As `pipeline.metrics.noninferiority.noninferiority`: the first is against "M is `margin` or more below 0",
    the second against "it is at most `margin` below", each the larger of those of the t-test and of the
    studentized bootstrap, here stratified by collection. A suite of which a collection has one query shows
    nothing.

    Returns:
        float64 [columns] each: p of not being worse, p of being worse.
    """
    from scipy.special import stdtr

    if min(len(values) for values in strata) < 2:
        return np.ones(len(margins)), np.ones(len(margins))
    made = macro(strata, weights)
    above = made.means + margins
    above[np.abs(above) <= ROUNDING] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(above == 0, 0.0, above / made.errors)
    resampled = _resampled_t(strata, weights)
    high = (1 + (resampled >= t - ROUNDING).sum(axis=0)) / (1 + RESAMPLES)
    low = (1 + (resampled <= t + ROUNDING).sum(axis=0)) / (1 + RESAMPLES)
    freedom = np.maximum(made.freedom, 1)
    return np.maximum(stdtr(freedom, -t), high), np.maximum(stdtr(freedom, t), low)


def _resampled_t(strata: Strata, weights: Float64) -> Float64:
    """float64 [resamples, columns]: (M* - M) / its standard error in the resample; 0 where both are 0."""
    generator = np.random.default_rng(SEED)
    total, variance = np.zeros((2, RESAMPLES, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        n_queries = len(values)
        centred = values - values.mean(axis=0)
        for start, times in _draws(n_queries, generator):
            rows = slice(start, start + len(times))
            means = times @ centred / (n_queries - 1)
            squares = times @ centred**2 / (n_queries - 1)
            total[rows] += weight * means
            variance[rows] += weight**2 * np.maximum(squares - means**2, 0) / max(n_queries - 2, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(total) <= ROUNDING, 0.0, total / np.sqrt(variance))
