"""Pairs of results: tests and intervals of the differences of their means over strata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Any

import numpy as np

from pipeline.comparison import Correction
from pipeline.comparison.inputs import Places
from pipeline.core.records import Float64
from pipeline.metrics.paired import SAME, benjamini_hochberg, holm, with_ties
from pipeline.metrics.power import detectable_effect, queries_for_power
from pipeline.metrics.resampling import equivalence, randomize, resampled_means, weighted_values
from pipeline.metrics.statistics import (
    CONFIDENCE,
    HALF_A_VALUE,
    MIN_QUERIES,
    ROUNDING,
    Interval,
    Strata,
    estimate,
    has_interval,
    shown_intervals,
    t_test,
)

LEVEL = 0.05
"""A difference counts as shown where its corrected p is below this."""


@dataclass(frozen=True)
class CollectionDifference:
    """A pair on one collection of several.

    Attributes:
        collection: Its name.
        difference: Mean of a minus mean of b.
        ci_low, ci_high: Ends of the difference's 95% interval; None where none is shown.
        p_ttest, p_randomization: Of the two-sided paired tests, not corrected.
        p_holm: The larger of the two, by Holm's correction over the collections.
        shown: Whether `p_holm` is below 5%.
    """

    collection: str
    difference: float
    ci_low: float | None
    ci_high: float | None
    p_ttest: float
    p_randomization: float
    p_holm: float
    shown: bool


@dataclass(frozen=True)
class Pair:
    """Two results, query by query.

    Of several collections, the means are macro means, the t-test has Satterthwaite's degrees of freedom,
    randomizations and ranks are within collections, and effect size, detectable difference and queries needed
    are those of one collection of all the queries that has the standard error of the macro mean.

    Attributes:
        a, b: Their names.
        difference: Mean of a minus mean of b.
        ci_low, ci_high: Ends of the difference's 95% interval, of this pair alone; None where none is shown.
        simultaneous_low, simultaneous_high: Ends of an interval which, together with those of all other
            pairs, holds the true differences with 95%. It excludes 0, or ends there, where the difference is
            shown, and only there. None where no interval is shown, with one pair, and with the correction
            `bh`, which has none.
        p_ttest, p_randomization: Of the two-sided paired tests, not corrected.
        p_holm: `p_ttest` by Holm's correction over all pairs.
        p_maxt: p of the randomization test over all pairs at once.
        p_bh: `p_ttest` by Benjamini and Hochberg's correction over all pairs.
        shown: Whether the difference counts as shown: the corrected p of the comparison is below 5%.
        wins, ties, losses: Queries where a has the higher value, the same, the lower; of several collections,
            the collections where it has the higher mean.
        effect_size: The difference in standard deviations of the differences per query; None without spread.
        detectable: The smallest true difference that a t-test of this pair alone shows with 80% power, on as
            many queries of the same spread; None without spread.
        queries_needed: With how many queries it would show the difference found with 80% power; None where
            no number would do.
        p_equivalent: Of the test that the true difference is within a margin, by Holm's correction over all
            pairs; None without a margin.
        equivalent: Whether that is shown: `p_equivalent` is below 5%, and there are queries enough.
        collections: The pair on each collection, where there are several.
    """

    a: str
    b: str
    difference: float
    ci_low: float | None
    ci_high: float | None
    simultaneous_low: float | None
    simultaneous_high: float | None
    p_ttest: float
    p_randomization: float
    p_holm: float
    p_maxt: float
    p_bh: float
    shown: bool
    wins: int
    ties: int
    losses: int
    effect_size: float | None = None
    detectable: float | None = None
    queries_needed: int | None = None
    p_equivalent: float | None = None
    equivalent: bool | None = None
    collections: tuple[CollectionDifference, ...] = field(default=())


def query_differences(values: Float64, pairs: Places) -> Float64:
    """float64 [queries, pairs]: the differences of columns of float64 [queries, results]; 0 for ties."""
    differences = np.empty((len(values), len(pairs)))
    for column, (a, b) in enumerate(pairs):
        differences[:, column] = values[:, a] - values[:, b]
    return with_ties(differences, np.abs(values).max(axis=1, keepdims=True))


def compare_pairs(
    names: Sequence[str],
    collections: Sequence[str],
    strata: Strata,
    weights: Float64,
    pairs: Places,
    correction: Correction,
    margin: float | None = None,
) -> list[Pair]:
    """Test pairs of results.

    Args:
        names: Of the results.
        collections: Names of the collections.
        strata: For each collection float64 [queries, results].
        weights: float64 [collections].
        pairs: Positions of the two results of each pair.
        correction: What decides which differences are shown.
        margin: Within which two results count as equally good; None tests none.
    """
    if not pairs:
        return []
    differences = [query_differences(values, pairs) for values in strata]
    made = estimate(differences, weights)
    p_ttest = t_test(differences, weights)
    intervals = shown_intervals(differences, weights)
    with_interval = np.array([interval is not None for interval in intervals])
    randomized = randomize(
        weighted_values(strata, weights), pairs, weighted_values(differences, weights), with_interval
    )
    p_values: dict[str, Any] = {
        "p_ttest": p_ttest,
        "p_randomization": randomized.p,
        "p_holm": holm(p_ttest),
        "p_maxt": randomized.p_maxt,
        "p_bh": benjamini_hochberg(p_ttest),
    }
    deciding = ["p_holm", "p_maxt"] if correction is Correction.both else [f"p_{correction.value}"]
    shown = np.max([p_values[name] for name in deciding], axis=0) < LEVEL
    together: list[Interval] = [None] * len(pairs)
    if len(pairs) > 1 and correction is not Correction.bh:
        reaches = _reaches(strata, pairs, differences, weights, correction, randomized.reach)
        together = [
            _simultaneous(float(mean), float(reach), bool(decided)) if alone else None
            for mean, reach, decided, alone in zip(made.means, reaches, shown, intervals, strict=True)
        ]
    equivalent: list[dict[str, Any]] = [{}] * len(pairs)
    if margin is not None:
        corrected = holm(equivalence(differences, margin, weights)).tolist()
        enough = (made.freedom >= MIN_QUERIES - 1 - ROUNDING).tolist()
        equivalent = [
            {"p_equivalent": p, "equivalent": can and p < LEVEL}
            for p, can in zip(corrected, enough, strict=True)
        ]
    named = any(collections)  # a result of one collection has no name for it
    alone = _on_each(collections, strata, pairs, differences) if named else [()] * len(pairs)
    queries = sum(map(len, strata))
    compared = []
    for i, (a, b) in enumerate(pairs):
        signs = np.sign([each.difference if abs(each.difference) > SAME else 0 for each in alone[i]])
        if len(strata) == 1:
            signs = np.sign(differences[0][:, i])
        compared.append(
            Pair(
                a=names[a],
                b=names[b],
                difference=float(made.means[i]),
                ci_low=(intervals[i] or (None, None))[0],
                ci_high=(intervals[i] or (None, None))[1],
                simultaneous_low=(together[i] or (None, None))[0],
                simultaneous_high=(together[i] or (None, None))[1],
                **{name: values.item(i) for name, values in p_values.items()},
                shown=bool(shown[i]),
                wins=int((signs > 0).sum()),
                ties=int((signs == 0).sum()),
                losses=int((signs < 0).sum()),
                **_power(float(made.means[i]), float(made.errors[i]), queries),
                **equivalent[i],
                collections=alone[i],
            )
        )
    return compared


def _power(mean: float, error: float, n_queries: int) -> dict[str, Any]:
    """Effect size, smallest detectable difference and queries needed of a pair; nothing without spread."""
    if not error > 0:
        return {}
    deviation = error * sqrt(n_queries)
    needed = queries_for_power(abs(mean) / deviation, LEVEL / 2)
    return {
        "effect_size": mean / deviation,
        "detectable": detectable_effect(n_queries, LEVEL / 2) * deviation,
        "queries_needed": int(needed) if isfinite(needed) else None,
    }


def _reaches(
    strata: Strata,
    pairs: Places,
    differences: Strata,
    weights: Float64,
    correction: Correction,
    reach_of_one: float,
) -> Float64:
    """float64 [pairs]: how far simultaneous intervals reach on either side.

    Bonferroni's is t at 1 - 0.05 / (2 · pairs). MaxT's is `reach_of_one`, of the randomizations, for one
    collection. For several it is the 95% quantile, over resamples, of the largest |M* - M| / standard error
    among all pairs, widened as t is against the normal distribution.
    """
    from scipy.special import ndtri, stdtrit

    made, widened = estimate(differences, weights), estimate(differences, weights, HALF_A_VALUE)
    known = has_interval(differences, weights)
    freedom = np.where(known, widened.freedom, 1)
    bonferroni: Float64 = stdtrit(freedom, 1 - LEVEL / (2 * len(pairs))) * widened.errors
    if correction is Correction.holm or not known.any():
        return bonferroni
    if len(strata) == 1:
        by_maxt = reach_of_one * made.errors
    else:
        drawn = resampled_means(strata, weights)
        largest = np.zeros(len(drawn))
        for i in np.flatnonzero(known & (made.errors > 0)).tolist():
            a, b = pairs[i]
            off = np.abs(drawn[:, a] - drawn[:, b] - made.means[i])
            np.maximum(largest, off / made.errors[i], out=largest)
        single: Float64 = stdtrit(freedom, (1 + CONFIDENCE) / 2)
        quantile: Float64 = np.quantile(largest, CONFIDENCE) * single / ndtri((1 + CONFIDENCE) / 2)
        by_maxt = np.maximum(quantile, single) * widened.errors
    return by_maxt if correction is Correction.maxt else np.maximum(by_maxt, bonferroni)


def _simultaneous(mean: float, reach: float, shown: bool) -> tuple[float, float]:
    """A simultaneous interval; where the stepwise tests decide otherwise, its end is moved to 0.

    They can do so where 0 is near its end: steps after the first are corrected for fewer pairs, and the
    randomization changes signs of differences with their means.
    """
    low, high = mean - reach, mean + reach
    if shown:
        return (max(low, 0.0), high) if mean > 0 else (low, min(high, 0.0))
    return min(low, 0.0), max(high, 0.0)


def _on_each(
    collections: Sequence[str], strata: Strata, pairs: Places, differences: Strata
) -> list[tuple[CollectionDifference, ...]]:
    """For each pair its tests on every collection, corrected for the number of collections."""
    nothing = np.zeros(len(pairs), dtype=bool)
    p_ttest = np.stack([t_test([values]) for values in differences])
    p_randomization = np.stack(
        [randomize(values, pairs, each, nothing).p for values, each in zip(strata, differences, strict=True)]
    )
    corrected = np.stack([holm(p) for p in np.maximum(p_ttest, p_randomization).T], axis=1)
    intervals = [shown_intervals([values]) for values in differences]
    return [
        tuple(
            CollectionDifference(
                collection=name,
                difference=float(differences[c][:, i].mean()),
                ci_low=(intervals[c][i] or (None, None))[0],
                ci_high=(intervals[c][i] or (None, None))[1],
                p_ttest=float(p_ttest[c, i]),
                p_randomization=float(p_randomization[c, i]),
                p_holm=float(corrected[c, i]),
                shown=bool(corrected[c, i] < LEVEL),
            )
            for c, name in enumerate(collections)
        )
        for i in range(len(pairs))
    ]
