"""Confidence intervals of means over queries, and tests of the difference of two means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_lowercase

import numpy as np

from pipeline.core.records import Float64

RESAMPLES = 10_000
CONFIDENCE = 0.95
PERMUTATIONS = 20_000
SEED = 20190
BLOCK_DRAWS = 1 << 17  # random draws made at once
BLOCK_SWAPS = 1 << 20  # random swaps made at once


def bootstrap_interval(values: Float64, confidence: float = CONFIDENCE) -> tuple[Float64, Float64]:
    """Percentile bootstrap interval of each mean over queries (Efron and Tibshirani 1993, section 13.3).

    Queries are drawn with replacement, as many as there are, 10,000 times, from a fixed seed: the same for
    every measure, so an interval does not depend on which other measures are computed.

    Args:
        values: float64 [queries, measures], at least one query.
        confidence: The share of resampled means inside the interval.

    Returns:
        float64 [measures] each: the low and the high end.
    """
    n_queries = len(values)
    if not n_queries:
        raise ValueError("no query to resample")
    generator = np.random.default_rng(SEED)
    rows = max(BLOCK_DRAWS // n_queries, 1)
    means = np.empty((RESAMPLES, values.shape[1]))
    for start in range(0, RESAMPLES, rows):
        block = means[start : start + rows]
        drawn = generator.integers(n_queries, size=(len(block), n_queries), dtype=np.int32)
        drawn += np.arange(len(block), dtype=np.int32)[:, None] * n_queries
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)  # drawn, of each query
        block[:] = times.astype(np.float64) @ values / n_queries
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, (tail, 1 - tail), axis=0)
    return low, high


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
    _, power = np.frexp(np.abs(differences).max(axis=0))
    differences = np.ldexp(differences, -power)  # t does not change, and no square is too large or too small
    means = differences.mean(axis=0)
    deviations = differences.std(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = means / (deviations / np.sqrt(n_queries))
    p: Float64 = np.where(differences.any(axis=0), 2 * stdtr(n_queries - 1, -np.abs(t)), 1.0)
    return p


def randomization_test(differences: Float64) -> Float64:
    """float64 [pairs]: two-sided p of the paired randomization test, which swaps values of random queries.

    `differences` is as in `t_test`. 20,000 of the 2^queries ways to swap are drawn from a fixed seed, the
    same for every pair of runs. The observed one is counted as one more, so that p is never 0 (Smucker, Allan
    and Carterette, CIKM 2007; Phipson and Smyth, Statistical Applications in Genetics and Molecular Biology
    9(1), 2010).
    """
    n_queries, n_pairs = differences.shape
    generator = np.random.default_rng(SEED)
    totals = differences.sum(axis=0)
    spread = np.abs(differences).sum(axis=0)
    observed = np.abs(totals) - 1e-12 * spread  # minus the rounding of sums in another order
    extreme = np.zeros(n_pairs)
    rows = max(BLOCK_SWAPS // max(n_queries, 1), 1)
    for start in range(0, PERMUTATIONS, rows):
        block = min(rows, PERMUTATIONS - start)
        bits = np.unpackbits(np.frombuffer(generator.bytes(block * -(-n_queries // 8)), dtype=np.uint8))
        swapped = bits.reshape(block, -1)[:, :n_queries].astype(np.float64) @ differences
        extreme += (np.abs(totals - 2 * swapped) >= observed).sum(axis=0)
    p: Float64 = (1 + extreme) / (1 + PERMUTATIONS)
    return p


def holm(p_values: Float64) -> Float64:
    """p-values, float64 [tests], corrected for multiple tests (Holm, Scand. J. Statistics 6(2), 1979).

    A corrected value is below a level if and only if Holm's step-down method rejects that test at the level.
    """
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty_like(p_values)
    corrected[order] = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
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
