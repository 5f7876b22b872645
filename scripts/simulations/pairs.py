"""What `compare` says of pairs: rare losses, equally good runs, and what queries detect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import nctdtr, stdtrit
from scipy.stats import wilcoxon

from pipeline.comparison.pairs import Pair, compare_pairs
from pipeline.core.records import Float64
from pipeline.metrics import paired
from pipeline.metrics.paired import detectable_difference, queries_needed
from pipeline.metrics.statistics import MANY_OTHERS, ONE, Strata, estimate
from simulations.means import SUITES
from simulations.values import (
    DIFFERENCES,
    LEVEL,
    RUNS,
    Cell,
    Figure,
    Sampler,
    by_mark,
    covers,
    each_size,
    percent,
    rare,
    some_differ,
)

RARE_LOSSES = {
    "2% lose 0.9, others gain 0.018 ± 0.01": rare(0.02, 0.9, 0.01),
    "5% lose 0.5, others gain 0.026 ± 0.02": rare(0.05, 0.5, 0.02),
    "5% lose 0.5, others gain 0.026 ± 0.1": rare(0.05, 0.5, 0.1),
    "70% ties, 27% gain 0.078, 3% lose 0.7": rare(0.03, 0.7, 0, 0.7),
    "50% ties, 47% gain 0.051, 3% lose 0.8": rare(0.03, 0.8, 0, 0.5),
}
"""Differences with a mean of 0."""
FALSE_STAR = "false *; after: without ~"
MAX_T = "verdicts that MaxT would change"


def losses(samples: int) -> Iterator[Cell]:
    """Two results that are equally good, of which one loses much at few queries; a baseline and five such."""
    sizes = (25, 43, 100, 300)
    yield from each_size(((name, (draw, samples)) for name, draw in RARE_LOSSES.items()), _losses, sizes)
    yield from each_size([("five variants, 3% lose 0.6", (samples // 4,))], _variants, sizes[:3])


def _losses(draw: Sampler, samples: int, n_queries: int) -> list[Figure]:
    values = draw(samples, n_queries).T
    found = estimate([values], low=-1, high=1)
    reach = stdtrit(n_queries - 1, 0.975) * found.errors
    both = np.maximum(found.p, paired.randomization_test([values])) < LEVEL
    starred = percent(both)
    with np.errstate(invalid="ignore"):  # of samples that are all ties
        by_ranks = percent(wilcoxon(values, axis=0, method="asymptotic").pvalue < LEVEL)
    return [
        *by_mark("difference", np.abs(found.means) <= reach, covers(found.ends, 0), found.fragile),
        Figure("false *; before: the t-test alone", percent(found.p < LEVEL), starred),
        Figure("false *; before: Wilcoxon's test", by_ranks, starred),
        Figure(FALSE_STAR, starred, percent(both & ~found.fragile)),
    ]


def _variants(samples: int, n_queries: int) -> list[Figure]:
    false, silent = [], []
    pairs = [(number, 0) for number in range(1, 6)]
    for variants in rare(0.03, 0.6, 0.03)(samples * 5, n_queries).reshape(-1, 5, n_queries):
        values = np.vstack([np.zeros(n_queries), variants]).T
        tested = compare_pairs(list("abcdef"), {}, [values], ONE, pairs, 1)
        warnings = [pair.fragile for pair in tested if pair.shown]
        false.append(bool(warnings))
        silent.append(bool(warnings) and not any(warnings))
    return [Figure(FALSE_STAR, percent(false), percent(silent))]


def tests(samples: int) -> Iterator[Cell]:
    """Runs that are equally good: in how many comparisons any difference is shown that is none."""
    for name, draw in RUNS.items():
        for runs, n_queries in ((2, 10), (5, 14), (10, 43), (20, 43), (10, 200)):
            simulate = partial(_tests, draw, runs, (n_queries,), samples // 4)
            yield Cell(f"{runs} runs, {name}", str(n_queries), simulate)
        if draw is not some_differ:
            for runs, label in (
                (2, "25, 43 and 114"),
                (5, "25, 43 and 114"),
                (5, "13 of 50"),
                (5, "8 of 10"),
            ):
                yield Cell(
                    f"{runs} runs, {name}", label, partial(_tests, draw, runs, SUITES[label], samples // 4)
                )


def _tests(
    draw: Callable[[int, int], Float64], runs: int, sizes: tuple[int, ...], samples: int
) -> list[Figure]:
    better = 0.15 * (np.arange(runs) >= runs // 2) if draw is some_differ else np.zeros(runs)
    pairs, names = list(combinations(range(runs), 2)), [str(run) for run in range(runs)]
    truth, weights = [better[a] - better[b] for a, b in pairs], np.full(len(sizes), 1 / len(sizes))
    counts, changed = [], 0
    for _ in range(samples):
        strata = [draw(size, runs) for size in sizes]
        collections = {str(number): values for number, values in enumerate(strata)} if len(sizes) > 1 else {}
        tested = compare_pairs(names, collections, strata, weights, pairs)
        same = [pair for pair, true in zip(tested, truth, strict=True) if true == 0]
        ends = [(pair.simultaneous_low, pair.simultaneous_high) for pair in tested]
        missed = ~covers(ends, truth) & [low is not None for low, _ in ends]
        changed += max_t_changes(tested, strata, weights, pairs)
        counts.append(
            [
                any(pair.p_ttest < LEVEL for pair in same),
                any(pair.shown for pair in same),
                not missed.any(),
                any(each.shown for pair in same for each in pair.collections),
            ]
        )
    by_t, starred, held, on_one = map(percent, np.array(counts).T)
    figures = [Figure("any false *; before: t-tests", by_t, starred)]
    if runs > 2:
        figures.append(Figure("all simultaneous intervals held", "", held))
        figures.append(Figure(MAX_T, "", f"{100 * changed / samples / len(pairs):.1f}"))
    return figures + [Figure("any false * on a collection", "", on_one)] * (len(sizes) > 1)


def max_t_changes(
    tested: Sequence[Pair], strata: Strata, weights: Float64, pairs: Sequence[tuple[int, int]]
) -> int:
    """How many `*` go if randomizations, too, are corrected for all pairs: by step-down MaxT."""
    shown = np.array([pair.shown for pair in tested])
    if not shown.any():
        return 0
    first, second = np.array(pairs).T
    shares = weights / [len(values) for values in strata]
    changes = np.vstack(
        [share * (values[:, first] - values[:, second]) for values, share in zip(strata, shares, strict=True)]
    )
    scale = np.fmax(np.sqrt((changes**2).sum(axis=0)), 1e-12)
    observed = np.abs(changes.sum(axis=0)) / scale
    order = np.argsort(observed)
    generator = np.random.default_rng(1)  # as other figures are not to depend on it
    signs = generator.choice([-1.0, 1.0], (paired.PERMUTATIONS, len(changes)))
    highest = np.maximum.accumulate((np.abs(signs @ changes) / scale)[:, order], axis=1)
    reached = (highest >= observed[order] - 1e-12).sum(axis=0)
    p = np.empty(len(order))
    p[order[::-1]] = np.maximum.accumulate((1 + reached[::-1]) / (1 + len(signs)))
    return int((shown & (p >= LEVEL)).sum())


def detect(samples: int) -> Iterator[Cell]:
    """How often the difference is found that queries are said to detect: 80% is promised.

    With the true spread; then with that of a pilot of as many queries. Before, the number of queries was that
    of one uncorrected test, for the difference that a pilot had shown by chance.
    """
    cases = (
        (f"{name}, {n} pairs", (draw, n, samples)) for name, draw in DIFFERENCES.items() for n in (1, 15)
    )
    return each_size(cases, _detect)


def _detect(draw: Sampler, pairs: int, samples: int, n_queries: int) -> list[Figure]:
    level, deviation = LEVEL / 2 / pairs, float(draw(1000, 1000).std())
    size = float(detectable_difference(deviation / n_queries**0.5, n_queries - 1, level))
    drawn = (draw(samples, n_queries) + size).T
    p = np.maximum(estimate([drawn]).p * pairs, paired.randomization_test([drawn]))
    half = size / 2 / deviation  # which most pilots do not show
    true, uncorrected = queries_needed([half], level), queries_needed([half], LEVEL / 2)
    named = [f"{100 * _power([half], each, level).item():.1f}" for each in (uncorrected, true)]
    figures = [
        Figure("true spread: found", "", percent(p < LEVEL)),
        Figure("true spread and difference: power of the number; before: uncorrected", *named),
    ]
    pilots = estimate([draw(samples, n_queries).T + size / 2])
    known = pilots.others >= MANY_OTHERS  # else nothing is named
    if known.mean() <= 0.05:
        return figures
    spreads = pilots.errors * n_queries**0.5 / deviation
    differences = detectable_difference(spreads[known] / n_queries**0.5, n_queries - 1, level)
    figures.append(
        Figure("pilot: power of the difference", "", percent(_power(differences, n_queries, level)))
    )
    unsure = known & (pilots.p * pairs >= LEVEL)
    by_chance = np.abs(pilots.means[unsure]) / deviation / spreads[unsure]
    numbers = [queries_needed(by_chance, LEVEL / 2), queries_needed(half / spreads[known], level)]
    powers = [percent(_power(np.full(len(each), half), np.fmax(each, 2), level)) for each in numbers]
    close = [percent(np.abs(np.log(np.fmax(each, 2) / true)) < np.log(1.2)) for each in numbers]
    return [
        *figures,
        Figure("pilot: power of the number of queries", *powers),
        Figure("pilot: number within 20% of the true one", *close),
    ]


def _power(effects: ArrayLike, queries: ArrayLike, level: float) -> Float64:
    """Of one-sided t-tests at a level, of effects in standard deviations."""
    queries = np.minimum(queries, 1e6)
    below: Float64 = nctdtr(
        queries - 1, np.asarray(effects) * np.sqrt(queries), stdtrit(queries - 1, 1 - level)
    )
    return np.where(np.isnan(below), 1.0, 1 - below)
