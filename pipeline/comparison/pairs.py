"""Pairs of results: tests and intervals of the differences of their means over strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt

import numpy as np

from pipeline.comparison import Correction
from pipeline.comparison.inputs import Places
from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.paired import LEVEL, SAME, holm, larger_p, paired_differences, solve_power
from pipeline.metrics.resampling import equivalence, randomize, resampled_means
from pipeline.metrics.statistics import (
    CONFIDENCE,
    MIN_QUERIES,
    Ends,
    Estimate,
    Strata,
    estimate,
)


@dataclass(frozen=True)
class CollectionDifference:
    """A pair on one collection of several.

    Attributes:
        collection: Its name.
        difference: Mean of a minus mean of b.
        ci_low, ci_high: Ends of the difference's 95% interval; None where none is shown.
        p_ttest, p_randomization: Of the two-sided paired tests, not corrected.
        p_holm: The larger of the two (`larger_p`), by Holm's correction over all collections and pairs.
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


def deciding_p(pair: Pair, correction: Correction) -> float:
    """The corrected p that decides whether the difference is shown."""
    if correction is Correction.both:
        return max(pair.p_holm, pair.p_maxt)
    return {Correction.holm: pair.p_holm, Correction.maxt: pair.p_maxt, Correction.bh: pair.p_bh}[correction]


def compare_pairs(
    names: Sequence[str],
    collections: Mapping[str, Float64],
    strata: Strata,
    weights: Float64,
    pairs: Places,
    correction: Correction,
    margin: float | None = None,
    highest: float = inf,
    most_lost: float = 1.0,
) -> list[Pair]:
    """Test pairs of results.

    Args:
        names: Of the results.
        collections: For each collection, by name, float64 [queries, results].
        strata: The same as strata of independent queries, which `by_query` makes.
        weights: float64 [strata].
        pairs: Positions of the two results of each pair.
        correction: What decides which differences are shown.
        margin: Within which two results count as equally good; None tests none.
        highest: The highest value of the measure; infinite where there is none.
        most_lost: How much a query can lose.
    """
    if not pairs:
        return []
    from scipy.stats import false_discovery_control

    first, second = np.array(pairs).T
    differences = [paired_differences(values.take(first, 1), values.take(second, 1)) for values in strata]
    made = estimate(differences, weights, low=-highest, high=highest)
    randomized = randomize(strata, pairs, differences, made.shown, weights)
    p_values = {
        "p_ttest": made.p,
        "p_randomization": randomized.p,
        "p_holm": holm(made.p),
        "p_maxt": randomized.p_maxt,
        # tests of pairs that share a result depend on each other, where this one is an approximation
        # (Benjamini and Yekutieli, Annals of Statistics 29(4), 2001)
        "p_bh": false_discovery_control(made.p),
    }
    deciding = ["p_holm", "p_maxt"] if correction is Correction.both else [f"p_{correction.value}"]
    shown = np.max([p_values[name] for name in deciding], axis=0) < LEVEL
    together: list[Ends] = [(None, None)] * len(pairs)
    if len(pairs) > 1 and correction is not Correction.bh:
        together = _simultaneous(strata, pairs, made, weights, correction, randomized.reach, shown, highest)
    p_equivalent: list[float | None] = [None] * len(pairs)
    if margin is not None:
        p_equivalent = holm(equivalence(differences, margin, weights, most_lost)).tolist()
    queries = sum(map(len, strata))
    deviations = made.errors * sqrt(queries)
    varies = deviations > 0
    effects = np.divide(made.means, deviations, out=np.full(len(pairs), np.nan), where=varies)
    detectable = solve_power(np.nan, queries, LEVEL / 2) * np.where(varies, deviations, 1)
    needed = solve_power(np.abs(effects), np.nan, LEVEL / 2)
    alone: list[tuple[CollectionDifference, ...]] = [()] * len(pairs)
    units = differences[0]
    if any(collections):  # a result of one collection has no name for it
        on_each = {
            name: paired_differences(values.take(first, 1), values.take(second, 1))
            for name, values in collections.items()
        }
        alone = _on_each(collections, pairs, on_each, highest)
        units = np.stack([each.mean(axis=0) for each in on_each.values()])
    signs = np.sign(np.where(np.abs(units) <= SAME, 0, units))
    wins, ties, losses = ((signs == sign).sum(axis=0).tolist() for sign in (1, 0, -1))
    return [
        Pair(
            a=names[a],
            b=names[b],
            difference=float(made.means[i]),
            ci_low=made.ends[i][0],
            ci_high=made.ends[i][1],
            simultaneous_low=together[i][0],
            simultaneous_high=together[i][1],
            **{name: values.item(i) for name, values in p_values.items()},
            shown=bool(shown[i]),
            wins=wins[i],
            ties=ties[i],
            losses=losses[i],
            effect_size=float(effects[i]) if varies[i] else None,
            detectable=float(detectable[i]) if varies[i] else None,
            queries_needed=int(needed[i]) if isfinite(needed[i]) else None,
            p_equivalent=(p := p_equivalent[i]),
            equivalent=None if p is None else queries >= MIN_QUERIES and p < LEVEL,
            collections=alone[i],
        )
        for i, (a, b) in enumerate(pairs)
    ]


