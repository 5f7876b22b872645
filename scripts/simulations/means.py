"""Intervals of means and of macro means: of one collection, of suites, of shared queries and of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np
from scipy.special import stdtrit

from pipeline.core.records import Float64, Int64
from pipeline.metrics import holm, paired, standings
from pipeline.metrics.statistics import ONE, estimate, over_collections, pool_draws
from pipeline.studies.gate.margin_tests import noninferiority
from simulations.values import (
    LEVEL,
    MARGIN,
    VALUES,
    Cell,
    Figure,
    Values,
    by_mark,
    covers,
    each_size,
    percent,
    random,
)


def intervals(samples: int) -> Iterator[Cell]:
    """Of a mean: t of all samples, and the intervals that are shown, by their mark."""
    cases = ((name, (values, samples)) for name, values in VALUES.items())
    return each_size(cases, _interval)


def _interval(values: Values, samples: int, n_queries: int) -> list[Figure]:
    drawn = values.draw(samples, n_queries).T
    found = estimate([drawn], low=values.low, high=values.high)
    by_t = np.abs(found.means - values.mean) <= stdtrit(n_queries - 1, 0.975) * found.errors
    return by_mark("mean", by_t, covers(found.ends, values.mean), found.fragile)


SUITES: dict[str, tuple[int, ...]] = {
    "2 of 25": (25, 25),
    "25, 43 and 114": (25, 43, 114),
    "10, 200 and 1,000": (10, 200, 1000),
    "8 of 10": (10,) * 8,
    "43, 114 and 300": (43, 114, 300),
    "13 of 50": (50,) * 13,
    "50, 100, 300, 648 and 1,000": (50, 100, 300, 648, 1000),
}
"""Numbers of queries of the collections."""
MIXED = [values for values in VALUES.values() if values.low == 0]
BATCH = 50  # samples that are drawn at once


def suites(samples: int) -> Iterator[Cell]:
    """Of macro means: t with Satterthwaite's degrees of freedom, and the intervals that are shown."""
    kinds = {name: [values] for name, values in VALUES.items()} | {"another in every collection": MIXED}
    for name, values in kinds.items():
        for label, sizes in SUITES.items():
            yield Cell(name, label, partial(_suite, values, sizes, samples))


