"""Pairs of suites: tests and intervals of the differences of their macro means, and of each collection's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.equivalence import macro_equivalence, macro_wilcoxon
from pipeline.metrics.macro import (
    HALF_A_VALUE,
    Strata,
    macro,
    macro_intervals,
    macro_shown,
    macro_t_test,
    resampled_macro,
    weighted_values,
)
from pipeline.metrics.noninferiority import ROUNDING
from pipeline.metrics.paired import SAME
from pipeline.metrics.randomization import randomize
from pipeline.metrics.statistics import CONFIDENCE, MIN_QUERIES, ends, holm, shown_intervals, t_test
from pipeline.results.correction import Correction
from pipeline.results.pairs import (
    LEVEL,
    Pair,
    PairTests,
    equivalence_figures,
    power_figures,
    query_differences,
    simultaneous_interval,
)


@dataclass(frozen=True)
class CollectionDifference:
    """A pair on one collection.

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
class SuitePair(Pair):
    """Two results of a suite, by their macro means.

    Attributes are those of `Pair`, of macro means: intervals by Student's t and the t-test with
    Satterthwaite's degrees of freedom, randomizations within collections, and Wilcoxon's ranks within them.
    `wins`, `ties` and `losses` count collections. Effect size, detectable difference and queries needed are
    those of one collection of all the queries that has the standard error of the macro mean.

    Attributes:
        collections: The pair on each collection.
    """

    collections: tuple[CollectionDifference, ...] = ()


def compare_suite_pairs(
    names: Sequence[str],
    collections: Sequence[str],
    strata: Strata,
    weights: Float64,
    pairs: Sequence[tuple[int, int]],
    correction: Correction,
    margin: float | None = None,
) -> list[SuitePair]:
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
    made = macro(differences, weights)
    intervals = [ends(low, high) for low, high in zip(*macro_intervals(differences, weights), strict=True)]
    tests = _tests(strata, weights, pairs, differences)
    shown = tests.decisive(correction) < LEVEL
    signed_ranks = macro_wilcoxon(differences, weights)
    equivalences: list[dict[str, Any]] = [{}] * len(pairs)
    if margin is not None:
        enough = made.freedom >= MIN_QUERIES - 1 - ROUNDING
        equivalences = equivalence_figures(macro_equivalence(differences, weights, margin), enough)
    queries = sum(map(len, strata))
    reaches = _reaches(strata, pairs, differences, weights, correction)
    alone = _on_each(collections, strata, pairs, differences)
    compared = []
    for i, (a, b) in enumerate(pairs):
        low, high = intervals[i] or (None, None)
        together: tuple[float | None, float | None] = (None, None)
        if intervals[i] and len(pairs) > 1 and correction is not Correction.bh:
            together = simultaneous_interval(float(made.means[i]), float(reaches[i]), bool(shown[i]))
        signs = [_sign(each.difference) for each in alone[i]]
        compared.append(
            SuitePair(
                a=names[a],
                b=names[b],
                difference=float(made.means[i]),
                ci_low=low,
                ci_high=high,
                simultaneous_low=together[0],
                simultaneous_high=together[1],
                **tests.of(i),
                shown=bool(shown[i]),
                wins=signs.count(1),
                ties=signs.count(0),
                losses=signs.count(-1),
                **power_figures(float(made.means[i]), float(made.errors[i]), queries),
                p_wilcoxon=float(signed_ranks[i]),
                **equivalences[i],
                collections=tuple(alone[i]),
            )
        )
    return compared


def _tests(
    strata: Strata, weights: Float64, pairs: Sequence[tuple[int, int]], differences: Strata
) -> PairTests:
    """The tests of macro means; without the reach of simultaneous intervals, which is `_reaches`."""
    p_ttest = macro_t_test(differences, weights)
    nothing = np.zeros(len(pairs), dtype=bool)
    randomized = randomize(
        weighted_values(strata, weights), pairs, weighted_values(differences, weights), nothing
    )
    return PairTests.corrected(p_ttest, randomized)


def _reaches(
    strata: Strata,
    pairs: Sequence[tuple[int, int]],
    differences: Strata,
    weights: Float64,
    correction: Correction,
) -> Float64:
    """float64 [pairs]: how far simultaneous intervals reach on either side.

    Bonferroni's is t at 1 - 0.05 / (2 · pairs). MaxT's is the 95% quantile, over resamples, of the largest
    |M* - M| / standard error among all pairs, widened as t is against the normal distribution.
    """
    from scipy.special import ndtri, stdtrit

    made, widened = macro(differences, weights), macro(differences, weights, HALF_A_VALUE)
    known = macro_shown(differences, weights)
    freedom = np.where(known, widened.freedom, 1)
    bonferroni: Float64 = stdtrit(freedom, 1 - LEVEL / (2 * len(pairs))) * widened.errors
    if correction is Correction.holm or not known.any():
        return bonferroni
    drawn = resampled_macro(strata, weights)
    largest = np.zeros(len(drawn))
    for i in np.flatnonzero(known & (made.errors > 0)).tolist():
        a, b = pairs[i]
        np.maximum(largest, np.abs(drawn[:, a] - drawn[:, b] - made.means[i]) / made.errors[i], out=largest)
    single: Float64 = stdtrit(freedom, (1 + CONFIDENCE) / 2)
    quantile: Float64 = np.quantile(largest, CONFIDENCE) * single / ndtri((1 + CONFIDENCE) / 2)
    by_maxt = np.maximum(quantile, single) * widened.errors
    return by_maxt if correction is Correction.maxt else np.maximum(by_maxt, bonferroni)


def _on_each(
    collections: Sequence[str], strata: Strata, pairs: Sequence[tuple[int, int]], differences: Strata
) -> list[list[CollectionDifference]]:
    """For each pair its tests on every collection, corrected for the number of collections."""
    nothing = np.zeros(len(pairs), dtype=bool)
    p_ttest = np.stack([t_test(values) for values in differences])
    p_randomization = np.stack(
        [randomize(values, pairs, each, nothing).p for values, each in zip(strata, differences, strict=True)]
    )
    intervals = [shown_intervals(values) for values in differences]
    made = []
    for i in range(differences[0].shape[1]):
        corrected = holm(np.maximum(p_ttest[:, i], p_randomization[:, i]))
        made.append(
            [
                CollectionDifference(
                    collection=name,
                    difference=float(differences[c][:, i].mean()),
                    ci_low=(intervals[c][i] or (None, None))[0],
                    ci_high=(intervals[c][i] or (None, None))[1],
                    p_ttest=float(p_ttest[c, i]),
                    p_randomization=float(p_randomization[c, i]),
                    p_holm=float(corrected[c]),
                    shown=bool(corrected[c] < LEVEL),
                )
                for c, name in enumerate(collections)
            ]
        )
    return made


def _sign(difference: float) -> int:
    """1, 0 or -1; means that differ by rounding alone are equal."""
    return 0 if abs(difference) <= SAME else 1 if difference > 0 else -1
