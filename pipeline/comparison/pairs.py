"""Pairs of results: tests and intervals of the differences of their means over strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np

from pipeline.comparison.inputs import PairIndices
from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.paired import (
    LEVEL,
    SAME,
    detectable_difference,
    holm,
    larger_p,
    most_lost_of,
    paired_differences,
    paired_tests,
    queries_needed,
)
from pipeline.metrics.statistics import MANY_OTHERS, ONE, Ends, Estimate, Strata


@dataclass(frozen=True)
class CollectionDifference:
    """A pair on one collection of several."""

    collection: str  # its name
    difference: float  # mean of a minus mean of b
    ci_low: float | None  # ci_low, ci_high: ends of the difference's 95% interval; None where none is shown
    ci_high: float | None
    p_ttest: float  # p_ttest, p_randomization: of the two-sided paired tests, not corrected
    p_randomization: float
    p_holm: float  # the larger of the two (`larger_p`), by Holm's correction over all collections and pairs
    shown: bool  # whether `p_holm` is below 5%
    fragile: bool  # as of `Pair`


@dataclass(frozen=True)
class Pair:
    """Two results, query by query.

    Of several collections, the means are macro means, the t-test has Satterthwaite's degrees of freedom,
    randomizations are within collections, and the spread is that of one collection of all the queries that
    has the standard error of the macro mean.
    """

    a: str  # a, b: their names
    b: str
    difference: float  # mean of a minus mean of b
    # ci_low, ci_high: Ends of the difference's 95% interval, of this pair alone; None where none is shown.
    ci_low: float | None
    ci_high: float | None
    # simultaneous_low, simultaneous_high: Ends of an interval which, together with those of all other pairs,
    # holds the true differences with 95%. It excludes 0, or ends there, where the difference is shown, and
    # only there. None where no interval is shown, and with one pair.
    simultaneous_low: float | None
    simultaneous_high: float | None
    p_ttest: float  # p_ttest, p_randomization: of the two-sided paired tests, not corrected
    p_randomization: float
    p_holm: float  # `p_ttest` by Holm's correction over all pairs
    shown: bool  # whether the difference counts as shown: `p_holm` and `p_randomization` are below 5%
    fragile: bool  # whether one unseen query that loses everything outweighs the interval
    # wins, ties, losses: Queries where a has the higher value, the same, the lower; of several collections,
    # the collections where it has the higher mean.
    wins: int
    ties: int
    losses: int
    spread: float  # standard deviation of the differences between queries
    # The smallest true difference that is shown with 80% power: by the t-test with Holm's correction for the
    # pairs that are not shown, this one among them. None where fewer than `MANY_OTHERS` differences are
    # unlike the most common one, as the spread is not known.
    detects: float | None
    queries_to_detect: int | None = None  # how many detect the difference that was asked for, if one was
    collections: tuple[CollectionDifference, ...] = ()  # the pair on each collection, where there are several
    over_collections_low: float | None = None  # over_collections_low, _high: as of `over_collections`
    over_collections_high: float | None = None

    @property
    def deciding_p(self) -> float:
        """The larger p, which decides whether the difference is shown."""
        return max(self.p_holm, self.p_randomization)


def two_sided(pairs: int) -> str:
    """What a number of queries for a comparison assumes, as a clause."""
    return f"80% power, two-sided{f', corrected for {pairs} pairs' if pairs > 1 else ''}"


def compare_pairs(
    names: Sequence[str],
    collections: Mapping[str, Float64],
    strata: Strata,
    weights: Float64,
    pairs: PairIndices,
    highest: float = inf,
    detect: float | None = None,
    values: Float64 | None = None,
) -> list[Pair]:
    """Test pairs of results.

    Args:
        names: Of the results.
        collections: For each collection of a suite, by name, float64 [queries, results].
        strata: The same as strata of independent queries, which `pool_draws` makes.
        weights: float64 [strata].
        pairs: Positions of the two results of each pair.
        highest: The highest value of the measure; infinite where there is none: that of the pair counts.
        detect: A difference of which the number of queries that detect it is wanted.
        values: float64 [queries, results] of one collection, where a stratum has clusters of them.
    """
    if not pairs:
        return []
    first, second = np.array(pairs).T

    def apart(of_results: Float64) -> Float64:
        return paired_differences(of_results.take(first, 1), of_results.take(second, 1))

    differences = list(map(apart, strata))
    seen = np.max([values.max(axis=0) for values in strata], axis=0)
    most_lost = most_lost_of(highest, np.maximum(seen[first], seen[second]))
    estimates, p_randomization = paired_tests(differences, weights, most_lost)
    p_holm = holm(estimates.p)
    shown = np.maximum(p_holm, p_randomization) < LEVEL
    simultaneous = _simultaneous(estimates, shown, most_lost) if len(pairs) > 1 else [(None, None)]
    level = LEVEL / 2 / np.maximum((~shown).sum() + shown, 1)
    detects = detectable_difference(estimates.wide_errors, estimates.wide_freedom, level)
    detects[estimates.others < MANY_OTHERS] = inf
    spreads = estimates.errors * sqrt(sum(map(len, strata)))
    needed = np.full(len(pairs), inf)
    if detect is not None:
        wide = estimates.wide_errors * sqrt(sum(map(len, strata)))
        effects = np.divide(detect, wide, out=np.zeros(len(pairs)), where=np.isfinite(detects))
        needed = queries_needed(effects, LEVEL / 2 / len(pairs))
    per_collection: list[tuple[CollectionDifference, ...]] = [()] * len(pairs)
    units = differences[0] if values is None else apart(values)
    if collections:
        by_collection = {name: apart(values) for name, values in collections.items()}
        per_collection = _per_collection(by_collection, most_lost)
        units = np.stack([values.mean(axis=0) for values in by_collection.values()])
    columns = _columns(estimates, p_randomization, p_holm, shown) | {
        "simultaneous_low": [low for low, _ in simultaneous],
        "simultaneous_high": [high for _, high in simultaneous],
        "wins": (units > SAME).sum(axis=0).tolist(),
        "ties": (np.abs(units) <= SAME).sum(axis=0).tolist(),
        "losses": (units < -SAME).sum(axis=0).tolist(),
        "spread": spreads.tolist(),
        "detects": known(detects),
        "queries_to_detect": known(needed, int),
        "collections": per_collection,
    }
    return [Pair(names[a], names[b], **row) for (a, b), row in zip(pairs, rows_of(columns), strict=True)]


def _columns(
    estimates: Estimate, p_randomization: Float64, p_holm: Float64, shown: BoolArray
) -> dict[str, list[Any]]:
    """What a pair has on one collection and on all, by attribute: a value for each pair."""
    return {
        "difference": estimates.means.tolist(),
        "ci_low": [low for low, _ in estimates.ends],
        "ci_high": [high for _, high in estimates.ends],
        "p_ttest": estimates.p.tolist(),
        "p_randomization": p_randomization.tolist(),
        "p_holm": p_holm.tolist(),
        "shown": shown.tolist(),
        "fragile": estimates.fragile.tolist(),
    }


def known(values: Float64, kind: type[Any] = float) -> list[Any]:
    """Numbers as Python has them; None for those that are not finite."""
    return [kind(value) if isfinite(value) else None for value in values.tolist()]


def rows_of(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows of columns, as attributes by name."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _simultaneous(estimates: Estimate, shown: BoolArray, most_lost: Float64) -> list[Ends]:
    """Simultaneous intervals of the differences, by Bonferroni: each of 1 - 5% / pairs."""
    from scipy.special import stdtrit

    quantiles = stdtrit(np.maximum(estimates.wide_freedom, 1), 1 - LEVEL / len(shown) / 2)
    reach = quantiles * estimates.wide_errors
    # the tests can decide otherwise where 0 is near an end: later steps of Holm's are corrected for fewer
    # pairs, and randomizations may reach what the t-test does not. Then the end moves to 0
    low, high = np.clip([estimates.means - reach, estimates.means + reach], -most_lost, most_lost)
    above = estimates.means > 0
    low = np.where(shown, np.where(above, np.maximum(low, 0), low), np.minimum(low, 0))
    high = np.where(shown, np.where(above, high, np.minimum(high, 0)), np.maximum(high, 0))
    ends = zip(estimates.intervals, low.tolist(), high.tolist(), strict=True)
    return [(start, end) if interval else (None, None) for interval, start, end in ends]


def _per_collection(
    differences: Mapping[str, Float64], most_lost: Float64
) -> list[tuple[CollectionDifference, ...]]:
    """For each pair its tests on every collection, corrected for the number of collections and pairs."""
    estimates, randomized = zip(
        *(paired_tests([values], ONE, most_lost) for values in differences.values()), strict=True
    )
    larger = larger_p(np.array([each.p for each in estimates]), np.array(randomized))
    corrected = holm(larger.ravel()).reshape(larger.shape)
    tests = zip(differences, estimates, randomized, corrected, corrected < LEVEL, strict=True)
    by_collection = [
        [CollectionDifference(name, **row) for row in rows_of(_columns(*tested))] for name, *tested in tests
    ]
    return list(zip(*by_collection, strict=True))
