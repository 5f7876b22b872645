"""Tests by resampling: the studentized bootstrap of means, and randomizations of many tests at once.

Strata and weights are those of `pipeline.metrics.statistics`.

If two runs are equally good, the values of a query could as well have changed places, which changes the sign
of its difference. A randomization changes the signs of random queries, in all pairs alike, so it keeps what
pairs have to do with each other: those that share a run, or runs that are nearly the same. The statistic of a
pair is Student's t. Changing signs leaves the sum of squares as it is, so t is a growing function of
|sum| / √(n · sum of squares), the *ratio*, which is compared instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.statistics import CONFIDENCE, ONE, ROUNDING, Strata

RESAMPLES = 10_000
SEED_OF_ONE, SEED = 20191, 20192  # of one collection, of several
DRAWN_OF_ONE, DRAWN_AT_ONCE = 1 << 17, 1 << 20  # random draws made at once; they shape the random numbers
MOST_DRAWN = 1000
"""Queries of a collection up to which resamples are drawn query by query."""


def resampled_t(strata: Strata, weights: Float64, resamples: int | None = None) -> Float64:
    """float64 [resamples, columns]: (M* - M) over its standard error in each of 10,000 resamples.

    The studentized bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, section 12.5).

    Of several collections, n - 1 of n queries are drawn, as by `resampled_means`. Without spread t is
    infinite, unless the mean is the observed one.
    """
    one, resamples = len(strata) == 1, resamples or RESAMPLES
    generator = np.random.default_rng(SEED_OF_ONE if one else SEED)
    total, variance = np.zeros((2, resamples, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        drawn = len(values) if one else len(values) - 1
        centred = values - values.mean(axis=0)
        both = np.hstack([centred, centred**2])
        block = DRAWN_OF_ONE if one else DRAWN_AT_ONCE
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


def resampled_means(strata: Strata, weights: Float64) -> Float64:
    """float64 [resamples, columns]: macro means of resamples, drawn from a fixed seed within collections.

    Each of 10,000 resamples draws n_c - 1 of the n_c queries of every collection, with replacement, so that
    its variance is that of M without bias (Rao and Wu, J. American Statistical Association 83(401), 1988).

    The means of a collection with more than `MOST_DRAWN` queries are drawn from the normal distribution of
    their covariance: the two no longer differ, and this takes a hundredth of the time.
    """
    generator = np.random.default_rng(SEED)
    total = np.zeros((RESAMPLES, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        centre = values.mean(axis=0)  # sums of small numbers round less
        if len(values) > MOST_DRAWN:
            total += weight * (centre + _normal_means(values - centre, generator))
            continue
        drawn = len(values) - 1
        for start, times in _draws(len(values), drawn, RESAMPLES, DRAWN_AT_ONCE, generator):
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


PERMUTATIONS = 20_000
EXACT_QUERIES = 14
"""Up to so many queries, all 2^queries ways to change signs are counted."""
SEED_OF_SIGNS, SEED_OF_GROUPS = 20190, 20193
BLOCK_SWAPS = 1 << 20  # random swaps made at once
BLOCK_ROWS = 1 << 11  # ways made at once


class _StepDown:
    """p-values of many tests at once, by the step-down MaxT procedure.

    The corrected p of a test is the share of ways in which the largest statistic among its own and all lower
    ones reaches it, never less than that of a test of a higher one (Westfall and Young, *Resampling-Based
    Multiple Testing*, 1993, algorithm 2.8; Romano and Wolf, J. American Statistical Association 100(469),
    2005).

    Args:
        observed: float64 [tests]: the statistics, of one scale.
    """

    def __init__(self, observed: Float64) -> None:
        self._observed, self._order = observed, np.argsort(observed, kind="stable")
        self._reached = np.zeros(len(observed))

    def count(self, statistics: Float64) -> None:
        """Count ways, of which float64 [ways, tests] has the statistics."""
        highest = np.maximum.accumulate(statistics[:, self._order], axis=1)
        self._reached[self._order] += (highest >= self._observed[self._order]).sum(axis=0)

    def p_values(self, drawn: bool, ways: int) -> Float64:
        """float64 [tests]; of ways that were drawn, the observed one is counted as one more."""
        p: Float64 = (drawn + self._reached) / (drawn + ways)
        p[self._order[::-1]] = np.maximum.accumulate(p[self._order[::-1]])
        return p


@dataclass(frozen=True)
class Randomized:
    """What randomizations say of the differences of several pairs.

    Attributes:
        p: float64 [pairs], two-sided, of each pair alone.
        p_maxt: float64 [pairs], corrected for all pairs: the step-down MaxT procedure.
        reach: Of simultaneous intervals: so many standard errors on either side of every mean difference hold
            all true ones together in 95% of cases.
    """

    p: Float64
    p_maxt: Float64
    reach: float


def randomize(
    strata: Strata,
    pairs: Sequence[tuple[int, int]],
    differences: Strata,
    shown: BoolArray,
    weights: Float64 = ONE,
) -> Randomized:
    """Test the differences of pairs of runs: each pair alone, and all together.

    20,000 ways to change signs are drawn from a fixed seed, the same for every pair. The observed one is
    counted as one more, so that p is never 0 (Smucker, Allan and Carterette, CIKM 2007; Phipson and Smyth,
    Statistical Applications in Genetics and Molecular Biology 9(1), 2010). With up to 14 queries, all ways
    are counted instead, and p is exact. The queries of several collections count as those of one, each by the
    weight that it has in M.

    The corrected p is by `_StepDown`. `reach` is the 95% quantile of the largest t of differences whose mean
    was removed.

    Args:
        strata: For each collection float64 [queries, runs].
        pairs: The two runs of each pair, a minus b.
        differences: For each collection float64 [queries, pairs], 0 where runs differ by rounding alone.
        shown: bool [pairs], those with an interval: the ones that `reach` is for.
        weights: Of the collections.
    """
    from scipy.special import stdtrit

    shares = weights / [len(each) for each in strata] if len(strata) > 1 else ONE
    values, changes = (
        np.vstack([each * share for each, share in zip(arrays, shares, strict=True)])
        for arrays in (strata, differences)
    )
    n_queries, n_pairs = changes.shape
    scale = np.abs(values).max(initial=0) or 1.0  # so that no square is too large or too small
    values, changes = values / scale, changes / scale
    # sums of the runs are cheaper than those of the pairs; their rounding is that of larger numbers
    minus = np.zeros((values.shape[1], n_pairs))
    minus[[a for a, _ in pairs], np.arange(n_pairs)] = 1
    minus[[b for _, b in pairs], np.arange(n_pairs)] = -1
    means, totals = changes.mean(axis=0), changes.sum(axis=0)
    norms, spreads = (np.sqrt(n_queries * np.square(each).sum(axis=0)) for each in (changes, changes - means))
    norms, spreads = np.where(norms > 0, norms, 1), np.where(spreads > 0, spreads, 1)
    rounding = ROUNDING * (1 + np.abs(values).sum(axis=0) @ np.abs(minus) / norms)
    observed = np.abs(totals) / norms - rounding
    stepwise = _StepDown(observed)
    alone, largest = np.zeros(n_pairs), []
    drawn = n_queries > EXACT_QUERIES  # else the observed way is among all of them
    generator = np.random.default_rng(SEED_OF_SIGNS)
    ways = PERMUTATIONS if drawn else 1 << n_queries
    rows = min(max(BLOCK_SWAPS // n_queries, 1), BLOCK_ROWS) if drawn else ways
    for start in range(0, ways, rows):
        # float64 [rows, queries]: 1 where the values of a query change places, from a random bit or the bit
        # of the number of the way
        block = min(rows, ways - start)
        if drawn:
            packed = np.frombuffer(generator.bytes(block * -(-n_queries // 8)), dtype=np.uint8)
            swaps = np.unpackbits(packed).reshape(block, -1)[:, :n_queries].astype(np.float64)
        else:
            swaps = (np.arange(ways)[:, None] >> np.arange(n_queries) & 1).astype(np.float64)
        sums = totals - 2 * ((swaps @ values) @ minus)
        ratios = np.abs(sums) / norms
        alone += (ratios >= observed).sum(axis=0)
        stepwise.count(ratios)
        balance = n_queries - 2 * swaps.sum(axis=1, keepdims=True)
        centred = np.abs(sums - balance * means) / spreads
        largest.append(centred.max(axis=1, initial=0, where=shown))
    p_maxt = stepwise.p_values(drawn, ways)
    # the 95% quantile of ratios, as a t; at least that of Student's t, which is for one pair
    ratio = min(float(np.quantile(np.concatenate(largest), CONFIDENCE, method="higher")), 1 - ROUNDING)
    t = float(ratio * np.sqrt((n_queries - 1) / (1 - ratio * ratio)))
    reach = max(t, float(stdtrit(max(n_queries - 1, 1), (1 + CONFIDENCE) / 2)))
    return Randomized((drawn + alone) / (drawn + ways), p_maxt, reach)


def randomization_test(strata: Strata, weights: Float64 = ONE) -> Float64:
    """float64 [pairs]: two-sided p of each column of strata of differences alone, as by `randomize`."""
    n_pairs = strata[0].shape[1]
    with_zero_column = [np.column_stack([differences, np.zeros(len(differences))]) for differences in strata]
    pairs = [(pair, n_pairs) for pair in range(n_pairs)]
    return randomize(with_zero_column, pairs, strata, np.zeros(n_pairs, dtype=bool), weights).p


def permutation_test(values: Float64, groups: Sequence[BoolArray]) -> Float64:
    """float64 [groups, columns]: two-sided p that a group's mean is that of all other queries.

    If a group is not special, any other queries could as well be in it. A permutation, one of 20,000 from a
    fixed seed, gives the queries new places in all groups and columns at once, so it keeps what these have to
    do with each other. The statistic is the difference of the two means over its standard deviation among
    permutations, which does not depend on the spread within a small group. Corrected by `_StepDown`.

    Args:
        values: float64 [queries, columns].
        groups: Bool [queries] each, neither empty nor full.
    """
    n_queries, n_columns = values.shape
    spreads = values.std(axis=0)
    varies = spreads > ROUNDING * np.abs(values).max(axis=0, initial=0)
    centred = np.where(varies, values - values.mean(axis=0), 0) / np.where(varies, spreads, 1)
    is_in = np.array(groups, dtype=np.float64)
    sizes = is_in.sum(axis=1)
    scale = np.sqrt(sizes * (n_queries - sizes) / n_queries)[:, None]
    observed = (np.abs(is_in @ centred) / scale).ravel() - ROUNDING * n_queries
    stepwise = _StepDown(observed)
    generator = np.random.default_rng(SEED_OF_GROUPS)
    rows = max(BLOCK_SWAPS // is_in.size, 1)
    for start in range(0, PERMUTATIONS, rows):
        block = min(rows, PERMUTATIONS - start)
        orders = generator.permuted(np.tile(np.arange(n_queries), (block, 1)), axis=1)
        sums = is_in[:, orders].transpose(1, 0, 2) @ centred  # [block, groups, columns]
        stepwise.count((np.abs(sums) / scale).reshape(block, -1))
    return stepwise.p_values(True, PERMUTATIONS).reshape(len(groups), n_columns)
