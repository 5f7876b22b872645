"""Pairs of a comparison: tests and intervals of their differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, sqrt
from typing import Any

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.equivalence import equivalence, wilcoxon
from pipeline.metrics.noninferiority import detectable_effect, queries_for_power
from pipeline.metrics.paired import with_ties
from pipeline.metrics.randomization import Randomized, randomize
from pipeline.metrics.statistics import (
    MIN_QUERIES,
    benjamini_hochberg,
    enough_spread,
    holm,
    mean_and_error,
    shown_intervals,
    t_quantile,
    t_test,
)
from pipeline.results.correction import Correction

LEVEL = 0.05
"""A difference counts as shown where its corrected p is below this."""
MANY = 1000
"""From so many queries on, a disagreement of Wilcoxon's test and the t-test is noted."""


@dataclass(frozen=True)
class Pair:
    """Two results, query by query.

    Attributes:
        a, b: Their names.
        difference: Mean of a minus mean of b.
        ci_low, ci_high: Ends of the difference's 95% interval, as of this pair alone; None where none is
            shown.
        simultaneous_low, simultaneous_high: Ends of an interval which, together with those of all other
            pairs, holds the true differences with 95%. It excludes 0, or ends there, where the difference is
            shown, and only there. None where no interval is shown, with one pair, and with the correction
            `bh`, which has none.
        p_ttest, p_randomization: Of the two-sided paired tests, not corrected.
        p_holm: `p_ttest` by Holm's correction over all pairs.
        p_maxt: p of the randomization test over all pairs at once.
        p_bh: `p_ttest` by Benjamini and Hochberg's correction over all pairs.
        shown: Whether the difference counts as shown: the corrected p of the comparison is below 5%.
        wins, ties, losses: Queries where a has the higher value, the same, the lower.
        effect_size: The difference in standard deviations of the differences per query; None without spread.
        detectable: The smallest true difference that a t-test of this pair alone shows with 80% power, on as
            many queries of the same spread; None without spread.
        queries_needed: With how many queries it would show the difference found with 80% power; None where
            no number would do.
        p_wilcoxon: Two-sided, of Wilcoxon's signed rank test, not corrected.
        p_equivalent: Of the test that the true difference is within a margin, by Holm's correction over all
            pairs; None without a margin.
        equivalent: Whether that is shown: `p_equivalent` is below 5%, and there are queries enough.
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
    p_wilcoxon: float | None = None
    p_equivalent: float | None = None
    equivalent: bool | None = None


def tested_pairs(count: int, baseline: int | None) -> list[tuple[int, int]]:
    """The positions of the results of each pair that is tested: every two, or each with the baseline."""
    if baseline is None:
        return list(combinations(range(count), 2))
    return [(other, baseline) for other in range(count) if other != baseline]


def query_differences(values: Float64, pairs: Sequence[tuple[int, int]]) -> Float64:
    """float64 [queries, pairs]: the differences of columns of float64 [queries, results]; 0 for ties."""
    differences = np.empty((len(values), len(pairs)))
    for column, (a, b) in enumerate(pairs):
        differences[:, column] = values[:, a] - values[:, b]
    return with_ties(differences, np.abs(values).max(axis=1, keepdims=True))


def compare_pairs(
    names: Sequence[str],
    values: Float64,
    pairs: Sequence[tuple[int, int]],
    correction: Correction,
    margin: float | None = None,
) -> list[Pair]:
    """Test pairs of results.

    Args:
        names: Of the results.
        values: float64 [queries, results].
        pairs: Positions of the two results of each pair.
        correction: What decides which differences are shown.
        margin: Within which two results count as equally good; None tests none.
    """
    if not pairs:
        return []
    differences = query_differences(values, pairs)
    tests = _tests(values, pairs, differences)
    shown = tests.decisive(correction) < LEVEL
    means, errors = mean_and_error(differences)
    signed_ranks = wilcoxon(differences)
    equivalences: list[dict[str, Any]] = [{}] * len(pairs)
    if margin is not None:
        enough = np.full(len(pairs), len(values) >= MIN_QUERIES)
        equivalences = equivalence_figures(equivalence(differences, margin), enough)
    intervals = shown_intervals(differences)
    reaches = tests.reach(correction) * errors
    together = [
        simultaneous_interval(mean, reach, decided) if interval and reach and len(pairs) > 1 else (None, None)
        for mean, reach, decided, interval in zip(means, reaches, shown, intervals, strict=True)
    ]
    return [
        Pair(
            a=names[a],
            b=names[b],
            difference=float(means[i]),
            ci_low=(intervals[i] or (None, None))[0],
            ci_high=(intervals[i] or (None, None))[1],
            simultaneous_low=together[i][0],
            simultaneous_high=together[i][1],
            **tests.of(i),
            shown=bool(shown[i]),
            wins=int((differences[:, i] > 0).sum()),
            ties=int((differences[:, i] == 0).sum()),
            losses=int((differences[:, i] < 0).sum()),
            **power_figures(float(means[i]), float(errors[i]), len(values)),
            p_wilcoxon=float(signed_ranks[i]),
            **equivalences[i],
        )
        for i, (a, b) in enumerate(pairs)
    ]


def equivalence_figures(p_values: Float64, enough: BoolArray) -> list[dict[str, Any]]:
    """What is said of each pair's equivalence: float64 [pairs], and whether each has queries enough."""
    return [
        {"p_equivalent": p, "equivalent": bool(can and p < LEVEL)}
        for p, can in zip(holm(p_values).tolist(), enough, strict=True)
    ]


