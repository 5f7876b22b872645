"""Means over queries of one collection or several: standard errors, intervals and t-tests.

Arrays come as *strata*: for each collection float64 [queries, columns], with the same columns. Of several
collections the mean is the macro mean M = Σ w_c · m_c: m_c is the mean over the n_c queries of collection c,
and the weights w_c sum to 1. Queries are a sample of those that each collection could have; the collections
are fixed. So the variance of M is Σ w_c² · s_c² / n_c, s_c the standard deviation (n_c - 1) of collection c.

One collection is one stratum of weight 1: the degrees of freedom are n - 1, and every test and interval is
Student's.

Two rules keep intervals honest where the sample says little about the spread; `docs/evidence.md` has their
coverage, counted by `scripts/simulate_statistics.py`:

- Ties can hide spread, so `_with_hidden_spread` widens errors.
- An interval of which one unseen query that loses everything would move the mean by more than it reaches is
  marked as fragile. Values of 0 and 1 have Wilson's: `_score_intervals`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import BoolArray, Float64, Int64

CONFIDENCE = 0.95
ROUNDING = 1e-12
SHOWN_FROM = 5
"""Fewest queries of which a mean has an interval."""
MIN_QUERIES = 25
"""Smaller strata of queries that collections share are joined."""
MIN_COLLECTIONS = 8
"""Fewest collections that are taken for a sample of such collections."""
RULE_OF_THREE = 3
"""Collections with fewer values than this that differ from the most common one may hide spread: as many may
differ where none was seen (Hanley and Lippman-Hand, J. American Medical Association 249(13), 1983)."""
HALF_A_VALUE = 0.5
"""How many hidden values widen an interval: what Jeffreys' prior adds to a share of which none was seen
(Brown, Cai and DasGupta, Statistical Science 16(2), 2001)."""
MANY_OTHERS = 10
"""Fewest values that differ from the most common one where a gate resamples."""

Strata = Sequence[Float64]
ONE = np.ones(1)
"""The weights of a single collection."""
Interval = tuple[float, float] | None
"""The ends of an interval; None where none is shown."""
Ends = tuple[float, float] | tuple[None, None]
"""The same as two values."""


@dataclass(frozen=True)
class Estimate:
    """Means of columns, float64 [columns] each, with their errors, tests and intervals."""

    means: Float64  # m of each
    errors: Float64  # standard errors: the root of Σ w_c² · s_c² / n_c
    freedom: Float64  # degrees of freedom of the variance: `_pooled`
    wide_errors: Float64  # wide_errors, wide_freedom: the same with the spread that ties may hide
    wide_freedom: Float64
    # int [columns]: the values that differ from the most common one of their collection; of each collection
    # at most `MANY_OTHERS` are counted.
    others: Int64
    # Whether one unseen query that loses everything, where a query counts most, would move M by more than the
    # interval reaches; never of values of 0 and 1, and where no interval is shown.
    fragile: BoolArray
    # M ± t · wide error, t the quantile of Student's t; within the range. Of values that are all the lowest
    # or the highest of the range, `_score_intervals`.
    intervals: list[Interval]

    @property
    def ends(self) -> list[Ends]:
        """The ends of `intervals`, as two values of each."""
        return [interval or (None, None) for interval in self.intervals]

    @property
    def p(self) -> Float64:
        """Two-sided p of M = 0, float64 [columns].

        Of one collection of differences that of the paired t-test (Student 1908), as by
        `scipy.stats.ttest_rel`; of several that of M over its error (Welch, Biometrika 34, 1947). It is 1 for
        a column of zeros and where a collection has one query, as its spread is not known; 0 if all queries
        differ by exactly the same amount, as in SciPy.
        """
        from scipy.special import stdtr

        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stdtr(np.maximum(self.freedom, 1), -np.abs(self.means) / self.errors)
        return np.where((self.means != 0) & (self.freedom > 0), p, 1.0)


def estimate(
    strata: Strata,
    weights: Float64 = ONE,
    hidden: float = HALF_A_VALUE,
    low: ArrayLike = -inf,
    high: ArrayLike = inf,
) -> Estimate:
    """The mean of each column, its standard error, t-test and interval.

    Args:
        strata: For each collection float64 [queries, columns].
        weights: float64 [collections].
        hidden: How many values, hidden by ties, widen the errors.
        low: The lowest that values can be, float64 [columns] or one for all; infinite where there is none.
        high: The highest, which a lost query loses. Both clip intervals; with a `low` of 0, columns of one
            collection that hold `low` and `high` alone get Wilson's interval.
    """
    from scipy.special import stdtrit

    sizes = np.array([[len(values)] for values in strata])
    if not sizes.all():
        raise ValueError("no query to estimate a mean from")
    widest = np.max([np.abs(values).max(axis=0) for values in strata], axis=0)
    lowest, highest = (np.full(widest.shape, end, np.float64) for end in (low, high))
    means = weights @ np.stack([values.mean(axis=0) for values in strata])
    # values are divided by a power of two, so that no square is too large or too small for a float
    power = np.frexp(widest)[1]
    deviations = [np.ldexp(v, -power).std(axis=0, ddof=min(len(v) - 1, 1)) for v in strata]
    # the roots of each collection's part of the variance
    roots = np.ldexp(deviations, power) / np.sqrt(sizes) * weights[:, None]
    errors, freedom = _pooled(roots, sizes)
    # for intervals, with the spread that ties may hide; p takes `errors`
    wide_roots, others = _with_hidden_spread(roots, strata, weights, hidden)
    wide_errors, wide_freedom = _pooled(wide_roots, sizes)
    reach = stdtrit(np.maximum(wide_freedom, 1), (1 + CONFIDENCE) / 2) * wide_errors
    bounds = np.clip([means - reach, means + reach], lowest, highest)
    binary = (len(strata) == 1) & (lowest == 0) & (highest > 0) & np.isfinite(highest)
    binary &= ((strata[0] == 0) | (strata[0] == highest)).all(axis=0)
    if binary.any():
        bounds[:, binary] = _score_intervals(means[binary], highest[binary], len(strata[0]))
    lost = np.where(np.isfinite(highest), highest, widest)
    shown = bool(sizes.sum() >= SHOWN_FROM and sizes.min() > 1)
    fragile = (reach <= lost * np.max(weights[:, None] / sizes)) & ~binary & shown
    intervals: list[Interval] = [(start, end) if shown else None for start, end in bounds.T.tolist()]
    return Estimate(means, errors, freedom, wide_errors, wide_freedom, others.sum(axis=0), fragile, intervals)


def _score_intervals(means: Float64, highest: Float64, n_queries: int) -> Float64:
    """Wilson's score intervals of means of values that are all 0 or `highest`, float64 [2, columns].

    They hold those shares that the normal test with their own variance does not reject (Wilson, J. American
    Statistical Association 22(158), 1927; for few values recommended by Brown, Cai and DasGupta, Statistical
    Science 16(2), 2001). No other values within the range have a greater variance at the same mean, so they
    hold the mean no less often where a value between the ends was only not seen.
    """
    from scipy.special import ndtri

    squared = float(ndtri((1 + CONFIDENCE) / 2)) ** 2 / n_queries
    shares = means / highest
    centres = (shares + squared / 2) / (1 + squared)
    reach = np.sqrt(squared * shares * (1 - shares) + squared**2 / 4) / (1 + squared)
    return np.clip([centres - reach, centres + reach], 0, 1) * highest


def _with_hidden_spread(
    roots: Float64, strata: Strata, weights: Float64, hidden: float
) -> tuple[Float64, Int64]:
    """`roots` with the spread that ties may hide; and how many values differ from the most common one.

    A collection with fewer than `RULE_OF_THREE` values that differ is taken to have `hidden` more, at the
    distance of the widest range of values in any collection: that adds w_c² · hidden · range² / n_c² to the
    variance w_c² · s_c² / n_c, whose root is in `roots`. Both results are [collections, columns], the second
    int64, which counts at most `MANY_OTHERS` values.
    """
    others = np.zeros(roots.shape, np.int64)
    for row, values in enumerate(strata):
        n_queries, in_order = len(values), np.sort(values, axis=0)
        for j in range(min(MANY_OTHERS, n_queries)):
            # more than j differ unless, in order, two that are n - 1 - j places apart are equal
            others[row] += (in_order[: j + 1] != in_order[n_queries - 1 - j :]).all(axis=0)
    widest = np.max([np.ptp(values, axis=0) for values in strata], axis=0)
    sizes = np.array([[len(values)] for values in strata])
    few = others < RULE_OF_THREE
    return np.hypot(roots, few * widest * np.sqrt(hidden) * weights[:, None] / sizes), others


def _pooled(roots: Float64, sizes: Int64) -> tuple[Float64, Float64]:
    """Standard errors and degrees of freedom, float64 [columns] each.

    With v_c = w_c² · s_c² / n_c, an error is the root of Σ v_c, and its degrees of freedom are (Σ v_c)² / Σ
    v_c² / (n_c - 1) (Satterthwaite, Biometrics Bulletin 2(6), 1946); 0 where a collection has one query. The
    `roots` of v_c are float64 [collections, columns], the `sizes` n_c are int64 [collections, 1].
    """
    largest = roots.max(axis=0)
    variances = (roots / np.where(largest > 0, largest, 1)) ** 2
    errors = np.sqrt(variances.sum(axis=0)) * largest
    if len(sizes) == 1:
        return errors, np.full(errors.shape, float(sizes[0, 0] - 1))
    freedom = np.zeros(errors.shape)
    below = (variances**2 / np.maximum(sizes - 1, 1)).sum(axis=0)
    np.divide(variances.sum(axis=0) ** 2, below, out=freedom, where=(below > 0) & (sizes.min() > 1))
    freedom[(below == 0) & (sizes.min() > 1)] = (sizes - 1).sum()
    return errors, freedom


def draws_of(query_ids: Sequence[str], clusters: Sequence[str | None]) -> list[str | tuple[str]]:
    """What is drawn with each query: its cluster, where it has one, else the query itself."""
    if not clusters:
        return list(query_ids)
    pairs = zip(query_ids, clusters, strict=True)
    return [query if cluster is None else (cluster,) for query, cluster in pairs]


def pool_draws(
    strata: Strata, weights: Float64, ids: Sequence[Sequence[Hashable]], of_means: bool = False
) -> tuple[Strata, Float64]:
    """The same macro mean, as one over independent draws, where collections share queries or have clusters.

    One query id is one query, in whatever collections it is: translations of the same questions stand or fall
    together, and count as one draw. Their texts differ, so only ids can tell. Where unrelated collections use
    the same numbers as ids, all holds as well: their covariance is estimated and is near 0. It costs degrees
    of freedom, n - 1 in place of 2 (n - 1) for two collections of n queries: 1% in width at 50.

    A query of several collections adds z = Σ w_c / n_c · x_c to M. The queries that are in the same
    collections are a stratum. Strata of fewer than `MIN_QUERIES` queries are joined, as long as they are
    parts of a collection: of its other queries they differ only by what they are shared with.

    Queries of one cluster, such as paraphrases, have one id. The number of queries of a cluster is drawn with
    it, so a mean is a ratio of two sums. The error of a ratio is that of the sums of x - m_c (Cochran,
    *Sampling Techniques*, 1977, chapter 6), which `of_means` makes the values. Without it, ties stay 0 in
    differences.

    Args:
        strata: For each collection float64 [queries, columns].
        weights: float64 [collections].
        ids: For each collection those of its queries, or of what is drawn as a whole: `draws_of`.
        of_means: Whether the values are far from 0, as those of measures are.

    Returns:
        Strata and weights; those given, where no id is there twice.
    """
    rows_of: dict[Hashable, int] = {}
    rows = [np.array([rows_of.setdefault(query, len(rows_of)) for query in queries]) for queries in ids]
    if len(rows_of) == sum(map(len, rows)):
        return strata, weights
    clustered = of_means and any(len(set(one)) < len(one) for one in ids)
    means = [each.mean(axis=0) if clustered else np.zeros(each.shape[1]) for each in strata]
    strata = [each - mean for each, mean in zip(strata, means, strict=True)]
    values, counted = np.zeros((len(rows_of), strata[0].shape[1])), np.zeros((len(rows_of), 1))
    is_in = np.zeros((len(rows_of), len(strata)), dtype=bool)
    for number, (places, scores, weight) in enumerate(zip(rows, strata, weights, strict=True)):
        np.add.at(values, places, weight / len(places) * scores)
        np.add.at(counted, places, weight / len(places))
        is_in[places, number] = True
    patterns, stratum_of = np.unique(is_in, axis=0, return_inverse=True)
    stratum_of, sizes = stratum_of.ravel(), np.bincount(stratum_of.ravel())
    of_collections = is_in.sum(axis=0)
    smallest = np.where(patterns, of_collections, len(rows_of)).min(axis=1)
    is_part = np.where(patterns, of_collections, 0).max(axis=1) > sizes
    parts = sorted(np.flatnonzero(is_part).tolist(), key=sizes.__getitem__)
    joined: list[int] = []
    while parts and (
        sizes[parts[0]] < MIN_QUERIES
        or (joined and sizes[joined].sum() < min(MIN_QUERIES, smallest[joined].min()))
    ):
        joined.append(parts.pop(0))
    for part in joined:
        stratum_of[stratum_of == part] = joined[0]
    new_strata, new_weights = [], []
    for stratum in dict.fromkeys(stratum_of.tolist()):
        inside = stratum_of == stratum
        new_weights.append(float(counted[inside].sum()))
        new_strata.append(values[inside] * (inside.sum() / new_weights[-1]) + weights @ np.stack(means))
    return new_strata, np.array(new_weights)


def over_collections(
    means: Float64, low: ArrayLike = -inf, high: ArrayLike = inf
) -> tuple[list[Ends], Float64]:
    """95% intervals and tests of macro means where collections are a sample as well, of all such collections.

    Student's t over the means of the collections: their variance has that of the collections, and that of
    each one's queries. None of fewer than `MIN_COLLECTIONS`, and where the means do not vary.

    Args:
        means: float64 [collections, columns]; a group of collections that counts as one is one.
        low: The lowest that values can be, float64 [columns] or one for all.
        high: The highest.

    Returns:
        The ends of each; and float64 [columns], the two-sided p that the mean is 0, which is 1 without ends.
    """
    from scipy.special import stdtrit

    n_collections, columns = means.shape
    if n_collections < MIN_COLLECTIONS:
        return [(None, None)] * columns, np.ones(columns)
    over = estimate([means])
    reach = stdtrit(n_collections - 1, (1 + CONFIDENCE) / 2) * over.errors
    bounds = np.clip([over.means - reach, over.means + reach], low, high).T.tolist()
    varies = over.errors > ROUNDING * np.abs(means).max(axis=0)
    ends: list[Ends] = [
        (start, end) if known else (None, None) for known, (start, end) in zip(varies, bounds, strict=True)
    ]
    return ends, np.where(varies, over.p, 1.0)
