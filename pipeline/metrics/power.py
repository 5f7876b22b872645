"""Power of t-tests: what they can show, and how many queries they take."""

from __future__ import annotations

from math import ceil, inf, isfinite, log, sqrt

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import Float64
from pipeline.metrics.resampling import SEED_OF_ONE, UNSEEN, largest_loss, noninferiority
from pipeline.metrics.statistics import ONE, ROUNDING, Strata, estimate

POWER = 0.8
MOST_QUERIES = 1 << 40
SIMULATED_QUERIES = 2000
SAMPLES, SAMPLE_RESAMPLES = 1000, 999  # of a simulation of the tests


def queries_to_decide(
    strata: Strata, margin: float, alpha: float, weights: Float64 = ONE, highest: float = 1.0
) -> float:
    """How many queries such as these give a decision at `alpha` in 80% of cases.

    By the noncentral t distribution, as `solve_power`, if the mean and the deviation found, of
    differences float64 [queries, 1] of each collection, are the true ones. To pass, `noninferiority` takes
    something to be lost unseen, which adds to it. The tests need more where few queries differ, or lose much.
    So for one collection numbers up to 2,000 are raised until the tests themselves decide in 80% of 1,000
    samples of that size. Where nothing differs, the number is that of which none may lose `highest`. Infinite
    where no number would do.
    """
    from scipy.special import ndtri

    made = estimate(strata, weights)
    mean, queries = float(made.means[0]), sum(map(len, strata))
    distance = mean + margin
    deviation = float(made.errors[0]) * sqrt(queries)
    unit = float(largest_loss(strata, weights, highest))
    counted = ceil(queries * unit * log(1 / alpha) / margin) if margin and isfinite(unit) else inf
    if not distance or deviation <= ROUNDING:
        return inf if mean or not distance else counted
    needed = float(solve_power(abs(distance) / deviation, np.nan, alpha))
    if len(strata) > 1 or needed > SIMULATED_QUERIES:
        if distance > 0:
            # of f times the queries the spread shrinks by √f and the unseen loss by f: a quadratic in √f
            unseen = unit * (UNSEEN + sqrt(UNSEEN) * float(ndtri(1 - alpha)))
            root = sqrt(needed / queries)
            needed = ceil(queries * ((root + sqrt(root**2 + 4 * unseen / distance)) / 2) ** 2)
        return needed if len(strata) == 1 or made.shown[0] else max(needed, counted)
    differences = strata[0][:, 0]
    low, high = 1, int(needed)
    while _simulated_power(differences, margin, high, alpha, highest) < POWER:
        low, high = high, max(high + 1, round(1.3 * high))
    while high - low > max(low // 50, 1) and low > 1:
        middle = (low + high) // 2
        enough = _simulated_power(differences, margin, middle, alpha, highest) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


def _simulated_power(
    differences: Float64, margin: float, n_queries: int, alpha: float, highest: float
) -> float:
    """How often samples of `n_queries`, drawn from float64 [queries], give the decision of their mean."""
    drawn = np.random.default_rng(SEED_OF_ONE).choice(differences, (n_queries, SAMPLES))
    margins = np.full(SAMPLES, margin)
    not_worse, worse = noninferiority([drawn], margins, resamples=SAMPLE_RESAMPLES, highest=highest)
    decided = (not_worse if differences.mean() > -margin else worse) < alpha
    return float(decided.mean())


def solve_power(effect: ArrayLike, n_queries: ArrayLike, alpha: float) -> Float64:
    """The effects, or the numbers of queries, with which a one-sided paired t-test at `alpha` has 80% power.

    Power is that of the noncentral t distribution. An effect is the distance of the true mean from the tested
    one, in standard deviations of the differences (Cohen, *Statistical Power Analysis for the Behavioral
    Sciences*, 1988, section 2.5).

    Args:
        effect: float64 [n], NaN where the smallest one is wanted.
        n_queries: float64 [n], NaN where the lowest number is wanted; broadcast against each other.
        alpha: The level of the test.

    Returns:
        float64 [n]: what is NaN, an effect to 1e-9 of it; infinite where none has that power.
    """
    from scipy.special import nctdtr, ndtr, stdtrit

    effect, n_queries = np.broadcast_arrays(effect, n_queries)
    whole = np.isnan(n_queries)
    low, high = np.where(whole, 1.0, 0.0), np.where(whole, 2.0, 1.0)
    enough_at_high, done = np.zeros((2, *whole.shape), dtype=bool)
    while not done.all():
        # `high` is doubled until it is enough; then the middle of what is too little and enough is tried
        middle = np.where(whole, (low + high) // 2, (low + high) / 2)
        tried = np.where(enough_at_high & ~done, middle, high)
        queries, distance = np.where(whole, tried, n_queries), np.where(whole, effect, tried)
        quantile, noncentrality = stdtrit(np.maximum(queries - 1, 1), 1 - alpha), distance * np.sqrt(queries)
        normal = (queries > 10_000) | (noncentrality > 30)  # from which t no longer differs
        by_t = 1 - nctdtr(queries - 1, np.where(normal, 0, noncentrality), quantile)
        enough = np.where(normal, ndtr(noncentrality - quantile), by_t) >= POWER
        enough &= queries > 1
        low = np.where(enough, low, tried)
        high = np.where(enough, tried, np.where(enough_at_high, high, 2 * high))
        enough_at_high |= enough
        done |= enough_at_high & (high - low <= np.where(whole, 1, 1e-9 * high)) | (high > MOST_QUERIES)
    return np.where(high > MOST_QUERIES, inf, high)
