"""Power of t-tests: what they can show, and how many queries they take."""

from __future__ import annotations

from math import ceil, inf, isfinite, sqrt

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.resampling import SEED_OF_ONE, noninferiority
from pipeline.metrics.statistics import ONE, Strata, estimate, t_quantile

POWER = 0.8
MOST_QUERIES = 1 << 40
SIMULATED_QUERIES = 2000
SAMPLES, SAMPLE_RESAMPLES = 1000, 999  # of a simulation of the tests


def queries_to_decide(strata: Strata, margin: float, alpha: float, weights: Float64 = ONE) -> float:
    """How many queries such as these give a decision at `alpha` in 80% of cases.

    By the noncentral t distribution, as `queries_for_power`, if the mean and the deviation found, of
    differences float64 [queries, 1] of each collection, are the true ones. The bootstrap needs more where few
    queries differ, or lose much. So for one collection numbers up to 2,000 are then raised until the tests
    themselves decide in 80% of 1,000 samples of that size. Infinite where no number would do.
    """
    made = estimate(strata, weights)
    distance = float(made.means[0]) + margin
    deviation = float(made.errors[0]) * sqrt(sum(map(len, strata)))
    needed = queries_for_power(abs(distance) / deviation if deviation else inf, alpha)
    if not deviation or not distance or needed > SIMULATED_QUERIES or len(strata) > 1:
        return needed if distance else inf
    differences = strata[0][:, 0]
    low, high = 1, int(needed)
    while _simulated_power(differences, margin, high, alpha) < POWER:
        low, high = high, max(high + 1, round(1.3 * high))
    while high - low > max(low // 50, 1) and low > 1:
        middle = (low + high) // 2
        enough = _simulated_power(differences, margin, middle, alpha) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


def _simulated_power(differences: Float64, margin: float, n_queries: int, alpha: float) -> float:
    """How often samples of `n_queries`, drawn from float64 [queries], give the decision of their mean."""
    drawn = np.random.default_rng(SEED_OF_ONE).choice(differences, (n_queries, SAMPLES))
    not_worse, worse = noninferiority([drawn], np.full(SAMPLES, margin), resamples=SAMPLE_RESAMPLES)
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
