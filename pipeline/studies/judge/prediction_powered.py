"""Prediction-powered inference: a mean difference from few human labels and a machine's of all queries.

made = estimate_with_judge(human, judged, drawn, weights, low, high)  # rows of `judged`: int64 [n]
made.difference, made.ci_low, made.ci_high, made.weight, made.without_judge, made.effective_labels

Two systems are compared on N logged queries. Of each query a judge's labels give a difference J; of n
queries, drawn one after the other without replacement and in proportion to their weights, people's labels
give the difference D. The target is the mean of D over these N queries, not over queries yet to come.

A query is among the n with the probability π = 1 - exp(-c · weight), where c makes these probabilities sum to
n (Rosén, Annals of Mathematical Statistics 43(2), 1972); with equal weights that is n / N. Each drawn query
counts 1 / π times (Horvitz and Thompson, J. American Statistical Association 47(260), 1952), and means are
divided by the sum of 1 / π (Hájek). For a slope λ

    difference = mean of D over the n  +  λ · (mean of J over the N  -  mean of J over the n)

has the right expectation whatever the judge (PPI++: Angelopoulos, Duchi and Zrnic, arXiv 2311.01453, 2023; in
surveys the regression estimator: Cochran, *Sampling Techniques*, 1977, chapter 7). λ is the slope of D on J
that minimizes the variance over the n, clipped to [0, 1]. Where J varies less over the n than over all N, its
variance is that over all: a few queries on which a judge is far off then count although none of them was
drawn. With λ = 0 the judge counts for nothing, and for equal weights the interval is Student's t of D, with
the correction for a sample of a finite population, 1 - n / N.

With few labels a fitted λ makes residuals too small, so the spread is the jackknife's, and λ costs a degree
of freedom. A judge that is mostly right leaves few residuals, which may all lie on one side: the end of the
interval on the side of the longer tail moves outwards by the skewness (Johnson, J. American Statistical
Association 73(363), 1978). One query more is counted, of which the judge says the opposite of the truth as
far as the rankings allow: half of one, as `HALF_A_VALUE`; a whole one where fewer than 10 residuals, or
values of D - J, differ from the most common one. An interval that came out wider than without the judge is
not used: λ is 0 then.

Intervals are shown by the rules for a mean (`pipeline.metrics.statistics`), which people's labels alone must
meet: `unshown`.

What a judge refused may count as anything, such as grade 0, if that rule does not look at which queries were
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.statistics import CONFIDENCE, HALF_A_VALUE, MANY_OTHERS, MIN_QUERIES, ROUNDING

MIN_OTHERS = 5
"""Fewest values that differ from the most common one: with fewer, ties hide the spread."""
MOST_OF_ONE = 1 / 3
"""Largest share of the variance that one query more, at the far end of the range, may carry."""


class Interval(NamedTuple):
    """A mean difference with the ends of its interval."""

    difference: float
    ci_low: float
    ci_high: float

    def moved(self, base: float, share: float) -> Interval:
        """That of `base` + `share` · the difference."""
        return Interval(*(base + share * value for value in self))


@dataclass(frozen=True)
class PredictionPoweredEstimate:
    """A mean difference over all queries, with its interval."""

    by_both: Interval  # with the judge's labels
    weight: float  # λ, what the judge counts for, from 0 to 1
    without_judge: Interval  # the same from human labels alone
    labelled: int  # n
    effective_labels: float  # how many human labels alone would give an interval as narrow; N at most
    unshown: str  # why the intervals are not to be shown; "" if they are


class _Sample:
    """The drawn queries, with their probabilities.

    Attributes:
        drawn: int64 [n], rows of all queries.
        probabilities: float64 [N], of being among the n.
        left: float64 [n], 1 - the probability of each drawn query: the share of its variance that remains.
        counts: float64 [n], 1 / probability: how many queries each stands for.
    """

    def __init__(self, drawn: Int64, weights: Float64) -> None:
        self.drawn = drawn
        self.probabilities = inclusion_probabilities(weights, len(drawn))
        of_drawn = self.probabilities[drawn]
        self.left, self.counts = 1 - of_drawn, 1 / of_drawn

    def mean(self, values: Float64) -> float:
        """The estimated mean over all queries of values of the drawn ones, float64 [n]."""
        return float(self.counts @ values / self.counts.sum())

    def error(self, deviations: Float64) -> float:
        """The standard error of a mean of float64 [n], each with its deviation from it."""
        n = len(deviations)
        apart = deviations - deviations.mean()
        return sqrt(float(self.left @ (apart * apart)) / (n * (n - 1)))

    def farthest(self, mean: float, low: Float64, high: Float64) -> float:
        """How far one undrawn query, at an end of its range, float64 [N], moves a mean."""
        stands_for = 1 / self.probabilities - 1
        stands_for[self.drawn] = 0
        distance = np.maximum(mean - low, high - mean)
        return float((stands_for * np.where(np.isfinite(distance), distance, 0)).max() / self.counts.sum())


def inclusion_probabilities(weights: Float64, n: int) -> Float64:
    """float64 [N]: the probability that each query is among the first n, 1 - exp(-c · weight), with sum n."""
    from scipy.optimize import brentq

    total = len(weights)
    if n >= total:
        return np.ones(total)
    scaled = weights / weights.mean()

    def surplus(log_c: float) -> float:
        return float(-np.expm1(-exp(log_c) * scaled).sum()) - n

    least = log(n / total)  # as 1 - exp(-x) <= x
    most = least + 1
    while surplus(most) < 0:
        most += 1
    probabilities: Float64 = -np.expm1(-exp(brentq(surplus, least, most, xtol=1e-13)) * scaled)
    return probabilities


def estimate_with_judge(
    human: Float64,
    judged: Float64,
    drawn: Int64,
    weights: Float64 | None = None,
    low: Float64 | float = -1.0,
    high: Float64 | float = 1.0,
) -> PredictionPoweredEstimate:
    """Estimate the mean difference over all queries.

    Args:
        human: float64 [n], differences of the drawn queries by human labels; n is at least 2.
        judged: float64 [N], differences of all queries by the judge's labels.
        drawn: int64 [n], the row in `judged` of each of `human`, each once.
        weights: float64 [N], above 0: what queries were drawn in proportion to; None if to nothing.
        low: float64 [N] or one for all: the least difference that there can be.
        high: The same of the greatest.

    Raises:
        ValueError: There are fewer than 2 labelled queries, one is named twice, or a value is not finite.
    """
    from scipy.special import stdtrit

    n, total = len(human), len(judged)
    if n < 2 or len(np.unique(drawn)) != n or not (np.isfinite(human).all() and np.isfinite(judged).all()):
        raise ValueError(f"{n} labelled queries of {total}: at least 2, each once, finite values")
    sample = _Sample(drawn, np.ones(total) if weights is None else weights)
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), judged.shape) for end in (low, high))
    mean = sample.mean(human)
    deviations = n * sample.counts * (human - mean) / sample.counts.sum()
    error = sample.error(deviations)
    far = sample.farthest(mean, low, high)
    alone = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * error
    weight, shift, below, above = 0.0, 0.0, alone, alone
    fitted = _slope(human, judged, sample)
    if fitted > 0 and n > 3:
        residuals = _jackknife(human, judged, sample)
        rest = human - fitted * judged[drawn]
        opposite = sample.farthest(sample.mean(rest), low - fitted * judged, high - fitted * judged)
        hidden = min(_others(residuals), _others(human - judged[drawn])) < MANY_OTHERS
        unseen = opposite * sqrt(1 if hidden else HALF_A_VALUE)
        wide = float(stdtrit(n - 2, (1 + CONFIDENCE) / 2)) * float(np.hypot(sample.error(residuals), unseen))
        tail = sqrt(1 - n / total) * _tail(residuals)
        if 2 * wide + abs(tail) < 2 * alone:
            weight, shift = fitted, fitted * (float(judged.mean()) - sample.mean(judged[drawn]))
            below, above = wide + max(-tail, 0), wide + max(tail, 0)
    # m labels have the variance (1 / m - 1 / N) · s²: m is where this is the variance with the judge
    share = ((below + above) / (2 * alone)) ** 2 if alone > ROUNDING else 1.0
    by_both = Interval(mean + shift, mean + shift - below, mean + shift + above)
    without_judge = Interval(mean, mean - alone, mean + alone)
    effective = 1 / (1 / total + (1 / n - 1 / total) * share)
    unshown = "" if n == total else _why_unshown(human, far, error)  # nothing is estimated of all queries
    return PredictionPoweredEstimate(by_both, weight, without_judge, n, effective, unshown)


def _why_unshown(human: Float64, far: float, error: float) -> str:
    """Why there is no interval, by the rules for a mean; "" if there is one.

    `far` is what one query more, as different as its rankings allow, would add to the error.
    """
    n, others = len(human), _others(human)
    if n < MIN_QUERIES:
        return f"only {n} labelled queries ({MIN_QUERIES} needed)"
    if others < MIN_OTHERS:
        return f"by people's grades the difference is the same in all but {others} labelled queries"
    if far**2 * (1 - MOST_OF_ONE) > error**2 * MOST_OF_ONE:
        return f"it cannot rule out rare failures: 3 in {n} queries may lose all that their rankings allow"
    return ""


def _slope(human: Float64, judged: Float64, sample: _Sample) -> float:
    """The slope that minimizes the variance, clipped to [0, 1]."""
    share = sample.left * sample.counts**2
    x = judged[sample.drawn] - sample.mean(judged[sample.drawn])
    square = max(float(share @ (x * x)), _square_of_all(judged, sample))
    slope = float((share * x) @ (human - sample.mean(human)))
    return float(np.clip(slope / square, 0, 1)) if square > ROUNDING else 0.0


def _square_of_all(judged: Float64, sample: _Sample) -> float:
    """The sum of squares of the judge's values that is expected of the drawn queries, from those of all."""
    return float((1 / sample.probabilities - 1) @ (judged - judged.mean()) ** 2)


