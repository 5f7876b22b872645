"""Tests of mean differences against a margin.

Losses are taken to be like those that the queries show. `with_one_more` tells which verdicts depend on that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import Float64
from pipeline.metrics.statistics import HALF_A_VALUE, MANY_OTHERS, ONE, ROUNDING, Strata, estimate

RESAMPLES = 10_000
SEED_OF_ONE, SEED = 20191, 20192  # of one collection, of several
DRAWN_OF_ONE, DRAWN_AT_ONCE = 1 << 17, 1 << 20  # random draws made at once; they shape the random numbers


def noninferiority(strata: Strata, margins: Float64, weights: Float64 = ONE) -> tuple[Float64, Float64]:
    """One-sided p-values of mean differences against margins, float64 [columns].

    The first is against "M is `margin` or more below 0", the second against "it is at most `margin` below".
    Each is that of the paired t-test, with the spread that ties may hide. Where at least `MANY_OTHERS` values
    differ from the most common one it is the larger of that and of the studentized paired bootstrap,
    stratified by collection: the share of 10,000 resamples whose t, about the observed mean, is as large as
    the observed t, which is counted as one more (Efron and Tibshirani, *An Introduction to the Bootstrap*,
    1993, sections 12.5 and 16.4). The bootstrap is the stricter where a few queries lose much.

    Where no value differs the first p is 0. A collection of a single query shows nothing.

    Args:
        strata: For each collection differences, float64 [queries, columns].
        margins: float64 [columns].
        weights: float64 [collections].

    Returns:
        float64 [columns] each: p of not being worse, p of being worse.
    """
    if min(map(len, strata)) < 2:
        return np.ones(len(margins)), np.ones(len(margins))
    t, not_worse, worse = _by_t(strata, margins, weights)
    varied = estimate(strata, weights).others >= MANY_OTHERS
    if varied.any():
        resampled = resampled_t(strata, weights)
        higher = (1 + (resampled >= t - ROUNDING).sum(axis=0)) / (1 + len(resampled))
        lower = (1 + (resampled <= t + ROUNDING).sum(axis=0)) / (1 + len(resampled))
        not_worse = np.where(varied, np.maximum(not_worse, higher), not_worse)
        worse = np.where(varied, np.maximum(worse, lower), worse)
    equal = np.all([~values.any(axis=0) for values in strata], axis=0)
    return np.where(equal, 0, not_worse), np.where(equal, 1, worse)


def _by_t(
    strata: Strata, margins: Float64, weights: Float64, hidden: float = HALF_A_VALUE
) -> tuple[Float64, Float64, Float64]:
    """Student's t of M above -margin, and its p on both sides, float64 [columns] each."""
    from scipy.special import stdtr

    estimated = estimate(strata, weights, hidden)
    above = estimated.means + margins
    above[np.abs(above) <= ROUNDING] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(above == 0, 0.0, above / estimated.wide_errors)
    freedom = np.maximum(estimated.wide_freedom, 1)
    return t, stdtr(freedom, -t), stdtr(freedom, t)


def resampled_t(strata: Strata, weights: Float64) -> Float64:
    """float64 [resamples, columns]: (M* - M) over its standard error in each of 10,000 resamples.

    The studentized bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, section 12.5).

    Of several collections, n - 1 of n queries are drawn, so that their variance is that of M without bias
    (Rao and Wu, J. American Statistical Association 83(401), 1988). Without spread t is infinite, unless the
    mean is the observed one.
    """
    one = len(strata) == 1
    generator = np.random.default_rng(SEED_OF_ONE if one else SEED)
    total, variance = np.zeros((2, RESAMPLES, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        drawn = len(values) if one else len(values) - 1
        centred = values - values.mean(axis=0)
        both = np.hstack([centred, centred**2])
        block = DRAWN_OF_ONE if one else DRAWN_AT_ONCE
        n_rows = max(block // len(values), 1)
        for start in range(0, RESAMPLES, n_rows):
            size = min(n_rows, RESAMPLES - start)
            queries = generator.integers(len(values), size=(size, drawn), dtype=np.int32)
            queries += np.arange(size, dtype=np.int32)[:, None] * len(values)  # one count serves all rows
            times = np.bincount(queries.ravel(), minlength=size * len(values)).reshape(size, -1)
            means, squares = np.hsplit(times.astype(np.float64) @ both / drawn, 2)
            rows = slice(start, start + size)
            total[rows] += weight * means
            variance[rows] += weight**2 * np.maximum(squares - means**2, 0) / max(drawn - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(total) <= ROUNDING, 0.0, total / np.sqrt(variance))


def with_one_more(
    strata: Strata, margins: Float64, weights: Float64, highest: ArrayLike
) -> tuple[Float64, Float64]:
    """The p-values of the t-test with one query more, which loses everything; or which gains everything.

    The query is added where one counts most; no more spread is taken to be hidden.

    Args:
        strata: For each collection differences, float64 [queries, columns].
        margins: float64 [columns].
        weights: float64 [collections].
        highest: What the query loses or gains, float64 [columns] or one for all.

    Returns:
        float64 [columns] each: p of not being worse with the loss, p of being worse with the gain.
    """
    most = int(np.argmax(weights / [len(values) for values in strata]))
    p_values = []
    for side, sign in ((1, -1), (2, 1)):
        one = np.broadcast_to(sign * np.asarray(highest, np.float64), (1, len(margins)))
        more = [np.vstack([values, one]) if i == most else values for i, values in enumerate(strata)]
        p_values.append(_by_t(more, margins, weights, hidden=0)[side])
    return p_values[0], p_values[1]
