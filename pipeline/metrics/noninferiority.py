"""Tests whether a mean difference is at most a margin below zero, and how many queries such a test takes."""

from __future__ import annotations

from math import ceil, inf, isfinite, sqrt

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.statistics import mean_and_error, t_quantile

RESAMPLES = 10_000
SEED = 20191
BLOCK_DRAWS = 1 << 17  # random draws made at once
POWER = 0.8
MOST_QUERIES = 1 << 40
ROUNDING = 1e-12
SIMULATED_QUERIES = 2000
SAMPLES, SAMPLE_RESAMPLES = 1000, 999  # of a simulation of the tests


def noninferiority(
    differences: Float64, margins: Float64, resamples: int | None = None
) -> tuple[Float64, Float64]:
    """One-sided p-values of differences, float64 [queries, measures], against margins, float64 [measures].

    The first is against "the mean is `margin` or more below 0", the second against "it is at most `margin`
    below". Each is the larger of those of the t-test and of the studentized paired bootstrap: the share of
    10,000 resamples whose t, about the observed mean, is as large as the observed t, which is counted as one
    more (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, sections 12.5 and 16.4). The
    bootstrap is the stricter where a few queries lose much. A single query shows nothing. `resamples` are
    another number of these.

    Returns:
        float64 [measures] each: p of not being worse, p of being worse.
    """
    from scipy.special import stdtr

    n_queries = len(differences)
    if n_queries < 2:
        return np.ones(len(margins)), np.ones(len(margins))
    means, errors = mean_and_error(differences)
    above = means + margins
    above[np.abs(above) <= ROUNDING] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(above == 0, 0.0, above / errors)
    above_t, below_t = _resampled(differences, t, resamples or RESAMPLES)
    return np.maximum(stdtr(n_queries - 1, -t), above_t), np.maximum(stdtr(n_queries - 1, t), below_t)


def _resampled(differences: Float64, t: Float64, resamples: int) -> tuple[Float64, Float64]:
    """The shares of resamples whose t is at or above the observed one, and at or below: float64 [measures].

    A resample without spread has an infinite t, unless its mean is the observed one.
    """
    n_queries, n_measures = differences.shape
    centred = differences - differences.mean(axis=0)
    both = np.hstack([centred, centred**2])
    generator = np.random.default_rng(SEED)
    rows = max(BLOCK_DRAWS // n_queries, 1)
    above, below = np.zeros(n_measures), np.zeros(n_measures)
    for start in range(0, resamples, rows):
        block = min(rows, resamples - start)
        drawn = generator.integers(n_queries, size=(block, n_queries), dtype=np.int32)
        drawn += np.arange(block, dtype=np.int32)[:, None] * n_queries
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)  # drawn, of each query
        means, squares = np.hsplit(times.astype(np.float64) @ both / n_queries, 2)
        errors = np.sqrt(np.maximum(squares - means**2, 0) / (n_queries - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            resampled = np.where(np.abs(means) <= ROUNDING, 0.0, means / errors)
        above += (resampled >= t - ROUNDING).sum(axis=0)
        below += (resampled <= t + ROUNDING).sum(axis=0)
    return (1 + above) / (1 + resamples), (1 + below) / (1 + resamples)


def queries_to_decide(differences: Float64, margin: float, alpha: float) -> float:
    """How many queries such as these give a decision at `alpha` in 80% of cases.

    By the noncentral t distribution, as `queries_for_power`, if the mean and the deviation found are the true
    ones. The bootstrap needs more where few queries differ, or lose much. So numbers up to 2,000 are then
    raised until the tests themselves decide in 80% of 1,000 samples of that size, which are drawn from the
    differences; with more queries both tests agree.

    Args:
        differences: float64 [queries].
        margin: See `noninferiority`.
        alpha: The level of a single test.

    Returns:
        At least 2; infinite where no number would do.
    """
    means, errors = mean_and_error(differences[:, None])
    distance, deviation = float(means[0]) + margin, float(errors[0]) * sqrt(len(differences))
    needed = queries_for_power(abs(distance) / deviation if deviation else inf, alpha)
    if not deviation or not distance or needed > SIMULATED_QUERIES:
        return needed if distance else inf
    low, high = 1, int(needed)
    while simulated_power(differences, margin, high, alpha) < POWER:
        low, high = high, max(high + 1, round(1.3 * high))
    while high - low > max(low // 50, 1) and low > 1:
        middle = (low + high) // 2
        enough = simulated_power(differences, margin, middle, alpha) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


def simulated_power(
    differences: Float64, margin: float, n_queries: int, alpha: float, samples: int = SAMPLES
) -> float:
    """How often samples of so many queries, drawn from float64 [queries], give the decision of their mean."""
    drawn = np.random.default_rng(SEED).choice(differences, (n_queries, samples))
    not_worse, worse = noninferiority(drawn, np.full(samples, margin), SAMPLE_RESAMPLES)
    decided = (not_worse if differences.mean() > -margin else worse) < alpha
    return float(decided.mean())


def power(effect: float, n_queries: int, alpha: float) -> float:
    """The chance that a one-sided paired t-test at `alpha` shows an effect, by the noncentral t distribution.

    `effect` is the distance of the true mean from the tested one, in standard deviations of the differences
    (Cohen, *Statistical Power Analysis for the Behavioral Sciences*, 1988, section 2.5).
    """
    from scipy.special import nctdtr, ndtr

    if n_queries < 2:
        return 0.0
    noncentrality = effect * sqrt(n_queries)
    quantile = t_quantile(n_queries, 1 - alpha)
    if n_queries > 10_000 or noncentrality > 30:  # the normal distribution, from which t no longer differs
        return float(ndtr(noncentrality - quantile))
    return float(1 - nctdtr(n_queries - 1, noncentrality, quantile))


def detectable_effect(n_queries: int, alpha: float, wanted: float = POWER) -> float:
    """The smallest effect that a one-sided paired t-test at `alpha` shows with the wanted power.

    It is in standard deviations, as in `power`; infinite for a single query.
    """
    if n_queries < 2:
        return inf
    low, high = 0.0, 1.0
    while power(high, n_queries, alpha) < wanted:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, n_queries, alpha) >= wanted else (middle, high)
    return high


def queries_for_power(effect: float, alpha: float, wanted: float = POWER) -> float:
    """The fewest queries with which a one-sided paired t-test at `alpha` has the wanted power.

    `effect` is as in `power`; infinite where it is 0 or below, or as good as 0.
    """
    if not effect > 0:
        return inf
    if not isfinite(effect):
        return 2
    low, high = 1, 2
    while power(effect, high, alpha) < wanted:
        low, high = high, 2 * high
        if high > MOST_QUERIES:
            return inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, alpha) >= wanted else (middle, high)
    return ceil(high)