def _simultaneous(
    strata: Strata,
    pairs: Places,
    made: Estimate,
    weights: Float64,
    correction: Correction,
    reach_of_one: float,
    shown: BoolArray,
    highest: float,
) -> list[Ends]:
    """Simultaneous intervals of the differences.

    Bonferroni's is t at 1 - 0.05 / (2 · pairs). MaxT's is `reach_of_one`, of the randomizations, for one
    collection. For several it is the 95% quantile, over resamples, of the largest |M* - M| / standard error
    among all pairs, widened as t is against the normal distribution.
    """
    from scipy.special import ndtri, stdtrit

    freedom = np.where(made.shown, made.wide_freedom, 1)
    reach: Float64 = stdtrit(freedom, 1 - LEVEL / (2 * len(pairs))) * made.wide_errors
    if correction is not Correction.holm and made.shown.any():
        by_maxt = reach_of_one * made.errors
        if len(strata) > 1:
            drawn, usable = resampled_means(strata, weights), made.shown & (made.errors > 0)
            first, second = np.array(pairs)[usable].T
            off = np.abs(drawn[:, first] - drawn[:, second] - made.means[usable]) / made.errors[usable]
            single = stdtrit(freedom, (1 + CONFIDENCE) / 2)
            quantile = np.quantile(off.max(axis=1, initial=0), CONFIDENCE) * single
            by_maxt = np.maximum(quantile / ndtri((1 + CONFIDENCE) / 2), single) * made.wide_errors
        reach = by_maxt if correction is Correction.maxt else np.maximum(by_maxt, reach)
    # the stepwise tests can decide otherwise where 0 is near an end: steps after the first are corrected for
    # fewer pairs, and a randomization changes signs of differences with their means. Then the end moves to 0
    low, high = np.clip([made.means - reach, made.means + reach], -highest, highest)
    above = made.means > 0
    low = np.where(shown, np.where(above, np.maximum(low, 0), low), np.minimum(low, 0))
    high = np.where(shown, np.where(above, high, np.minimum(high, 0)), np.maximum(high, 0))
    ends = zip(made.shown.tolist(), low.tolist(), high.tolist(), strict=True)
    return [(start, end) if known else (None, None) for known, start, end in ends]


def _on_each(
    collections: Mapping[str, Float64], pairs: Places, differences: Mapping[str, Float64], highest: float
) -> list[tuple[CollectionDifference, ...]]:
    """For each pair its tests on every collection, corrected for the number of collections and pairs."""
    made = [estimate([values], low=-highest, high=highest) for values in differences.values()]
    nothing = np.zeros(len(pairs), dtype=bool)
    by_chance = [
        randomize([values], pairs, [differences[name]], nothing).p for name, values in collections.items()
    ]
    larger = larger_p(np.array([each.p for each in made]), np.array(by_chance))
    corrected = holm(larger.ravel()).reshape(larger.shape)
    return [
        tuple(
            CollectionDifference(
                collection=name,
                difference=float(made[c].means[i]),
                ci_low=made[c].ends[i][0],
                ci_high=made[c].ends[i][1],
                p_ttest=float(made[c].p[i]),
                p_randomization=float(by_chance[c][i]),
                p_holm=float(corrected[c, i]),
                shown=bool(corrected[c, i] < LEVEL),
            )
            for c, name in enumerate(collections)
        )
        for i in range(len(pairs))
    ]
