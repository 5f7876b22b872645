"""Paired tests of differences per query, corrections for many tests, letters and ranks of all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_lowercase

import numpy as np

from pipeline.core.records import BoolArray, Float64, JsonObject
from pipeline.metrics.names import Measure
from pipeline.metrics.resampling import PERMUTATIONS, randomization_test
from pipeline.metrics.statistics import shown_intervals, t_test

SAME = 1e-12
"""Values that differ by no more are a tie; above 1, such as those of DCG, as a share of the highest."""
LEVEL = 0.05
SMALLEST = 6
"""Groups of fewer queries are not tested: the randomization test could not reach 5%."""


def with_ties(differences: Float64, highest: Float64) -> Float64:
    """Differences, [queries, n], of values up to `highest`, with 0 for ties: rounding decides nothing."""
    return np.where(np.abs(differences) <= SAME * np.maximum(highest, 1), 0, differences)


def changes(measures: Sequence[Measure], before: Float64, after: Float64) -> dict[str, JsonObject]:
    """What happened to each measure, by its name, as JSON, of values float64 [queries, measures] each.

    `before` is the mean, `difference` that of after minus before; `p_holm` is `p_ttest` corrected for the
    number of measures; `wins`, `ties` and `losses` are queries that rose, stayed and fell.
    """
    differences = with_ties(after - before, np.maximum(np.abs(before), np.abs(after)))
    p_ttest = t_test([differences])
    columns = {
        "before": before.mean(axis=0),
        "difference": differences.mean(axis=0),
        "p_ttest": p_ttest,
        "p_randomization": randomization_test(differences),
        "p_holm": holm(p_ttest),
        "wins": (differences > 0).sum(axis=0),
        "ties": (differences == 0).sum(axis=0),
        "losses": (differences < 0).sum(axis=0),
    }
    listed = {name: column.tolist() for name, column in columns.items()}
    ends = [interval or (None, None) for interval in shown_intervals([differences])]
    listed["ci_low"], listed["ci_high"] = map(list, zip(*ends, strict=True))
    return {
        str(measure): {name: column[number] for name, column in listed.items()}
        for number, measure in enumerate(measures)
    }


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
            by_t, by_chance = t_test([differences[inside]]), randomization_test(differences[inside])
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


def holm(p_values: Float64) -> Float64:
    """p-values, float64 [tests], corrected for multiple tests (Holm, Scand. J. Statistics 6(2), 1979).

    A corrected value is below a level if and only if Holm's step-down method rejects that test at the level.
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty_like(p_values)
    corrected[order] = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    return np.minimum(corrected, 1.0)


def benjamini_hochberg(p_values: Float64) -> Float64:
    """p-values, float64 [tests], corrected so that a share of the rejected ones is false.

    Benjamini and Hochberg, J. Royal Statistical Society B 57(1), 1995. Tests of pairs that share a run depend
    on each other; there it is an approximation (Benjamini and Yekutieli, Annals of Statistics 29(4), 2001).
    """
    from scipy.stats import false_discovery_control  # heavy

    corrected: Float64 = false_discovery_control(p_values)
    return corrected


def compact_letters(means: Sequence[float], different: Iterable[tuple[int, int]]) -> list[str]:
    """A compact letter display: two runs share a letter if and only if they do not differ significantly.

    The insert-and-absorb algorithm: Piepho, *An algorithm for a letter-based representation of all-pairwise
    comparisons*, J. Computational and Graphical Statistics 13(2), 2004.

    `means` has the mean of each run; the run with the highest has the letter "a". `different` are pairs of
    positions in `means` that differ significantly. Returns the letters of each run in alphabetical order.
    """
    groups = [frozenset(range(len(means)))]
    for pair in different:
        split = [half for group in groups for half in _without_both(group, pair)]
        groups = [group for group in dict.fromkeys(split) if not any(group < other for other in split)]
    ranks = {one: rank for rank, one in enumerate(sorted(range(len(means)), key=lambda one: -means[one]))}
    groups.sort(key=lambda group: sorted(ranks[one] for one in group))
    names = [ascii_lowercase[i % 26] + str(i // 26 or "") for i in range(len(groups))]
    return [
        "".join(name for name, group in zip(names, groups, strict=True) if one in group)
        for one in range(len(means))
    ]


def _without_both(group: frozenset[int], pair: tuple[int, int]) -> list[frozenset[int]]:
    """The group; or, if it holds both of a pair, two groups, each without one of them."""
    return [group - {one} for one in pair] if group.issuperset(pair) else [group]


def rank_intervals(results: int, better: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The lowest and highest rank that each result may have, from 1 for the best.

    `better` are pairs of results of which the first was shown to be better. The rank of a result is 1 + the
    number of those with a higher true mean; those shown to be better are among them, those shown to be worse
    are not. If the pairs are shown with a family-wise error of 5%, all intervals hold the true ranks together
    in 95% of cases (Mogstad, Romano, Shaikh and Wilhelm, Review of Economic Studies 91(1), 2024).
    """
    above, below = np.zeros(results, dtype=int), np.zeros(results, dtype=int)
    for winner, loser in better:
        above[loser] += 1
        below[winner] += 1
    return list(zip((1 + above).tolist(), (results - below).tolist(), strict=True))
