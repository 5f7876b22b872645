"""Prediction-powered inference: a mean difference from few human labels and a machine's of all queries.

It also measures how far the two agree: `agreement`.

made = estimate_with_judge(human, judged, drawn)  # float64 [n], float64 [N], int64 [n]: rows of `judged`
made.difference, made.ci_low, made.ci_high, made.weight, made.without_judge, made.effective_labels

Two systems are compared on N logged queries. Of each query a judge's labels give a difference J; of n
queries, drawn at random without replacement, people's labels give the difference D. The target is the mean of
D over these N queries, not over queries yet to come. For a weight λ

    difference = mean of D over the n  +  λ · (mean of J over the N  -  mean of J over the n)

is unbiased, whatever the judge (PPI++: Angelopoulos, Duchi and Zrnic, arXiv 2311.01453, 2023; in surveys the
regression estimator: Cochran, *Sampling Techniques*, 1977, chapter 7). λ is the slope of D on J over the n,
clipped to [0, 1], which minimizes the variance. Where J varies less over the n than over all N, its variance
is that over all: a few queries on which a judge is far off then count although none of them was drawn. With
λ = 0 the judge counts for nothing, and the interval is Student's t of D, with the correction for a sample of
a finite population, 1 - n / N.

With few labels a fitted λ makes residuals too small, so the spread is the jackknife's, and λ costs a degree
of freedom. A judge that is mostly right leaves few residuals, which may all lie on one side: the end of the
interval on the side of the longer tail moves outwards by the skewness (Johnson, J. American Statistical
Association 73(363), 1978), and where fewer than 10 residuals, or values of D - J, differ from the most common
one, one more is counted, as far away as human differences reach. So 20 labels on which a judge is right do
not show that it always is. An interval that came out wider than without the judge is not used: λ is 0 then.

What a judge refused may count as anything, such as grade 0, if that rule does not look at which queries were
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.statistics import CONFIDENCE, HALF_A_VALUE, MANY_OTHERS, ROUNDING, RULE_OF_THREE

MIN_LABELLED = 20
"""The fewest labelled queries for which simulations show that the intervals hold."""
DRAWS, SEED = 1000, 60651  # of the bootstrap of an agreement


def no_interval(labelled: int, reach: float) -> str:
    """Why an interval that reaches so far from its mean is not to be shown; "" if it is."""
    if labelled < MIN_LABELLED:
        return f"only {labelled} labelled queries ({MIN_LABELLED} needed)"
    same = "by people's grades the difference is the same in every labelled query"
    return same if reach <= ROUNDING else ""


class Interval(NamedTuple):
    """A mean difference with the ends of its interval."""

    difference: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class PredictionPoweredEstimate:
    """A mean difference over all queries, with its interval.

    Attributes:
        difference, ci_low, ci_high: With the judge's labels.
        weight: λ, what the judge counts for, from 0 to 1.
        without_judge: The same from human labels alone.
        labelled, total: n and N.
        effective_labels: How many human labels alone would give an interval as narrow; N at most.
    """

    difference: float
    ci_low: float
    ci_high: float
    weight: float
    without_judge: Interval
    labelled: int
    total: int
    effective_labels: float

    @property
    def unshown(self) -> str:
        """Why the intervals are not to be shown; "" if they are."""
        if self.labelled == self.total:  # nothing is estimated
            return ""
        return no_interval(self.labelled, self.without_judge.ci_high - self.without_judge.difference)


def estimate_with_judge(
    human: Float64, judged: Float64, drawn: Int64, confidence: float = CONFIDENCE
) -> PredictionPoweredEstimate:
    """Estimate the mean difference over all queries.

    Args:
        human: float64 [n], differences of the drawn queries by human labels; n is at least 2.
        judged: float64 [N], differences of all queries by the judge's labels.
        drawn: int64 [n], the row in `judged` of each of `human`, each once.
        confidence: Of the intervals.

    Raises:
        ValueError: There are fewer than 2 labelled queries, one is named twice, or a value is not finite.
    """
    n, total = len(human), len(judged)
    if n < 2 or len(np.unique(drawn)) != n or not (np.isfinite(human).all() and np.isfinite(judged).all()):
        raise ValueError(f"{n} labelled queries of {total}: at least 2, each once, finite values")
    left = sqrt(max(1 - n / total, 0))  # the root of the correction for a finite population
    mean, farthest = float(human.mean()), float(np.ptp(human))
    unseen = farthest * sqrt(HALF_A_VALUE) if _others(human) < RULE_OF_THREE else 0.0
    alone = left * t_reach(human, n - 1, confidence, unseen)
    weight, shift, reach, below, above = 0.0, 0.0, alone, alone, alone
    of_drawn = judged[drawn]
    spread = float(judged.var())
    fitted = _slope(human, of_drawn, spread)
    if fitted > 0 and n > 3:
        # the jackknife of the whole estimate, with the mean of J over all queries known
        slopes, of_all = _slopes_without_each(human, of_drawn, spread), float(judged.mean())
        rest = human.sum() - human, of_drawn.sum() - of_drawn
        estimates = rest[0] / (n - 1) + slopes * (of_all - rest[1] / (n - 1))
        residuals = (n - 1) * (estimates.mean() - estimates)
        hidden = min(_others(residuals), _others(human - of_drawn)) < MANY_OTHERS
        wide = left * t_reach(residuals, n - 2, confidence, farthest if hidden else 0.0)
        tail = left * _tail(residuals, confidence)
        if 2 * wide + abs(tail) < 2 * alone:
            weight, shift = fitted, fitted * (of_all - float(of_drawn.mean()))
            reach, below, above = wide, wide + max(-tail, 0), wide + max(tail, 0)
    # m labels have the variance (1 / m - 1 / N) · s²: m is where this is the variance with the judge
    share = (reach / alone) ** 2 if alone > ROUNDING else 1.0
    effective = 1 / (1 / total + (1 / n - 1 / total) * share)
    return PredictionPoweredEstimate(
        difference=mean + shift,
        ci_low=mean + shift - below,
        ci_high=mean + shift + above,
        weight=weight,
        without_judge=Interval(mean, mean - alone, mean + alone),
        labelled=n,
        total=total,
        effective_labels=effective,
    )


def _slope(human: Float64, judged: Float64, spread: float) -> float:
    """The least-squares slope, clipped to [0, 1]; `spread` is the judge's variance over all queries."""
    apart = judged - judged.mean()
    square = max(float(apart @ apart), len(human) * spread)
    return float(np.clip(apart @ human / square, 0, 1)) if square > ROUNDING else 0.0


