"""Confidence intervals of means over queries, and tests of the difference of two means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from pipeline.core.records import BoolArray, Float64

CONFIDENCE = 0.95
MIN_QUERIES = 25
"""With fewer queries no interval is shown: of skewed values, it would hold the mean too rarely."""
MIN_OTHERS = 5
"""Nor is one shown where fewer values than this differ from the most common one: ties hide the spread."""

Interval = tuple[float, float] | None
"""The ends of an interval; None where none is shown."""


def mean_interval(values: Float64, confidence: float = CONFIDENCE) -> tuple[Float64, Float64]:
    """Student's t interval of each mean over queries: mean ± t · s / √n, with n - 1 degrees of freedom.

    In the simulation of `scripts/simulate_statistics.py` it holds the mean as often as it says, where
    percentile, BCa and studentized bootstrap intervals do not. No interval is shown for fewer than
    `MIN_QUERIES` queries, or where fewer than `MIN_OTHERS` values differ from the most common one.

    Args:
        values: float64 [queries, measures], at least one query.
        confidence: The share of intervals that hold the true mean.

    Returns:
        float64 [measures] each: the low and the high end, NaN where no interval is shown.
    """
    n_queries = len(values)
    if not n_queries:
        raise ValueError("no query to estimate a mean from")
    shown = enough_spread(values)
    means, errors = mean_and_error(values)
    with np.errstate(invalid="ignore"):
        reach = np.where(shown, t_quantile(n_queries, (1 + confidence) / 2) * errors, np.nan)
        return means - reach, means + reach


def shown_intervals(values: Float64) -> list[Interval]:
    """The 95% interval of each column's mean, as by `mean_interval`; None where none is shown."""
    return [ends(low, high) for low, high in zip(*mean_interval(values), strict=True)]


def ends(low: float, high: float) -> Interval:
    """An interval from its ends; None for NaN."""
    return None if np.isnan(low) or np.isnan(high) else (float(low), float(high))


def enough_spread(values: Float64) -> BoolArray:
    """Bool [columns]: whether float64 [queries, columns] have enough queries and values for an interval."""
    n_queries = len(values)
    if n_queries < MIN_QUERIES:
        return np.zeros(values.shape[1], dtype=bool)
    # a value that occurs more than n - MIN_OTHERS times stands, sorted, in both of two such places
    first = np.sort(values, axis=0)
    tied = first[:MIN_OTHERS] == first[n_queries - MIN_OTHERS :]
    shown: BoolArray = ~tied.any(axis=0)
    return shown


def mean_and_error(values: Float64) -> tuple[Float64, Float64]:
    """The mean of each column and its standard error, s / √n; of one query the error is 0."""
    n_queries = len(values)
    scaled, power = _scaled(values)
    deviations = scaled.std(axis=0, ddof=1) if n_queries > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0), np.ldexp(deviations / np.sqrt(n_queries), power)


def t_quantile(n_queries: int, probability: float) -> float:
    """The quantile of Student's t with n - 1 degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(max(n_queries - 1, 1), probability))


def _scaled(values: Float64) -> tuple[Float64, Any]:
    """Columns divided by a power of two, so that no square is too large or too small; and its exponent."""
    _, power = np.frexp(np.abs(values).max(axis=0))
    return np.ldexp(values, -power), power


def t_test(differences: Float64) -> Float64:
    """float64 [pairs]: two-sided p of the paired t-test (Student 1908), as by `scipy.stats.ttest_rel`.

    `differences` is float64 [queries, pairs], the value of one run minus that of the other. A pair without
    any difference has p = 1, and so has a single query. If all queries differ by exactly the same amount,
    p is 0, as in SciPy.
    """
    from scipy.special import stdtr

    n_queries = len(differences)
    if n_queries < 2:
        return np.ones(differences.shape[1])
    means, errors = mean_and_error(_scaled(differences)[0])  # t does not depend on the scale
    with np.errstate(divide="ignore", invalid="ignore"):
        t = means / errors
    p: Float64 = np.where(differences.any(axis=0), 2 * stdtr(n_queries - 1, -np.abs(t)), 1.0)
    return p


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