def _jackknife(human: Float64, judged: Float64, sample: _Sample) -> Float64:
    """float64 [n]: the pseudo-values of the whole estimate, slope included, about their mean.

    The mean of J over all queries is known.
    """
    n, counts = len(human), sample.counts
    share = sample.left * counts**2
    of_all = float(judged.mean())
    x, y = judged[sample.drawn] - of_all, human - sample.mean(human)
    without = counts.sum() - counts
    mean_x, mean_y = ((counts @ values - counts * values) / without for values in (x, y))
    s, sx, sy, sxx, sxy = (
        (share * values).sum() - share * values for values in (np.ones(n), x, y, x * x, x * y)
    )
    squares = sxx - 2 * mean_x * sx + mean_x**2 * s
    squares = np.maximum(squares, _square_of_all(judged, sample) * (n - 1) / n)
    products = sxy - mean_x * sy - mean_y * sx + mean_x * mean_y * s
    slopes = np.clip(np.divide(products, squares, out=np.zeros(n), where=squares > ROUNDING), 0, 1)
    estimates = mean_y - slopes * mean_x
    residuals: Float64 = (n - 1) * (estimates.mean() - estimates)
    return residuals


def _others(values: Float64) -> int:
    """How many values differ from the most common one."""
    _, times = np.unique(np.round(values, 9), return_counts=True)
    return int(len(values) - times.max())


def _tail(values: Float64) -> float:
    """How far the interval's end on the side of the longer tail moves; below 0 it is the lower one.

    γ · (1 + 2 z²) / 6n standard deviations, γ the skewness; at most one standard error.
    """
    from scipy.special import ndtri

    n, apart = len(values), values - values.mean()
    deviation = float(apart.std())
    if deviation <= ROUNDING:
        return 0.0
    skewness = float((apart**3).mean()) / deviation**3
    errors = skewness * (1 + 2 * float(ndtri((1 + CONFIDENCE) / 2)) ** 2) / (6 * sqrt(n))
    return float(np.clip(errors, -1, 1)) * deviation / sqrt(n)