def many_queries_notes(pairs: Sequence[Pair], n_queries: int) -> Iterator[str]:
    """A warning of Wilcoxon's test where thousands of queries make it disagree with the t-test."""
    apart = [pair for pair in pairs if (pair.p_wilcoxon or 1) < LEVEL <= pair.p_ttest]
    if n_queries >= MANY and apart:
        named = ", ".join(f"{pair.a} - {pair.b}" for pair in apart)
        yield (
            f"{named}: Wilcoxon's test has p below {LEVEL}, the t-test has not; with {n_queries:,} queries "
            "the first finds differences that are not symmetric where the means are equal"
        )


def power_figures(mean: float, error: float, n_queries: int) -> dict[str, Any]:
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


@dataclass(frozen=True)
class PairTests:
    """p-values of pairs, float64 [pairs] each, and the reach of simultaneous intervals in standard errors."""

    p_ttest: Float64
    p_randomization: Float64
    p_holm: Float64
    p_maxt: Float64
    p_bh: Float64
    reach_maxt: float = 0.0
    reach_holm: float = 0.0

    @classmethod
    def corrected(cls, p_ttest: Float64, randomized: Randomized) -> PairTests:
        """The p-values with their corrections for the number of pairs; without reaches."""
        return cls(
            p_ttest=p_ttest,
            p_randomization=randomized.p,
            p_holm=holm(p_ttest),
            p_maxt=randomized.p_maxt,
            p_bh=benjamini_hochberg(p_ttest),
        )

    def of(self, number: int) -> dict[str, Any]:
        """The p-values of one pair, as the attributes of `Pair` that hold them."""
        names = ("p_ttest", "p_randomization", "p_holm", "p_maxt", "p_bh")
        return {name: float(getattr(self, name)[number]) for name in names}

    def decisive(self, correction: Correction) -> Float64:
        """The corrected p that decides what is shown."""
        if correction is Correction.both:
            return np.maximum(self.p_holm, self.p_maxt)
        return {Correction.holm: self.p_holm, Correction.maxt: self.p_maxt, Correction.bh: self.p_bh}[
            correction
        ]

    def reach(self, correction: Correction) -> float:
        """The reach that belongs to a correction; 0 where it has no simultaneous interval."""
        reaches = {Correction.holm: self.reach_holm, Correction.maxt: self.reach_maxt, Correction.bh: 0.0}
        return reaches.get(correction, max(self.reach_holm, self.reach_maxt))


def _tests(values: Float64, pairs: Sequence[tuple[int, int]], differences: Float64) -> PairTests:
    p_ttest = t_test(differences)
    randomized = randomize(values, pairs, differences, enough_spread(differences))
    return replace(
        PairTests.corrected(p_ttest, randomized),
        reach_maxt=randomized.reach,
        reach_holm=t_quantile(len(values), 1 - LEVEL / (2 * len(pairs))),  # Bonferroni's
    )


def simultaneous_interval(mean: float, reach: float, shown: bool) -> tuple[float, float]:
    """A simultaneous interval; where the stepwise tests decide otherwise, its end is moved to 0.

    They can do so where 0 is near its end: steps after the first are corrected for fewer pairs, and the
    randomization changes signs of differences with their means.
    """
    low, high = float(mean - reach), float(mean + reach)
    if shown:
        return (max(low, 0.0), high) if mean > 0 else (low, min(high, 0.0))
    return min(low, 0.0), max(high, 0.0)
