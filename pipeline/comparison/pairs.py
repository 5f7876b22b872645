"""Pairs of results: tests and intervals of the differences of their means over strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt

import numpy as np

from pipeline.comparison.inputs import PairIndices
from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.paired import LEVEL, SAME, holm, larger_p, paired_differences, queries_needed
from pipeline.metrics.resampling import randomize, resampled_means
from pipeline.metrics.statistics import CONFIDENCE, Ends, Estimate, Strata, estimate


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
    randomizations are within collections, and the queries needed are those of one collection of all the
    queries that has the standard error of the macro mean.

    Attributes:
        a, b: Their names.
        difference: Mean of a minus mean of b.
        ci_low, ci_high: Ends of the difference's 95% interval, of this pair alone; None where none is shown.
        simultaneous_low, simultaneous_high: Ends of an interval which, together with those of all other
            pairs, holds the true differences with 95%. It excludes 0, or ends there, where the difference is
            shown, and only there. None where no interval is shown, and with one pair.
        p_ttest, p_randomization: Of the two-sided paired tests, not corrected.
        p_holm: `p_ttest` by Holm's correction over all pairs.
        p_maxt: p of the randomization test over all pairs at once.
        shown: Whether the difference counts as shown: `p_holm` and `p_maxt` are below 5%.
        wins, ties, losses: Queries where a has the higher value, the same, the lower; of several collections,
            the collections where it has the higher mean.
        queries_needed: With how many queries a t-test of this pair alone would show the difference found with
            80% power; None where no number would do.
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
    shown: bool
    wins: int
    ties: int
    losses: int
    queries_needed: int | None = None
    collections: tuple[CollectionDifference, ...] = field(default=())

    @property
    def deciding_p(self) -> float:
        """The larger corrected p, which decides whether the difference is shown."""
        return max(self.p_holm, self.p_maxt)


def compare_pairs(
    names: Sequence[str],
    collections: Mapping[str, Float64],
    strata: Strata,
    weights: Float64,
    pairs: PairIndices,
    highest: float = inf,
) -> list[Pair]:
    """Test pairs of results.

    Args:
        names: Of the results.
        collections: For each collection of a suite, by name, float64 [queries, results].
        strata: The same as strata of independent queries, which `pool_shared_queries` makes.
        weights: float64 [strata].
        pairs: Positions of the two results of each pair.
        highest: The highest value of the measure; infinite where there is none.
    """
    if not pairs:
        return []
    first, second = np.array(pairs).T
    differences = [paired_differences(values.take(first, 1), values.take(second, 1)) for values in strata]
    estimates = estimate(differences, weights, low=-highest, high=highest)
    randomized = randomize(strata, pairs, differences, estimates.shown, weights)
    p_values = {
        "p_ttest": estimates.p,
        "p_randomization": randomized.p,
        "p_holm": holm(estimates.p),
        "p_maxt": randomized.p_maxt,
    }
    shown = np.maximum(p_values["p_holm"], p_values["p_maxt"]) < LEVEL
    simultaneous: list[Ends] = [(None, None)] * len(pairs)
    if len(pairs) > 1:
        simultaneous = _simultaneous(strata, pairs, estimates, weights, randomized.reach, shown, highest)
    deviations = estimates.errors * sqrt(sum(map(len, strata)))
    effects = np.divide(estimates.means, deviations, out=np.full(len(pairs), np.nan), where=deviations > 0)
    needed = queries_needed(np.abs(effects), LEVEL / 2)
    per_collection: list[tuple[CollectionDifference, ...]] = [()] * len(pairs)
    units = differences[0]
    if collections:
        by_collection = {
            name: paired_differences(values.take(first, 1), values.take(second, 1))
            for name, values in collections.items()
        }
        per_collection = _per_collection(collections, pairs, by_collection, highest)
        units = np.stack([values.mean(axis=0) for values in by_collection.values()])
    signs = np.sign(np.where(np.abs(units) <= SAME, 0, units))
    wins, ties, losses = ((signs == sign).sum(axis=0).tolist() for sign in (1, 0, -1))
    return [
        Pair(
            a=names[a],
            b=names[b],
            difference=float(estimates.means[i]),
            ci_low=estimates.ends[i][0],
            ci_high=estimates.ends[i][1],
            simultaneous_low=simultaneous[i][0],
            simultaneous_high=simultaneous[i][1],
            **{name: values.item(i) for name, values in p_values.items()},
            shown=bool(shown[i]),
            wins=wins[i],
            ties=ties[i],
            losses=losses[i],
            queries_needed=int(needed[i]) if isfinite(needed[i]) else None,
            collections=per_collection[i],
        )
        for i, (a, b) in enumerate(pairs)
    ]


def _simultaneous(
    strata: Strata,
    pairs: PairIndices,
    estimates: Estimate,
    weights: Float64,
    reach_of_one: float,
    shown: BoolArray,
    highest: float,
) -> list[Ends]:
    """Simultaneous intervals of the differences: the wider one of Bonferroni's and MaxT's.

    Bonferroni's is t at 1 - 0.05 / (2 · pairs). MaxT's is `reach_of_one`, of the randomizations, for one
    collection. For several it is the 95% quantile, over resamples, of the largest |M* - M| / standard error
    among all pairs, widened as t is against the normal distribution.
    """
    from scipy.special import ndtri, stdtrit

    freedom = np.where(estimates.shown, estimates.wide_freedom, 1)
    reach: Float64 = stdtrit(freedom, 1 - LEVEL / (2 * len(pairs))) * estimates.wide_errors
    if estimates.shown.any():
        by_maxt = reach_of_one * estimates.errors
        if len(strata) > 1:
            means, usable = resampled_means(strata, weights), estimates.shown & (estimates.errors > 0)
            first, second = np.array(pairs)[usable].T
            off = np.abs(means[:, first] - means[:, second] - estimates.means[usable])
            off /= estimates.errors[usable]
            single = stdtrit(freedom, (1 + CONFIDENCE) / 2)
            quantile = np.quantile(off.max(axis=1, initial=0), CONFIDENCE) * single
            by_maxt = np.maximum(quantile / ndtri((1 + CONFIDENCE) / 2), single) * estimates.wide_errors
        reach = np.maximum(by_maxt, reach)
    # the stepwise tests can decide otherwise where 0 is near an end: steps after the first are corrected for
    # fewer pairs, and a randomization changes signs of differences with their means. Then the end moves to 0
    low, high = np.clip([estimates.means - reach, estimates.means + reach], -highest, highest)
    above = estimates.means > 0
    low = np.where(shown, np.where(above, np.maximum(low, 0), low), np.minimum(low, 0))
    high = np.where(shown, np.where(above, high, np.minimum(high, 0)), np.maximum(high, 0))
    ends = zip(estimates.shown.tolist(), low.tolist(), high.tolist(), strict=True)
    return [(start, end) if known else (None, None) for known, start, end in ends]


def _per_collection(
    collections: Mapping[str, Float64], pairs: PairIndices, differences: Mapping[str, Float64], highest: float
) -> list[tuple[CollectionDifference, ...]]:
    """For each pair its tests on every collection, corrected for the number of collections and pairs."""
    estimates = [estimate([values], low=-highest, high=highest) for values in differences.values()]
    nothing = np.zeros(len(pairs), dtype=bool)
    randomized = [
        randomize([values], pairs, [differences[name]], nothing).p for name, values in collections.items()
    ]
    larger = larger_p(np.array([each.p for each in estimates]), np.array(randomized))
    corrected = holm(larger.ravel()).reshape(larger.shape)
    return [
        tuple(
            CollectionDifference(
                collection=name,
                difference=float(estimates[c].means[i]),
                ci_low=estimates[c].ends[i][0],
                ci_high=estimates[c].ends[i][1],
                p_ttest=float(estimates[c].p[i]),
                p_randomization=float(randomized[c][i]),
                p_holm=float(corrected[c, i]),
                shown=bool(corrected[c, i] < LEVEL),
            )
            for c, name in enumerate(collections)
        )
        for i in range(len(pairs))
    ]