def _suite(kinds: Sequence[Values], sizes: Sequence[int], samples: int) -> list[Figure]:
    chosen = [kinds[number % len(kinds)] for number in range(len(sizes))]
    truth, weights = float(np.mean([one.mean for one in chosen])), np.full(len(sizes), 1 / len(sizes))
    by_t, held, fragile = [], [], []
    for _ in range(-(-samples // BATCH)):
        strata = [one.draw(BATCH, size).T for one, size in zip(chosen, sizes, strict=True)]
        found = estimate(strata, weights, low=kinds[0].low, high=max(one.high for one in chosen))
        reach = stdtrit(np.maximum(found.freedom, 1), 0.975) * found.errors
        by_t.append(np.abs(found.means - truth) <= reach)
        held.append(covers(found.ends, truth))
        fragile.append(found.fragile)
    return by_mark("macro mean", *map(np.concatenate, (by_t, held, fragile)))


SHARED = {
    "26 translations of 25": (26, 25, True, False),
    "26 translations of 100": (26, 100, True, False),
    "3 translations of 43": (3, 43, True, False),
    "8 translations of 50, each lacks some": (8, 50, True, True),
    "3 of 43 with equal ids alone": (3, 43, False, False),
    "13 of 50 with equal ids alone": (13, 50, False, False),
}
"""Collections, queries, whether these are the same, and whether each collection lacks some of them."""


def shared(samples: int) -> Iterator[Cell]:
    """Collections that share their queries, as translations do, counted apart and by query.

    Values are nDCG-like: the difficulty of a question, which all collections share, and noise of each.
    """
    for label, (count, n_queries, alike, lacks) in SHARED.items():
        yield Cell(label, str(n_queries), partial(_shared, count, n_queries, alike, lacks, samples))


def _shared(count: int, n_queries: int, alike: bool, lacks: bool, samples: int) -> list[Figure]:
    weights, starts = np.full(count, 1 / count), [number * lacks for number in range(count)]
    ids = [[str(query) for query in range(start, n_queries)] for start in starts]
    means, differences = [], []
    effects = random.normal(0, 1, (2, n_queries, samples))  # of the questions, on either run
    for start in starts:
        difficulty = effects if alike else random.normal(0, 1, effects.shape)
        one, other = 1 / (1 + np.exp(-difficulty - 0.7 * random.normal(0, 1, effects.shape)))
        means.append(one[start:])
        differences.append((one - other)[start:])
    held, by_t, by_chance = [], [], []
    for pooled in (False, True):
        strata, shares = pool_draws(means, weights, ids) if pooled else (means, weights)
        found = estimate(strata, shares)
        reach = stdtrit(np.maximum(found.freedom, 1), 0.975) * found.errors
        held.append(percent(np.abs(found.means - 0.5) <= reach))
        strata, shares = pool_draws(differences, weights, ids) if pooled else (differences, weights)
        by_t.append(percent(estimate(strata, shares).p < LEVEL))
        few = [values[:, : max(samples // 4, 1)] for values in strata]
        by_chance.append(percent(paired.randomization_test(few, shares) < LEVEL))
    named = {"macro mean held": held, "false t-tests": by_t, "false randomization tests": by_chance}
    return [Figure(name, *both) for name, both in named.items()]


CLUSTERS: dict[str, Callable[[int], Int64]] = {
    "clusters of 26": lambda n: np.full(n, 26),
    "clusters of 1 to 9": lambda n: random.integers(1, 10, n),
    "clusters: one in ten of 30, others of 1": lambda n: np.where(random.random(n) < 0.1, 30, 1),
}
"""How many queries the clusters have."""


def clusters(samples: int) -> Iterator[Cell]:
    """Clusters of queries, as the questions of one document, counted apart and drawn; also by a gate.

    Values are nDCG-like: the difficulty of a cluster, and noise of each of its queries.
    """
    for label, sizes in CLUSTERS.items():
        for number in (30, 100):
            yield Cell(label, f"{number} clusters", partial(_clusters, sizes, number, samples))


def _clusters(sizes: Callable[[int], Int64], number: int, samples: int) -> list[Figure]:
    held, false, fragile, passes = [], [], [], []
    for _ in range(samples):
        ids = np.repeat(np.arange(number), sizes(number)).tolist()
        hard, apart = (np.repeat(random.normal(0, 1, number), np.bincount(ids)) for _ in range(2))
        noise = random.normal(0, 0.7, (2, len(ids)))
        ours, theirs = 1 / (1 + np.exp(-(hard + 0.5 * apart * [[1], [-1]] + noise)))
        values, differences = ours[:, None], (ours - theirs)[:, None]
        both = [([values], ONE), pool_draws([values], ONE, [ids], of_means=True)]
        found = [estimate(*one, low=0, high=1) for one in both]
        held.append([bool(covers(each.ends, 0.5)[0]) for each in found])
        fragile.append(bool(found[1].fragile[0]))
        both = [([differences], ONE), pool_draws([differences], ONE, [ids])]
        false.append([bool(estimate(*one).p[0] < LEVEL) for one in both])
        both = [([differences - MARGIN], ONE), pool_draws([differences - MARGIN], ONE, [ids])]
        passes.append([bool(noninferiority(one, np.full(1, MARGIN), each)[0] < LEVEL) for one, each in both])
    alone, clustered = np.array(held).T
    return [
        *by_mark("mean", alone, clustered, fragile),
        Figure("false t-tests", *map(percent, np.array(false).T)),
        Figure("false passes", *map(percent, np.array(passes).T)),
    ]


CENTRES: dict[str, Callable[[tuple[int, ...]], Float64]] = {
    "even": lambda size: random.uniform(0.2, 0.8, size),
    "skewed": lambda size: random.beta(1, 3, size).clip(0.01, 0.99),
    "15% are hard": lambda size: np.where(random.random(size) < 0.15, 0.1, 0.7),
}
"""Means of collections."""
STEPS = (0.0, 0.0, 0.0, 0.1, 0.1)
"""By how much runs are better than the first one, on average over all such collections."""


def collections(samples: int) -> Iterator[Cell]:
    """Macro means of all such collections, where these are a sample: over their queries, and over them too.

    The true means of collections are drawn, then their queries. Ranks are of five runs; how much better one
    is than another differs between collections.
    """
    for name, draw in CENTRES.items():
        for n_queries in (50, 300):
            for number in (8, 13, 26, 50):
                label = f"{number} collections of {n_queries}"
                yield Cell(
                    f"means of collections: {name}", label, partial(_over, draw, number, n_queries, samples)
                )
    for number in (8, 13, 26):
        for spread in (0.02, 0.1):
            label = f"{number} collections of 50"
            yield Cell(
                f"5 runs, differences ± {spread}", label, partial(_ranks, number, spread, samples // 2)
            )


def _over(
    draw: Callable[[tuple[int, ...]], Float64], number: int, n_queries: int, samples: int
) -> list[Figure]:
    truth, weights = float(draw((200_000,)).mean()), np.full(number, 1 / number)
    centres = draw((number, samples))
    strata = [random.beta(2 * each, 2 - 2 * each, (n_queries, samples)) for each in centres]
    of_these = estimate(strata, weights, low=0, high=1).ends
    ends, _ = over_collections(np.stack([values.mean(axis=0) for values in strata]), 0, 1)
    return [
        Figure(
            "mean of all such collections held", *(percent(covers(one, truth)) for one in (of_these, ends))
        )
    ]


def _ranks(number: int, spread: float, samples: int) -> list[Figure]:
    pairs, steps = list(combinations(range(len(STEPS)), 2)), np.array(STEPS)
    first, second = np.array(pairs).T
    true = [1 + int((steps > step).sum()) for step in steps]
    held: tuple[list[bool], list[bool]] = [], []
    for _ in range(samples):
        centres = random.uniform(0.3, 0.6, (number, 1)) + random.normal(steps, spread, (number, len(steps)))
        noise = random.normal(0, 0.25, (50, number, 1)) + random.normal(0, 0.1, (50, number, len(steps)))
        values = centres + noise  # float64 [queries, collections, runs]
        units, apart = values.mean(axis=0), values[..., first] - values[..., second]
        means = units.mean(axis=0).tolist()
        of_these = estimate(list(apart.transpose(1, 0, 2)), np.full(number, 1 / number)).p
        _, over = over_collections(units[:, first] - units[:, second])
        for p, right in zip((of_these, over), held, strict=True):
            shown = [pair for pair, corrected in zip(pairs, holm(p), strict=True) if corrected < LEVEL]
            better = [(a, b) if means[a] > means[b] else (b, a) for a, b in shown]
            ranks = standings(means, better)[1]
            right.append(all(low <= rank <= high for rank, (low, high) in zip(true, ranks, strict=True)))
    return [Figure("all ranks by all such collections held", *map(percent, held))]