def _slopes_without_each(human: Float64, judged: Float64, spread: float) -> Float64:
    """float64 [n]: the slope without each query."""
    n = len(human)
    x, y = judged - judged.mean(), human - human.mean()
    grow = n / (n - 1)  # by which leaving one out changes sums of squares about the mean
    squares, products = x @ x - grow * x * x, x @ y - grow * x * y
    squares = np.maximum(squares, (n - 1) * spread)
    slopes = np.divide(products, squares, out=np.zeros(n), where=squares > ROUNDING)
    clipped: Float64 = np.clip(slopes, 0, 1)
    return clipped


def _others(values: Float64) -> int:
    """How many values differ from the most common one."""
    _, times = np.unique(np.round(values, 9), return_counts=True)
    return int(len(values) - times.max())


def t_reach(values: Float64, freedom: int, confidence: float, unseen: float = 0.0) -> float:
    """Half the width of the t interval of a mean.

    Where ties may hide spread, one more value is counted that is `unseen` away.
    """
    from scipy.special import stdtrit

    n = len(values)
    error = np.hypot(values.std(ddof=1) / sqrt(n), unseen / n)
    return float(stdtrit(freedom, (1 + confidence) / 2) * error)


def _tail(values: Float64, confidence: float) -> float:
    """How far the interval's end on the side of the longer tail moves; below 0 it is the lower one.

    γ · (1 + 2 z²) / 6n standard deviations, γ the skewness; at most one standard error.
    """
    from scipy.special import ndtri

    n, apart = len(values), values - values.mean()
    deviation = float(apart.std())
    if deviation <= ROUNDING:
        return 0.0
    skewness = float((apart**3).mean()) / deviation**3
    errors = skewness * (1 + 2 * float(ndtri((1 + confidence) / 2)) ** 2) / (6 * sqrt(n))
    return float(np.clip(errors, -1, 1)) * deviation / sqrt(n)


class Agreement(NamedTuple):
    """How far a judge and people agree on the pairs that both graded.

    Attributes:
        pairs: How many.
        kappa, ci_low, ci_high: Cohen's, unweighted, with its 95% interval over queries; None if undefined.
        grades: The grades of either.
        confusion: int64 [grades, grades]: a row for each grade of people.
        same: For each grade of people, the ends of the 95% interval of the share that the judge gave it, too.
    """

    pairs: int
    kappa: float | None
    ci_low: float | None
    ci_high: float | None
    grades: list[int]
    confusion: Int64
    same: list[tuple[float | None, float | None]]


def agreement(of_people: Int64, of_judge: Int64, queries: Int64) -> Agreement:
    """The agreement on pairs that both graded, with intervals over queries.

    Pairs of one query are no independent draws, so the bootstrap draws whole queries (Efron and Tibshirani,
    *An Introduction to the Bootstrap*, 1993, chapter 8). Kappa is Cohen's (Educational and Psychological
    Measurement 20(1), 1960), by scikit-learn.

    Args:
        of_people: int64 [pairs], grades; at least one.
        of_judge: int64 [pairs], grades.
        queries: int64 [pairs], the query of each.
    """
    from sklearn.metrics import cohen_kappa_score

    values, codes = np.unique(np.concatenate([of_people, of_judge]), return_inverse=True)
    rows, columns = codes[: len(of_people)], codes[len(of_people) :]
    _, places = np.unique(queries, return_inverse=True)
    size = len(values)
    by_query = np.zeros((places.max() + 1, size, size))
    np.add.at(by_query, (places, rows, columns), 1)
    times = np.random.default_rng(SEED).multinomial(
        len(by_query), np.full(len(by_query), 1 / len(by_query)), DRAWS
    )
    drawn = np.tensordot(times, by_query, axes=1)  # [draws, grades, grades]
    totals = drawn.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (drawn.sum(axis=1) * drawn.sum(axis=2)).sum(axis=1) / totals**2
        kappas = (np.trace(drawn, axis1=1, axis2=2) / totals - chance) / (1 - chance)
        shares = np.diagonal(drawn, axis1=1, axis2=2) / drawn.sum(axis=2)
    low, high = _ends(kappas)
    kappa = float(cohen_kappa_score(of_people, of_judge)) if size > 1 else None
    confusion = by_query.sum(axis=0).astype(np.int64)
    return Agreement(
        len(of_people), kappa, low, high, values.tolist(), confusion, [_ends(s) for s in shares.T]
    )


def _ends(draws: Float64) -> tuple[float | None, float | None]:
    """The ends of the 95% interval of bootstrap draws; None where most are undefined."""
    draws = draws[np.isfinite(draws)]
    if len(draws) < DRAWS // 2:
        return None, None
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return low, high
