"""Corrections of p-values for the number of tests, and what follows of all pairs: letters and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_lowercase

import numpy as np

from pipeline.core.records import Float64


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

    Benjamini and Hochberg, J. Royal Statistical Society B 57(1), 1995: the i-th of m ascending p times m / i,
    never more than one after it. Tests of pairs that share a run depend on each other, for which it is an
    approximation (Benjamini and Yekutieli, Annals of Statistics 29(4), 2001).
    """
    order = np.argsort(-p_values, kind="stable")
    corrected = np.empty_like(p_values)
    n_tests = len(p_values)
    corrected[order] = np.minimum.accumulate(p_values[order] * n_tests / np.arange(n_tests, 0, -1))
    return np.minimum(corrected, 1.0)


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
