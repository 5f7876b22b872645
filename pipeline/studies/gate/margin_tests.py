"""Tests of mean differences against a margin, and what such tests can show with so many queries.

Few queries often lack those that lose most. Say that so many of all queries lose everything that λ of them
are expected among the judged ones. None of these is judged with a probability of exp(-λ), and M is lower by
λ · unit, where `unit` is what one such query takes from M. So p is the largest, over λ, of exp(-λ) times that
of the t-test of the judged queries against a mean that is higher by λ · unit. λ = 0 is the t-test; where
differences hardly vary, p is exp(-distance / unit), the rule of three. The same holds for queries that gain
everything. `docs/statistics.md` has the error rates, counted by `scripts/simulate_statistics.py`.
"""

from __future__ import annotations

from math import ceil, inf, log

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import Float64
from pipeline.metrics.paired import POWER, detectable_difference
from pipeline.metrics.resampling import resampled_t
from pipeline.metrics.statistics import (
    MANY_OTHERS,
    MIN_QUERIES,
    ONE,
    ROUNDING,
    Ends,
    Strata,
    estimate,
    variance_identifiable,
)

MOST_EXPECTED = 14.0
"""The largest λ that is tried: beyond it exp(-λ) is below the smallest level of a gate."""
MOST_DRAWN = 1000
"""More queries than these are not resampled: the bootstrap agrees with t."""
STEPS = 200
MOST_TIMES = 1 << 30
"""How many times as many queries a sample size may be."""


def noninferiority(
    strata: Strata,
    margins: Float64,
    weights: Float64 = ONE,
    resamples: int | None = None,
    highest: ArrayLike = 1.0,
) -> tuple[Float64, Float64]:
    """One-sided p-values of mean differences against margins, float64 [columns].

    The first is against "M is `margin` or more below 0", the second against "it is at most `margin` below".
    Each is the larger of those of the t-test, with unseen queries that lose or gain everything, and of the
    studentized paired bootstrap, stratified by collection: the share of 10,000 resamples whose t, about the
    observed mean, is as large as the observed t, which is counted as one more (Efron and Tibshirani, *An
    Introduction to the Bootstrap*, 1993, sections 12.5 and 16.4). The bootstrap is the stricter where a few
    queries lose much. A collection of a single query shows nothing.

    Where ties may hide spread (`variance_identifiable`), or fewer than `MANY_OTHERS` values differ from the
    most common one, the first p counts losses instead (`_few_losses`). Where ties may hide spread, the second
    is 1.

    Args:
        strata: For each collection differences, float64 [queries, columns].
        margins: float64 [columns].
        weights: float64 [collections].
        resamples: How many; None is 10,000.
        highest: How much a query can lose, float64 [columns] or one for all.

    Returns:
        float64 [columns] each: p of not being worse, p of being worse.
    """
    if min(map(len, strata)) < 2:
        return np.ones(len(margins)), np.ones(len(margins))
    estimated = estimate(strata, weights)
    above = estimated.means + margins
    above[np.abs(above) <= ROUNDING] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(above == 0, 0.0, above / estimated.errors)
    resampled = resampled_t(strata, weights, resamples)
    higher = (1 + (resampled >= t - ROUNDING).sum(axis=0)) / (1 + len(resampled))
    lower = (1 + (resampled <= t + ROUNDING).sum(axis=0)) / (1 + len(resampled))
    unit = extreme_change(strata, weights, highest)
    known = variance_identifiable(estimated, strata, weights)
    freedom = np.maximum(estimated.freedom, 1)
    not_worse, worse = (
        _with_unseen(distance, estimated.errors, freedom, unit) for distance in (above, -above)
    )
    return (
        np.where(
            known & (estimated.others >= MANY_OTHERS),
            np.maximum(not_worse, higher),
            _few_losses(_losses(strata, weights), margins, unit),
        ),
        np.where(known, np.maximum(worse, lower), 1.0),
    )


def extreme_change(strata: Strata, weights: Float64, highest: ArrayLike) -> Float64:
    """float64 [columns]: what a query that loses `highest` takes from M, where a query counts most."""
    counts = np.max(weights / [len(values) for values in strata])
    return np.asarray(counts * np.asarray(highest), dtype=np.float64)


def _with_unseen(distance: Float64, errors: Float64, freedom: Float64, unit: Float64) -> Float64:
    """P-values that M is `distance` away from where it was observed, float64 [columns], as all arguments."""
    from scipy.special import stdtr

    expected = np.linspace(0, np.clip(distance / unit + 0.5, 0, MOST_EXPECTED), STEPS)  # beyond it p falls
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num((distance - expected * unit) / errors)
    largest: Float64 = np.max(np.exp(-expected) * stdtr(freedom, -t), axis=0)
    return largest


def _losses(strata: Strata, weights: Float64) -> list[Float64]:
    """What each query takes from M, float64 [queries, columns] of each collection."""
    shares = weights / [len(values) for values in strata]
    return [share * np.maximum(-values, 0) for share, values in zip(shares, strata, strict=True)]


