"""Tests of differences within groups of queries, and of a group's mean against that of all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics import paired
from pipeline.metrics.paired import LEVEL, holm, larger_p, paired_tests
from pipeline.metrics.statistics import ONE, ROUNDING, Estimate

SEED = 20193
SMALLEST = 6
"""Groups of fewer queries are not tested: the randomization test could not reach 5%."""
SMALLEST_MARKED = 20
"""Smaller groups are not compared with the rest: their own spread says too little."""


def smallest_shown(sizes: Sequence[int], pairs: int) -> int:
    """The size of the smallest groups in which a difference can be shown, if only such groups are tested.

    Of n queries the randomization test has no p below 2 / 2^n. Where that times the number of tests is above
    5%, nothing can be shown, so a test would only make those of other groups stricter; it is left out, which
    keeps the chance of a false finding at 5% as the choice does not look at the values (Tarone, *A Modified
    Bonferroni Method for Discrete Data*, Biometrics 46(2), 1990).
    """
    size = SMALLEST
    while 2 ** (1 - size) * pairs * sum(each >= size for each in sizes) > LEVEL:
        size += 1
    return size


def difference_tests(
    differences: Float64, groups: Sequence[BoolArray], highest: float, smallest: int = SMALLEST
) -> tuple[list[Estimate], Float64, Float64]:
    """Means of paired differences within each group, and their two-sided p.

    Args:
        differences: float64 [queries, pairs].
        groups: Bool [queries] each.
        highest: What a query can lose.
        smallest: Groups of fewer queries are not tested; see `smallest_shown`.

    Returns:
        The estimates of each group; then float64 [groups, pairs] each: `larger_p` of the paired t-test and
        the paired randomization test; and this corrected by Holm's method for all groups and pairs. Both are
        NaN for groups that are not tested, which the correction does not count.
    """
    p_values = np.full((len(groups), differences.shape[1]), np.nan)
    estimates = []
    for row, inside in enumerate(groups):
        estimated, by_chance = paired_tests([differences[inside]], ONE, highest)
        estimates.append(estimated)
        if inside.sum() >= smallest:
            p_values[row] = larger_p(estimated.p, by_chance)
    tested, corrected = ~np.isnan(p_values), p_values.copy()
    corrected[tested] = holm(p_values[tested])
    return estimates, p_values, corrected


def compare_with_rest(values: Float64, groups: Sequence[BoolArray]) -> Float64:
    """Two-sided p that the mean in a group is that of the other queries, corrected for all tests.

    If a group is not special, any other queries could as well be in it. A permutation, one of 20,000 from a
    fixed seed, gives the queries new places in all groups and columns at once, so it keeps what these have to
    do with each other. The statistic is Welch's t, so that groups of the same mean but another spread are
    marked no more often than others (Janssen, Statistics & Probability Letters 36(1), 1997; Chung and Romano,
    Annals of Statistics 41(2), 2013); for that a group takes some 20 queries. Its own quantiles fail in
    groups whose values are nearly all equal.

    Corrected by step-down MaxT: p is the share of permutations in which the largest statistic among a test's
    own and all lower ones reaches it, never less than the p of a higher one (Westfall and Young,
    *Resampling-Based Multiple Testing*, 1993, algorithm 2.8; Romano and Wolf, J. American Statistical
    Association 100(469), 2005). The observed places are counted as one permutation more.

    Args:
        values: float64 [queries, columns].
        groups: Bool [queries] each.

    Returns:
        float64 [groups, columns]; NaN where the group or the others are fewer than `SMALLEST_MARKED`.
    """
    p_values = np.full((len(groups), values.shape[1]), np.nan)
    tested = [
        row for row, inside in enumerate(groups) if min(inside.sum(), (~inside).sum()) >= SMALLEST_MARKED
    ]
    if not tested or not values.size:
        return p_values
    n_queries, n_columns = values.shape
    spreads = values.std(axis=0)
    varies = spreads > ROUNDING * np.abs(values).max(axis=0, initial=0)
    centred = np.where(varies, values - values.mean(axis=0), 0) / np.where(varies, spreads, 1)
    both = np.hstack([centred, centred**2])
    is_in = np.array([groups[row] for row in tested], dtype=np.float64)
    sizes = is_in.sum(axis=1)[:, None]
    others = n_queries - sizes

    def welch(sums: Float64) -> Float64:
        """|t| from sums of values and of their squares in groups, float64 [..., groups, 2 · columns]."""
        total, squares = sums[..., :n_columns], sums[..., n_columns:]  # of values that sum to 0
        variance = (squares - total**2 / sizes) / (sizes * (sizes - 1))
        variance += (n_queries - squares - total**2 / others) / (others * (others - 1))
        t: Float64 = np.abs(total) * (n_queries / (sizes * others)) / np.sqrt(np.maximum(variance, ROUNDING))
        return t

    observed = welch(is_in @ both).ravel()
    order = np.argsort(observed, kind="stable")
    least = (observed - ROUNDING * n_queries * (1 + observed))[order]
    reached = np.ones(len(observed))
    generator = np.random.default_rng(SEED)
    rows = max(paired.BLOCK_SWAPS // is_in.size, 1)
    for start in range(0, paired.PERMUTATIONS, rows):
        block = min(rows, paired.PERMUTATIONS - start)
        orders = generator.permuted(np.tile(np.arange(n_queries), (block, 1)), axis=1)
        sums = is_in[:, orders].transpose(1, 0, 2) @ both  # [block, groups, 2 · columns]
        highest = np.maximum.accumulate(welch(sums).reshape(block, -1)[:, order], axis=1)
        reached += (highest >= least).sum(axis=0)
    corrected = np.empty(len(observed))
    corrected[order] = np.maximum.accumulate(reached[::-1])[::-1] / (1 + paired.PERMUTATIONS)
    p_values[tested] = corrected.reshape(len(tested), n_columns)
    return p_values
