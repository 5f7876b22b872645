"""Tests of means within groups of queries, and between a group and the other queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.randomization import PERMUTATIONS, randomization_test
from pipeline.metrics.statistics import holm, t_test

LEVEL = 0.05
SMALLEST = 6
"""Groups of fewer queries are not tested: the randomization test could not reach 5%."""


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
    differences: Float64, groups: Sequence[BoolArray], smallest: int = SMALLEST
) -> tuple[Float64, Float64]:
    """Two-sided p of paired differences within each group.

    Args:
        differences: float64 [queries, pairs].
        groups: Bool [queries] each.
        smallest: Groups of fewer queries are not tested; see `smallest_shown`.

    Returns:
        float64 [groups, pairs] each: the larger p of the paired t-test and the paired randomization test
        (the t-test's alone where no randomization reaches the observed one, so that the number of
        randomizations sets no limit); and this corrected by Holm's method for all groups and pairs. Both are
        NaN for groups that are not tested, which the correction does not count.
    """
    found = np.full((len(groups), differences.shape[1]), np.nan)
    for row, inside in enumerate(groups):
        if inside.sum() >= smallest:
            by_t, by_chance = t_test(differences[inside]), randomization_test(differences[inside])
            reached = by_chance > 1.5 / (PERMUTATIONS + 1)
            found[row] = np.where(reached, np.maximum(by_t, by_chance), by_t)
    return found, _corrected(found)


def compare_with_rest(values: Float64, groups: Sequence[BoolArray]) -> Float64:
    """Two-sided p that the mean in a group is that of the other queries, corrected by Holm's method.

    Welch's t-test, as by `scipy.stats.ttest_ind(equal_var=False)`: it does not take the spreads to be equal
    (Welch, Biometrika 34, 1947). Arguments and return as of `difference_tests`; NaN where the group or the
    others are fewer than `SMALLEST`. Without any spread p is 1 for equal means, else 0.
    """
    from scipy.stats import ttest_ind

    found = np.full((len(groups), values.shape[1]), np.nan)
    for row, inside in enumerate(groups):
        if min(inside.sum(), (~inside).sum()) < SMALLEST:
            continue
        ours, theirs = values[inside], values[~inside]
        varies = (np.ptp(ours, axis=0) > 0) | (np.ptp(theirs, axis=0) > 0)
        found[row] = np.where(ours.mean(axis=0) == theirs.mean(axis=0), 1.0, 0.0)
        if varies.any():
            found[row, varies] = ttest_ind(ours[:, varies], theirs[:, varies], equal_var=False).pvalue
    return _corrected(found)


def _corrected(p_values: Float64) -> Float64:
    corrected = p_values.copy()
    known = ~np.isnan(p_values)
    corrected[known] = holm(p_values[known])
    return corrected