def _few_losses(losses: Strata, margins: Float64, unit: Float64) -> Float64:
    """P-values against "M is `margin` or more below 0": the probability of so few losses if it were.

    Then queries would lose the margin on average, whatever others gain. Of all ways to lose it, to lose as
    much as possible at as few queries as possible, in the collection where a query counts most, goes unseen
    most often. So the sum of losses, in units of that `extreme_change`, is compared with a Poisson
    distribution of mean margin / unit; without any loss p is exp(-margin / unit), of one collection that of
    the rule of three. It holds for every distribution, and is strict where gains make up for losses.
    """
    from scipy.special import gammaincc

    p: Float64 = gammaincc(sum(values.sum(axis=0) for values in losses) / unit + 1, margins / unit)
    return p


class Sensitivity:
    """What the tests of `noninferiority` can show with queries such as these, whatever their mean.

    Args:
        strata, weights, highest: As of `noninferiority`.
        alpha: The level of one test.

    Attributes:
        means: float64 [columns].
        ends: Bounds of each true mean, each at alpha; None where the tests count losses.
    """

    def __init__(self, strata: Strata, weights: Float64, highest: ArrayLike, alpha: float) -> None:
        from scipy.special import stdtrit

        estimated = estimate(strata, weights)
        self.means, self._errors, self._others = estimated.means, estimated.errors, estimated.others
        self._freedom = np.maximum(estimated.freedom, 1)
        self._queries, self._alpha = sum(map(len, strata)), alpha
        self._unit = extreme_change(strata, weights, highest)
        self._by_spread = variance_identifiable(estimated, strata, weights) & (self._others >= MANY_OTHERS)
        losses = _losses(strata, weights)
        self._lost = sum(values.sum(axis=0) for values in losses)
        self._loss_error = np.sqrt(sum(np.square(values).sum(axis=0) for values in losses))
        # float64 [sides, columns]: how much larger a t the bootstrap takes
        self._skew = np.zeros((2, len(self.means)))
        if min(map(len, strata)) > 1 and self._queries <= MOST_DRAWN:
            resampled = resampled_t(strata, weights)
            farthest = np.abs(np.quantile(resampled, [1 - alpha, alpha], axis=0, method="nearest"))
            self._skew = np.maximum(farthest - stdtrit(self._freedom, 1 - alpha), 0)
        reached = np.stack([self._reach(1, skew) for skew in self._skew])
        limit = np.broadcast_to(np.asarray(highest, dtype=np.float64), self.means.shape)
        bounds = np.clip(self.means - [[1], [-1]] * reached, -limit, limit).T.tolist()
        self.ends: list[Ends] = [
            (low, high) if known else (None, None)
            for known, (low, high) in zip(self._by_spread.tolist(), bounds, strict=True)
        ]

    def _reach(self, times: float, skew: Float64) -> Float64:
        """float64 [columns]: how far from the observed mean a mean is not excluded, by spread.

        With `times` as many queries, the error and its skewness shrink by √times, an unseen loss by times.
        """
        from scipy.special import stdtrit

        errors, freedom = self._errors / np.sqrt(times), self._freedom * times
        expected = np.linspace(0, -log(self._alpha), STEPS, endpoint=False)[:, None]
        quantiles = stdtrit(freedom, 1 - self._alpha * np.exp(expected))
        unseen = (expected * self._unit / times + quantiles * errors).max(axis=0)
        farthest: Float64 = np.maximum(unseen, (quantiles[0] + skew / np.sqrt(times)) * errors)
        return farthest

    def detectable(self, times: float = 1) -> Float64:
        """float64 [columns]: the smallest loss that `times` as many queries exclude with 80% power.

        That is, if there is no difference; where few queries differ, if losses stay as rare as they are.
        Without unseen losses and skewness it is `detectable_difference`.
        """
        from scipy.special import gammainccinv, ndtri, stdtrit

        errors, freedom, unit = self._errors / np.sqrt(times), self._freedom * times, self._unit / times
        by_t = detectable_difference(errors, freedom, self._alpha)
        with np.errstate(invalid="ignore"):
            by_spread = self._reach(times, self._skew[0]) + by_t - stdtrit(freedom, 1 - self._alpha) * errors
        lost = self._lost + ndtri(POWER) * self._loss_error / np.sqrt(times)
        by_count = unit * gammainccinv(lost / unit + 1, self._alpha)
        varies = (self._others * times >= MANY_OTHERS) & (self._errors > 0)
        either = np.where(varies, np.minimum(by_spread, by_count), by_count)
        smallest: Float64 = np.where(self._by_spread, by_spread, either)
        return smallest

    def needed(self, column: int, margin: float) -> float:
        """How many queries exclude a loss of `margin` with 80% power; infinite where no number does."""
        low, high = 0.0, 1.0
        while self.detectable(high)[column] > margin:
            low, high = high, 2 * high
            if high > MOST_TIMES:
                return inf
        while high - low > high / 1000:
            middle = (low + high) / 2
            enough = self.detectable(middle)[column] <= margin
            low, high = (low, middle) if enough else (middle, high)
        return max(ceil(self._queries * high), MIN_QUERIES)
