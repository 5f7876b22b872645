"""Studentized bootstrap of means over strata: non-inferiority, equivalence, and resampled means.

Strata and weights are those of `pipeline.metrics.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.statistics import ONE, ROUNDING, Strata, estimate

RESAMPLES = 10_000
SEED_OF_ONE, SEED = 20191, 20192  # of one collection, of several
BLOCK_OF_ONE, BLOCK = 1 << 17, 1 << 20  # random draws made at once; they shape the random numbers
MOST_DRAWN = 1000
"""Queries of a collection up to which resamples are drawn query by query."""


def noninferiority(
    strata: Strata, margins: Float64, weights: Float64 = ONE, resamples: int | None = None
) -> tuple[Float64, Float64]:
    """One-sided p-values of mean differences against margins, float64 [columns].

    The first is against "M is `margin` or more below 0", the second against "it is at most `margin` below".
    Each is the larger of those of the t-test and of the studentized paired bootstrap, stratified by
    collection: the share of 10,000 resamples whose t, about the observed mean, is as large as the observed t,
    which is counted as one more (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, sections
    12.5 and 16.4). The bootstrap is the stricter where a few queries lose much. A collection of a single
    query shows nothing.

    Returns:
        float64 [columns] each: p of not being worse, p of being worse.
    """
    from scipy.special import stdtr

    if min(map(len, strata)) < 2:
        return np.ones(len(margins)), np.ones(len(margins))
    resamples = resamples or RESAMPLES
    made = estimate(strata, weights)
    above = made.means + margins
    above[np.abs(above) <= ROUNDING] = 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(above == 0, 0.0, above / made.errors)
    resampled = _resampled_t(strata, weights, resamples)
    high = (1 + (resampled >= t - ROUNDING).sum(axis=0)) / (1 + resamples)
    low = (1 + (resampled <= t + ROUNDING).sum(axis=0)) / (1 + resamples)
    freedom = np.maximum(made.freedom, 1)
    return np.maximum(stdtr(freedom, -t), high), np.maximum(stdtr(freedom, t), low)


def _resampled_t(strata: Strata, weights: Float64, resamples: int) -> Float64:
    """float64 [resamples, columns]: (M* - M) over its standard error in the resample.

    Of several collections, n - 1 of n queries are drawn, as by `resampled_means`. Without spread t is
    infinite, unless the mean is the observed one.
    """
    one = len(strata) == 1
    generator = np.random.default_rng(SEED_OF_ONE if one else SEED)
    total, variance = np.zeros((2, resamples, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        drawn = len(values) if one else len(values) - 1
        centred = values - values.mean(axis=0)
        both = np.hstack([centred, centred**2])
        block = BLOCK_OF_ONE if one else BLOCK
        for start, times in _draws(len(values), drawn, resamples, block, generator):
            rows = slice(start, start + len(times))
            means, squares = np.hsplit(times @ both / drawn, 2)
            total[rows] += weight * means
            variance[rows] += weight**2 * np.maximum(squares - means**2, 0) / max(drawn - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(total) <= ROUNDING, 0.0, total / np.sqrt(variance))


def _draws(
    n_queries: int, drawn: int, resamples: int, block: int, generator: np.random.Generator
) -> Iterator[tuple[int, Float64]]:
    """Blocks of resamples: the first one's number, and float64 [rows, n_queries]: times each was drawn."""
    rows = max(block // n_queries, 1)
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        queries = generator.integers(n_queries, size=(size, drawn), dtype=np.int32)
        queries += np.arange(size, dtype=np.int32)[:, None] * n_queries  # so that one count serves all rows
        times = np.bincount(queries.ravel(), minlength=size * n_queries).reshape(size, n_queries)
        yield start, times.astype(np.float64)


def equivalence(strata: Strata, margin: float, weights: Float64 = ONE) -> Float64:
    """float64 [columns]: p against "the means differ by the margin or more", of strata of differences.

    Two one-sided tests (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15(6), 1987), by
    `noninferiority`: that the difference is above -margin, and that it is below the margin. The larger p
    counts.
    """
    margins = np.full(strata[0].shape[1], margin)
    above, _ = noninferiority(strata, margins, weights)
    below, _ = noninferiority([-values for values in strata], margins, weights)
    return np.maximum(above, below)


def resampled_means(strata: Strata, weights: Float64) -> Float64:
    """float64 [resamples, columns]: macro means of resamples, drawn from a fixed seed within collections.

    Each of 10,000 resamples draws n_c - 1 of the n_c queries of every collection, with replacement, so that
    its variance is that of M without bias (Rao and Wu, J. American Statistical Association 83(401), 1988).

    The means of a collection with more than `MOST_DRAWN` queries are drawn from the normal distribution of
    their covariance instead of query by query: the two no longer differ, and this takes a hundredth of the
    time.
    """
    generator = np.random.default_rng(SEED)
    total = np.zeros((RESAMPLES, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        centre = values.mean(axis=0)  # sums of small numbers round less
        if len(values) > MOST_DRAWN:
            total += weight * (centre + _normal_means(values - centre, generator))
            continue
        drawn = len(values) - 1
        for start, times in _draws(len(values), drawn, RESAMPLES, BLOCK, generator):
            total[start : start + len(times)] += weight * (centre + times @ (values - centre) / drawn)
    return total


def _normal_means(centred: Float64, generator: np.random.Generator) -> Float64:
    """float64 [resamples, columns]: means of resamples of n - 1 of float64 [queries, columns] around 0."""
    n_queries = len(centred)
    widest = np.abs(centred).max() or 1.0
    shares, axes = np.linalg.eigh((centred / widest).T @ (centred / widest) / n_queries)
    root = axes * np.sqrt(np.maximum(shares, 0) / (n_queries - 1))
    drawn: Float64 = generator.standard_normal((RESAMPLES, len(shares))) @ root.T * widest
    return drawn
