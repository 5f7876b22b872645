#!/usr/bin/env python3
"""Simulates what the intervals and tests of `benchmarco compare` promise, and prints Markdown tables.

    .venv/bin/python scripts/simulate_statistics.py                     # every part: some minutes
    .venv/bin/python scripts/simulate_statistics.py intervals --samples 2000

`intervals` draws values per query from known distributions and counts how often the 95% interval of the mean
holds the true one.
`losses` compares results that are equally good, of which one loses much at few queries.
`detect` counts how often the difference is found that so many queries are said to detect.
`tests` compares runs that are equally good and counts comparisons in which a difference is shown.
`suites` does both for macro means: intervals of several collections, and comparisons of equally good runs.
`shared` does the same for collections that share their queries, as translations do.
`gate` gates runs that are worse by exactly the margin, and runs that are equally good, and counts verdicts,
by t alone, by default and with `--guarantee`.
`rare` gates results of which few queries lose much, and `many_gates` gates many on the same queries.
`clusters` draws queries in clusters, as the questions of one document, and `collections` collections too.
`spreads` marks groups of queries that have the same mean and another spread.
`real` does all that to rows of real systems, drawn with replacement, and `separated` counts the pairs of them
that are told apart; both need `--rows QRELS RUN RUN…`, which may be repeated, one for each collection.
`needed` takes the loss that a gate says its queries detect, and the number that a margin takes, and counts
how often they do.
`judge` compares pairs of systems by few human labels and a judge's labels of all queries: what intervals hold
and how narrow they are, false winners where one stops at any time, and pairs that need not be judged; of
generated passages and, with `--rows`, of real ones.
`labels` compares by few labels where losses are rare or the judge is blind to some, and counts how many
labels give the width of 40 that are drawn uniformly; with `--rows`, of real passages, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from sys import path
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline.comparison.pairs import Pair, compare_pairs
from pipeline.core.records import BoolArray, Float64, Int64
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.metrics import holm, paired, resampling, statistics
from pipeline.metrics.paired import compare_with_rest
from pipeline.metrics.statistics import ONE, estimate
from pipeline.studies.gate.betting import Bets
from pipeline.studies.gate.margin_tests import Sensitivity, noninferiority
from pipeline.studies.judge.bets_in_order import BetsInOrder
from pipeline.studies.judge.prediction_powered import Interval, PredictionPoweredEstimate, estimate_with_judge
from pipeline.studies.judge.sample import LEAST

QUERIES = (10, 25, 43, 114, 300, 7000)
RANKS = 1 / np.arange(1, 11)
random = np.random.default_rng(20190)

Sampler = Callable[[int, int], Float64]
"""Values for a number of samples and queries, float64 [samples, queries]."""


def of_ranks(first: float, missed: float) -> Sampler:
    """Reciprocal ranks: `first` at rank 1, `missed` not in the top 10, the rest at ranks 2 to 10."""
    shares = [first, *np.full(9, (1 - first - missed) / 9), missed]
    return lambda samples, queries: random.choice([*RANKS, 0], (samples, queries), p=shares)


def mostly_ties(samples: int, queries: int) -> Float64:
    """Differences that are 0 in nine queries of ten."""
    drawn = random.normal(0.1, 0.3, (samples, queries))
    return drawn * (random.random((samples, queries)) < 0.1)


def binary(share: float) -> Sampler:
    """Success of a share of the queries."""
    return lambda *size: (random.random(size) < share).astype(np.float64)


def dcg_like(samples: int, queries: int) -> Float64:
    """DCG of which most are near the highest, and two in a hundred 0."""
    values = 4.54 * random.uniform(0.9, 1, (samples, queries))
    return values * (random.random(values.shape) >= 0.02)


def near_one(samples: int, queries: int) -> Float64:
    """Recall-like: six in ten are 1, few are 0, the others near 1."""
    kind = random.random((samples, queries))
    return np.where(kind < 0.6, 1, np.where(kind < 0.97, random.uniform(0.9, 0.99, kind.shape), 0))


def rare_losses(samples: int, queries: int) -> Float64:
    """Differences of which eight in ten are ties, and three in a hundred lose everything."""
    kind = random.random((samples, queries))
    return np.where(kind < 0.8, 0, np.where(kind < 0.83, -1, random.normal(0, 0.05, kind.shape)))


VALUES: dict[str, tuple[Sampler, float]] = {
    "nDCG-like, mean 0.65": (lambda *size: random.beta(2, 1.1, size), 2 / 3.1),
    "nDCG-like, mean 0.5, most near 0 or 1": (lambda *size: random.beta(0.5, 0.5, size), 0.5),
    "nDCG-like, mean 0.2, skewed": (lambda *size: random.beta(0.4, 1.6, size), 0.2),
    "MRR-like, mean 0.36": (of_ranks(0.25, 0.35), 0.25 + 0.4 / 9 * RANKS[1:].sum()),
    "MRR-like, mean 0.89": (of_ranks(0.86, 0.01), 0.86 + 0.13 / 9 * RANKS[1:].sum()),
    "binary, 0.5": (binary(0.5), 0.5),
    "binary, 0.9": (binary(0.9), 0.9),
    "binary, 0.96": (binary(0.96), 0.96),
    "binary, 0.98": (binary(0.98), 0.98),
    "recall-like, 60% are 1, 3% are 0": (near_one, 0.6 + 0.37 * 0.945),
    "DCG-like, 2% are 0, no highest": (dcg_like, 0.98 * 0.95 * 4.54),
    "differences, 9 of 10 ties": (mostly_ties, 0.01),
    "differences, 80% ties, 3% lose 1": (rare_losses, -0.03),
}


def simulate_intervals(samples: int) -> None:
    """Print the coverage of intervals of a mean, in percent: t of all samples, and those that are shown."""
    print("| values | queries | t of all | shown intervals | shown |")
    print("|---|---:|---:|---:|---:|")
    for name, (draw, mean) in VALUES.items():
        for n_queries in QUERIES:
            values = draw(samples if n_queries <= 300 else samples // 5, n_queries).T
            _print_coverage(name, n_queries, values, mean, _lowest(name), _highest(name))


def _print_coverage(name: str, n_queries: int, values: Float64, mean: float, low: float, high: float) -> None:
    """Print a row of `simulate_intervals`, of values float64 [queries, samples]."""
    found = estimate([values], low=low, high=high)
    of_all = np.abs(found.means - mean) <= stdtrit(n_queries - 1, 0.975) * found.errors
    start, end = np.array(found.ends, dtype=np.float64).T
    held = ((start <= mean + 1e-12) & (mean - 1e-12 <= end))[found.shown]
    cells = [_percent(of_all), _percent(held), _percent(found.shown)]
    print(f"| {name} | {n_queries:,} | {' | '.join(cells)} |", flush=True)


def _highest(name: str) -> float:
    """The highest value there can be."""
    return np.inf if name.startswith("DCG") else 1.0


def _lowest(name: str) -> float:
    """The lowest value there can be."""
    return -1.0 if name.startswith("differences") else 0.0


def _percent(held: Sequence[bool] | np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> str:
    return f"{100 * np.mean(held):.1f}" if len(held) else ""


def exchangeable_binary(n_queries: int, runs: int) -> Float64:
    """Success of runs that all succeed at half of the queries, each at others."""
    return (random.random((n_queries, runs)) < 0.5).astype(np.float64)


def exchangeable_graded(n_queries: int, runs: int) -> Float64:
    """nDCG-like: easy and hard queries, which all runs share, and noise of each run."""
    difficulty = random.normal(0, 1, (n_queries, 1))
    return 1 / (1 + np.exp(-difficulty - 0.7 * random.normal(0, 1, (n_queries, runs))))


def exchangeable_ranks(n_queries: int, runs: int) -> Float64:
    """MRR-like: reciprocal ranks from a distribution of each query."""
    ranks = random.geometric(random.beta(1.2, 1, (n_queries, 1)), (n_queries, runs))
    return np.where(ranks <= 10, 1 / ranks, 0)


def other_shapes(n_queries: int, runs: int) -> Float64:
    """MRR-like runs of equal means and other shapes: half fail rarely and badly, half often and a little."""
    late = np.array([1 / 3, 1 / 4, 1 / 5, 1 / 10])
    mean = 0.92 + 0.08 * late.mean()
    half = runs // 2
    rarely = np.where(random.random((n_queries, half)) < 0.92, 1, random.choice(late, (n_queries, half)))
    often = np.where(random.random((n_queries, runs - half)) < 2 * mean - 1, 1, 0.5)
    return np.hstack([rarely, often])


def some_differ(n_queries: int, runs: int) -> Float64:
    """nDCG-like; half of the runs are better by 0.15, and differences among each half are none."""
    return exchangeable_graded(n_queries, runs) + 0.15 * (np.arange(runs) >= runs // 2)


RUNS = {
    "binary, 0.5": exchangeable_binary,
    "nDCG-like": exchangeable_graded,
    "MRR-like": exchangeable_ranks,
    "nDCG-like, half of the runs better": some_differ,
    "MRR-like, equal means, other shapes": other_shapes,
}


def simulate_tests(samples: int) -> None:
    """Print in how many comparisons, in percent, any difference is shown that is none."""
    resampling.PERMUTATIONS = 999
    print("| values | runs | queries | t-test alone | Holm | * | all intervals hold |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, draw in RUNS.items():
        for runs, n_queries in ((2, 10), (5, 14), (10, 43), (20, 43), (10, 200)):
            better = 0.15 * (np.arange(runs) >= runs // 2) if draw is some_differ else np.zeros(runs)
            pairs = list(combinations(range(runs), 2))
            truth = np.array([better[a] - better[b] for a, b in pairs])
            counted = [_comparison(draw(n_queries, runs), pairs, truth) for _ in range(samples)]
            cells = " | ".join(map(_percent, zip(*counted, strict=True)))
            print(f"| {name} | {runs} | {n_queries} | {cells} |", flush=True)


def _comparison(values: Float64, pairs: list[tuple[int, int]], truth: Float64) -> list[bool]:
    """Whether a false difference is shown by the t-test, Holm, `*`; whether all intervals hold."""
    tested = compare_pairs([str(run) for run in range(values.shape[1])], {"": values}, [values], ONE, pairs)
    return _false(tested, truth)


def _false(tested: Sequence[Pair], truth: Float64) -> list[bool]:
    """See `_comparison`; of pairs whose true differences are `truth`."""
    same = [pair for pair, true in zip(tested, truth, strict=True) if true == 0]
    held = all(
        pair.simultaneous_low is None
        or pair.simultaneous_high is None
        or pair.simultaneous_low <= true <= pair.simultaneous_high
        for pair, true in zip(tested, truth, strict=True)
    )
    return [
        any(pair.p_ttest < 0.05 for pair in same),
        any(pair.p_holm < 0.05 for pair in same),
        any(pair.shown for pair in same),
        held,
    ]


RARE = (
    (0.01, 1.0, 0.001), (0.01, 1.0, 0.02), (0.02, 0.9, 0.01), (0.02, 0.9, 0.05), (0.02, 0.9, 0.1),
    (0.05, 0.9, 0.01), (0.05, 0.9, 0.1), (0.05, 0.5, 0.02), (0.1, 0.6, 0.02),
)  # fmt: skip
"""Queries that lose much: their share, the loss, and the standard deviation of all others' differences."""


def rare(share: float, loss: float, deviation: float, ties: float = 0) -> Sampler:
    """Differences with a mean of 0: few losses, some ties, and others that make up for the losses."""

    def draw(samples: int, queries: int) -> Float64:
        kind = random.random((samples, queries))
        others = random.normal(share * loss / (1 - share - ties), deviation, kind.shape)
        return np.where(kind < share, -loss, np.where(kind < share + ties, 0, others))

    return draw


RARE_LOSSES = {
    "2% lose 0.9, others gain 0.018 ± 0.01": rare(0.02, 0.9, 0.01),
    "5% lose 0.5, others gain 0.026 ± 0.02": rare(0.05, 0.5, 0.02),
    "5% lose 0.5, others gain 0.026 ± 0.1": rare(0.05, 0.5, 0.1),
    "70% ties, 27% gain 0.078, 3% lose 0.7": rare(0.03, 0.7, 0, 0.7),
    "50% ties, 47% gain 0.051, 3% lose 0.8": rare(0.03, 0.8, 0, 0.5),
}
"""Differences with a mean of 0."""


def simulate_losses(samples: int) -> None:
    """Print what `compare` says of results that are equally good, where few queries lose much.

    Of two results: coverage of the interval, and false differences, in percent; the share of false ones that
    are not said to be open to rare failures. Then of a baseline and five variants.
    """
    resampling.PERMUTATIONS = 999
    print(
        "| differences | queries | t intervals of all | shown intervals | shown | false * | of those without "
        "the warning |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, draw in RARE_LOSSES.items():
        for n_queries in (25, 43, 100, 300):
            values = draw(samples, n_queries).T
            found = estimate([values], low=-1, high=1)
            reach = stdtrit(n_queries - 1, 0.975) * found.errors
            held = np.abs(found.means) <= reach
            p = np.maximum(found.p, resampling.randomization_test([values]))
            starred = p < 0.05
            silent = (found.shown & (reach >= 3 / n_queries))[starred]
            cells = [held, held[found.shown], found.shown, starred, silent]
            print(f"| {name} | {n_queries} | {' | '.join(map(_percent, cells))} |", flush=True)
    print("\n| a baseline and five variants | queries | any false * | of those without the warning |")
    print("|---|---:|---:|---:|")
    pairs = [(number, 0) for number in range(1, 6)]
    losses = rare(0.03, 0.6, 0.03)
    for n_queries in (25, 43, 100):
        false, silent = [], []
        for variants in losses(max(samples // 8, 1) * 5, n_queries).reshape(-1, 5, n_queries):
            values = np.vstack([np.zeros(n_queries), variants]).T
            tested = compare_pairs(list("abcdef"), {}, [values], ONE, pairs, 1)
            warnings = [pair.rare_failures for pair in tested if pair.shown]
            false.append(len(warnings) > 0)
            silent += [not any(warnings)] * false[-1]
        shares = f"{_percent(false)} | {_percent(silent)}"
        print(f"| 3% lose 0.6, others gain 0.019 ± 0.03 | {n_queries} | {shares} |", flush=True)


DETECTED: dict[str, Sampler] = {
    "normal": lambda *size: random.normal(0, 0.1, size),
    "6 of 10 ties": lambda *size: random.normal(0, 0.15, size) * (random.random(size) < 0.4),
    "7 of 8 ties": lambda *size: random.normal(0, 0.2, size) * (random.random(size) < 1 / 8),
    "skewed: 10% lose 0.45": rare(0.1, 0.45, 0.05),
}
"""Differences with a mean of 0."""


def simulate_detect(samples: int) -> None:
    """Print how often the difference is found that queries are said to detect, in percent: 80 is promised.

    First with the true spread. Then the spread is estimated from a pilot of as many queries: the mean power
    of the difference it names, and the 10% and 90% quantiles; the same of the number of queries that detect
    a quarter of the true spread. With `--rows`, of pairs without `*`: their queries are the population, the
    better result of each is raised until the pair differs by what is detected, and all pairs are tested.
    """
    resampling.PERMUTATIONS = 999
    print(
        "| differences | pairs | queries | power | pilots that name one | power, mean | 10 to 90% "
        "| queries for 0.25, mean |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, draw in DETECTED.items():
        deviation = float(draw(1000, 1000).std())
        for tests in (1, 15):
            level = 0.025 / tests
            for n_queries in (25, 43, 114, 300):
                size = paired.detectable_difference(deviation / n_queries**0.5, n_queries - 1, level)
                drawn = (draw(samples, n_queries) + size).T
                p = np.maximum(estimate([drawn]).p * tests, resampling.randomization_test([drawn]))
                pilots = estimate([draw(samples, n_queries).T])
                known = pilots.others >= statistics.MANY_OTHERS  # else nothing is named
                cells = [_percent(p < 0.05), _percent(known), "", "", ""]
                if known.mean() > 0.05:
                    errors = pilots.errors[known]
                    named = paired.detectable_difference(errors, n_queries - 1, level)
                    power = _power(named / deviation, np.full(len(named), n_queries), level)
                    needed = paired.queries_needed(0.25 * deviation / (errors * n_queries**0.5), level)
                    at_number = _power(np.full(len(needed), 0.25), np.maximum(needed, 2), level)
                    ends = " to ".join(f"{100 * end:.0f}" for end in np.quantile(power, [0.1, 0.9]))
                    cells[2:] = [f"{100 * power.mean():.1f}", ends, f"{100 * at_number.mean():.1f}"]
                print(f"| {name} | {tests} | {n_queries} | {' | '.join(cells)} |", flush=True)
    if rows_of:
        _detect_real(samples)


def _power(effects: Float64, queries: Float64, level: float) -> Float64:
    """Of one-sided t-tests at a level, of effects in standard deviations."""
    from scipy.special import nctdtr

    below: Float64 = nctdtr(queries - 1, effects * np.sqrt(queries), stdtrit(queries - 1, 1 - level))
    return 1 - below


def _detect_real(samples: int) -> None:
    print("\n| measure | pairs without * | of pairs | lowest power | mean | highest |")
    print("|---|---:|---:|---:|---:|---:|")
    for measure, values in _real_values()[0].items():
        n_queries, runs = values.shape
        pairs = list(combinations(range(runs), 2))
        first, second = np.array(pairs).T
        tested = compare_pairs(list("abcdefgh"), {}, [values], ONE, pairs, 1)
        powers = []
        for number, pair in enumerate(tested):
            if pair.shown or pair.detects is None:
                continue
            raised = values.copy()
            better = pairs[number][pair.difference < 0]
            raised[:, better] += pair.detects - abs(pair.difference)
            rows = random.integers(n_queries, size=(samples // 4, n_queries))
            drawn = [raised[one][:, first] - raised[one][:, second] for one in rows]
            powers.append(np.mean([holm(estimate([one]).p)[number] < 0.05 for one in drawn]))
        cells = [f"{100 * each:.1f}" for each in (min(powers), np.mean(powers), max(powers))]
        print(f"| {measure} | {len(powers)} | {len(pairs)} | {' | '.join(cells)} |", flush=True)


def skewed_losses(samples: int, queries: int) -> Float64:
    """Differences of a mean of 0: small gains at most queries, and a large loss at one in ten."""
    lost = random.random((samples, queries)) < 0.1
    return np.where(lost, -0.45, 0.05) * random.uniform(0.5, 1.5, (samples, queries))


def by_rates(wins: float, losses: float) -> Sampler:
    """Differences of a binary measure."""

    def draw(samples: int, queries: int) -> Float64:
        kind = random.random((samples, queries))
        return np.where(kind < wins, 1.0, np.where(kind < wins + losses, -1.0, 0.0))

    return draw


DIFFERENCES: dict[str, Sampler] = {
    "normal": lambda *size: random.normal(0, 0.1, size),
    "6 of 10 ties": lambda *size: random.normal(0, 0.15, size) * (random.random(size) < 0.4),
    "rare large losses": skewed_losses,
}
BINARY = ((0, 0.01), (0.01, 0.02), (0.05, 0.06), (0.2, 0.21))


def simulate_gate(samples: int) -> None:
    """Print the verdicts of the gate, in percent, where the truth is known, and the power of its numbers.

    By t alone, by default and with a guarantee: how many pass that are worse by the margin of 0.01, and how
    many that are equally good; and how far below the mean the lower bounds are.
    """
    resampling.RESAMPLES = 999
    print(
        "| differences | queries | false passes: t | default | guarantee | false fails, default "
        "| passes where equal: t | default | guarantee | reach: t | guarantee |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    worse: dict[str, tuple[Sampler, Sampler]] = {
        name: (lambda *size, draw=draw: draw(*size) - MARGIN, draw) for name, draw in DIFFERENCES.items()
    }
    for wins, losses in BINARY:
        worse[f"binary, {wins:.0%} win, {losses:.0%} lose"] = by_rates(wins, losses), by_rates(wins, wins)
    for name, (at_margin, equal) in worse.items():
        for n_queries in (25, 43, 114, 300, 1000):
            count = samples if n_queries <= 300 else max(samples // 4, 1)
            passed, failed, reach = zip(
                *(_verdicts(draw(count, n_queries).T) for draw in (at_margin, equal)), strict=True
            )
            cells = [*passed[0], failed[0], *passed[1], *reach[1]]
            print(f"| {name} | {n_queries:,} | {' | '.join(cells)} |", flush=True)
    print()
    _simulate_suite_gates(samples)


def _simulate_suite_gates(samples: int) -> None:
    """Print how many suites pass, in percent, whose macro mean is worse by the margin.

    Differences are binary in all collections; or the first loses all, and the others tie or are normal.
    """
    print("| queries | 0% win | 1% win | 5% win | 20% win | losses in one, others tie | others normal |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for sizes in ((25, 25), (43, 114, 300), (50,) * 6, (50, 1000)):
        first, others = sizes[0], sizes[1:]
        weights = np.full(len(sizes), 1 / len(sizes))
        lost = by_rates(0, MARGIN * len(sizes))(samples, first).T
        suites = [[by_rates(wins, losses)(samples, size).T for size in sizes] for wins, losses in BINARY]
        suites.append([lost, *(np.zeros((size, samples)) for size in others)])
        suites.append([lost, *(random.normal(0, 0.1, (size, samples)) for size in others)])
        tests = [noninferiority(each, np.full(samples, MARGIN), weights)[0] for each in suites]
        cells = " | ".join(_percent(p < ALPHA) for p in tests)
        print(f"| {', '.join(map(str, sizes))} | {cells} |", flush=True)


MARGIN, ALPHA = 0.01, 0.05
BETS = 100  # samples of a row that are bet on


def _verdicts(differences: Float64) -> tuple[list[str], str, list[str]]:
    """Passes by t, by default and with a guarantee, fails by default, and the reach of two lower bounds."""
    n_queries, samples = differences.shape
    made = estimate([differences])
    above = made.means + MARGIN
    t = np.divide(above, made.errors, out=np.copysign(np.inf, above), where=made.errors > 0)
    not_worse, is_worse = noninferiority([differences], np.full(samples, MARGIN))
    bets = [Bets.of_one(one.clip(-1, 1)) for one in differences.T[:BETS]]
    bounds = np.array([each.lower_bound(ALPHA) for each in bets])
    quantile = float(stdtrit(n_queries - 1, 1 - ALPHA))
    passes = [
        t > quantile,
        (not_worse < ALPHA),
        np.array([b.p_value(-MARGIN) < ALPHA for b in bets]),
    ]
    reach = [quantile * made.errors.mean(), (made.means[: len(bounds)] - bounds).mean()]
    return (
        [_percent(each) for each in passes],
        _percent(is_worse < ALPHA),
        [f"{r:.3f}" for r in reach],
    )


def simulate_rare(samples: int) -> None:
    """Print false verdicts of the gate, in percent, where few queries lose much, or gain much.

    Results are worse by exactly the margin; a gate may neither pass nor fail them.
    """
    resampling.RESAMPLES = 999
    print(
        "| differences | queries | false passes | by t alone | false fails where as many gain | by t alone |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    drawn = {f"{q:.0%} lose {loss:g}, others ± {sd:g}": rare(q, loss, sd) for q, loss, sd in RARE}
    drawn |= {f"{ties:.0%} ties, 3% lose 0.8": rare(0.03, 0.8, 0, ties) for ties in (0.5, 0.7)}
    drawn["skewed: 10% lose 0.45"] = skewed_losses
    for name, draw in drawn.items():
        for n_queries in (25, 43, 114, 300):
            cells = []
            for sign in (1, -1):
                values = (sign * draw(samples, n_queries) - MARGIN).T
                with np.errstate(divide="ignore"):
                    t: Float64 = (
                        (values.mean(axis=0) + MARGIN) / values.std(axis=0, ddof=1) * np.sqrt(n_queries)
                    )
                p = noninferiority([values], np.full(samples, MARGIN))[sign < 0]
                cells += [_percent(p < ALPHA), _percent(t * sign > float(stdtrit(n_queries - 1, 1 - ALPHA)))]
            print(f"| {name} | {n_queries} | {' | '.join(cells)} |", flush=True)


def simulate_many_gates(samples: int) -> None:
    """Print what many gates on the same queries let through.

    Of 20 commits that are worse by the margin, in how many series any passes, in percent: commits that have
    nothing in common, and those whose differences share half of their variance. And of ten releases that each
    lose half the margin against the last one, how many pass, also against the first one.
    """
    resampling.RESAMPLES = 999
    print(
        "| queries | any of 20 bad commits | half in common | releases of 10 | also --since the first, 0.02 |"
    )
    print("|---:|---:|---:|---:|---:|")
    series = max(samples // 5, 1)
    for n_queries in (114, 300, 1000):
        cells = []
        for shared in (0, 0.5):
            common, each = (
                random.normal(0, 0.1 * np.sqrt(share), (series, n_queries, commits))
                for share, commits in ((shared, 1), (1 - shared, 20))
            )
            p = [noninferiority([one], np.full(20, MARGIN))[0] for one in common + each - MARGIN]
            cells.append(_percent([bool((one < ALPHA).any()) for one in p]))
        last, first = [], []
        for steps in random.normal(-MARGIN / 2, 0.05, (series, n_queries, 10)):
            passes = noninferiority([steps], np.full(10, MARGIN))[0] < ALPHA
            since_first = noninferiority([steps.cumsum(axis=1)], np.full(10, 2 * MARGIN))[0] < ALPHA
            last.append(passes.sum())
            first.append((passes & since_first).sum())
        cells += [f"{np.mean(last):.1f}", f"{np.mean(first):.1f}"]
        print(f"| {n_queries:,} | {' | '.join(cells)} |", flush=True)


SPREADS = (
    ((0.4, 0.25, 0.15), (0.2, 0.3, 0.5)),
    ((0.4, 0.2, 0.2), (0.1, 0.3, 0.6)),
    ((0.4, 0.1, 0.1), (0.2, 0.4, 0.4)),
)
"""Groups of equal means: the standard deviation of each, and its share of the queries."""


def simulate_spreads(samples: int) -> None:
    """Print how many results have any mark, in percent, in groups of equal means and unequal spread.

    The queries are grouped by spread, and three times at random into thirds.
    """
    resampling.PERMUTATIONS = 499
    shapes: dict[str, Callable[[int], Float64]] = {
        "normal": lambda n: random.normal(0, 1, n),
        "two values": lambda n: random.choice([-1.0, 1.0], n),
        "skewed": lambda n: random.exponential(1, n) - 1,
    }
    print("| deviations | shares | values | " + " | ".join(f"{n} queries" for n in (60, 114, 300)) + " |")
    print("|---|---|---|---:|---:|---:|")
    for deviations, shares in SPREADS:
        for shape, draw in shapes.items():
            cells = []
            for n_queries in (60, 114, 300):
                marked = []
                for _ in range(samples // 4):
                    labels = random.choice(len(shares), n_queries, p=shares)
                    labelings = [labels, *(random.permutation(np.arange(n_queries) % 3) for _ in range(3))]
                    groups = [each == group for each in labelings for group in range(3)]
                    values = 0.5 + np.array(deviations)[labels] * draw(n_queries)
                    marked.append(bool((compare_with_rest(values[:, None], groups) < ALPHA).any()))
                cells.append(_percent(marked))
            print(f"| {deviations} | {shares} | {shape} | {' | '.join(cells)} |", flush=True)


def few_differ(samples: int, queries: int) -> Float64:
    """Differences of a mean of 0 at one query in eight, as between two precisions of one model."""
    return random.normal(0, 0.1, (samples, queries)) * (random.random((samples, queries)) < 1 / 8)


def simulate_needed(samples: int) -> None:
    """Print the loss that a gate says 43 and 300 queries detect, and how often they do, if nothing is lost.

    The queries are the population: only their mean is made 0. The same for the number that a margin takes.
    """
    print("| differences | queries | detect | in % of samples | queries for 0.02 | in % of samples |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, draw in {**DIFFERENCES, "7 of 8 ties": few_differ}.items():
        for n_queries in (43, 300):
            values = draw(1, n_queries)[0]
            values -= values.mean() * (values != 0) / np.mean(values != 0)
            sensitivity = Sensitivity([values[:, None]], ONE, 1.0, ALPHA)
            (loss,) = sensitivity.detectable()
            needed = int(sensitivity.needed(0, 0.02))
            powers = []
            for number, margin in ((n_queries, loss), (needed, 0.02)):
                drawn, margins = random.choice(values, (number, samples)), np.full(samples, margin)
                powers.append(_percent(noninferiority([drawn], margins, resamples=1999)[0] < ALPHA))
            print(
                f"| {name} | {n_queries} | {loss:.4f} | {powers[0]} | {needed:,} | {powers[1]} |", flush=True
            )


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
MIXED = [name for name in VALUES if not name.startswith("differences")]
SUITE_VALUES = {name: [name] for name in VALUES} | {"another in every collection": MIXED}
BATCH = 50  # samples that share their resamples


def simulate_suites(samples: int) -> None:
    """Print the coverage of the intervals of macro means, in percent, and how often differences are false."""
    print("| values | queries | t | with hidden ties | where shown | shown |")
    print("|---|---|---:|---:|---:|---:|")
    for name, kinds in SUITE_VALUES.items():
        for label, sizes in SUITES.items():
            chosen = [VALUES[kinds[number % len(kinds)]] for number in range(len(sizes))]
            truth = float(np.mean([mean for _, mean in chosen]))
            held = []
            for _ in range(-(-samples // BATCH)):
                strata = [draw(BATCH, size).T for (draw, _), size in zip(chosen, sizes, strict=True)]
                held.append(_macro_coverage(strata, truth, -1.0 if "differences" in name else 0.0))
            by_t, widened, shown = np.concatenate(held, axis=1)
            cells = map(_percent, (by_t, widened, widened[shown], shown))
            print(f"| {name} | {label} | {' | '.join(cells)} |", flush=True)
    print()
    _simulate_suite_tests(max(samples // 4, 1))


def _macro_coverage(strata: list[Float64], truth: float, low: float) -> BoolArray:
    """Bool [3, samples]: whether two intervals hold the truth, and whether one is shown."""
    weights = np.full(len(strata), 1 / len(strata))
    made = statistics.estimate(strata, weights, low=low, high=1)
    quantiles = stdtrit(np.maximum(made.freedom, 1), 0.975)
    off = np.abs(made.means - truth)
    return np.array(
        [
            off <= quantiles * made.errors,
            off <= stdtrit(np.maximum(made.wide_freedom, 1), 0.975) * made.wide_errors,
            made.shown,
        ]
    )


def _simulate_suite_tests(samples: int) -> None:
    """Print in how many comparisons of equal runs, in percent, a difference of macro means is shown."""
    resampling.RESAMPLES = resampling.PERMUTATIONS = 999
    print("| values | runs | queries | t-test alone | Holm | * | all intervals hold | any * by collection |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    for name, draw in RUNS.items():
        if draw is some_differ:
            continue
        for runs, label in ((2, "25, 43 and 114"), (5, "25, 43 and 114"), (5, "13 of 50"), (5, "8 of 10")):
            pairs = list(combinations(range(runs), 2))
            counted = []
            for _ in range(samples):
                strata = [draw(size, runs) for size in SUITES[label]]
                weights = np.full(len(strata), 1 / len(strata))
                names = [str(run) for run in range(runs)]
                collections = {str(number): values for number, values in enumerate(strata)}
                tested = compare_pairs(names, collections, strata, weights, pairs)
                starred = any(each.shown for pair in tested for each in pair.collections)
                counted.append([*_false(tested, np.zeros(len(pairs))), starred])
            cells = " | ".join(map(_percent, zip(*counted, strict=True)))
            print(f"| {name} | {runs} | {label} | {cells} |", flush=True)


def simulate_shared(samples: int) -> None:
    """Print what macro means of collections that share their queries hold, counted apart and by query.

    Values are nDCG-like: the difficulty of a question, which all collections share, and noise of each. In
    the last two rows collections share their ids and nothing else.
    """
    resampling.PERMUTATIONS = 999
    print(
        "| collections | queries | interval, apart | by query | width | t-test false, apart | by query "
        "| randomization false, apart | by query |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for label, count, n_queries, alike in (
        ("26 translations", 26, 25, True),
        ("26 translations", 26, 100, True),
        ("3 translations", 3, 43, True),
        ("8 translations, each lacks some queries", 8, 50, True),
        ("3 with equal ids alone", 3, 43, False),
        ("13 with equal ids alone", 13, 50, False),
    ):
        weights = np.full(count, 1 / count)
        lacking = [number if "lacks" in label else 0 for number in range(count)]
        ids = [[str(query) for query in range(start, n_queries)] for start in lacking]
        means, differences = [], []
        effects = random.normal(0, 1, (2, n_queries, samples))  # of the questions, on either run
        for start in lacking:
            own = effects if alike else random.normal(0, 1, effects.shape)
            one, other = 1 / (1 + np.exp(-own - 0.7 * random.normal(0, 1, effects.shape)))
            means.append(one[start:])
            differences.append((one - other)[start:])
        cells, widths = [], []
        for strata, truth in ((means, 0.5), (differences, 0.0)):
            for sample in ((strata, weights), statistics.pool_draws(strata, weights, ids)):
                made = estimate(*sample)
                reach = stdtrit(np.maximum(made.freedom, 1), 0.975) * made.errors
                if truth:
                    cells.append(_percent(np.abs(made.means - truth) <= reach))
                    widths.append(reach.mean())
                else:
                    few = [each[:, : max(samples // 10, 1)] for each in sample[0]]
                    by_chance = resampling.randomization_test(few, sample[1])
                    cells += [_percent(made.p < 0.05), _percent(by_chance < 0.05)]
        apart, by_query, t, chance, t_by_query, chance_by_query = cells
        width = f"{widths[1] / widths[0]:.2f}"
        cells = [apart, by_query, width, t, t_by_query, chance, chance_by_query]
        print(f"| {label} | {n_queries} | {' | '.join(cells)} |", flush=True)


MEASURES = "ndcg@10,map,mrr@10,recall@100,precision@10,success@1"


def simulate_clusters(samples: int) -> None:
    """Print what intervals and tests hold, in percent, of clusters of queries, counted apart and drawn.

    Values are nDCG-like: the difficulty of a cluster, such as a document, and noise of each of its queries.
    """
    print("| clusters | queries of each | mean held, apart | drawn | t-test false, apart | drawn | width |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for number in (30, 100):
        for label, draw_sizes in (
            ("26", lambda n: np.full(n, 26)),
            ("1 to 9", lambda n: random.integers(1, 10, n)),
            ("most 1, some 30", lambda n: np.where(random.random(n) < 0.1, 30, 1)),
        ):
            held, false, widths = [], [], []
            for _ in range(samples // 2):
                ids = np.repeat(np.arange(number), draw_sizes(number)).tolist()
                hard = np.repeat(random.normal(0, 1, number), np.bincount(ids))
                apart = np.repeat(random.normal(0, 1, number), np.bincount(ids))
                noise = random.normal(0, 0.7, (2, len(ids)))
                ours, theirs = 1 / (1 + np.exp(-(hard + 0.5 * apart * [[1], [-1]] + noise)))
                samples_of = (ours[:, None], (ours - theirs)[:, None])
                cells, reach = [], []
                for means, differences in (
                    [([one], ONE) for one in samples_of],
                    [statistics.pool_draws([one], ONE, [ids], one is samples_of[0]) for one in samples_of],
                ):
                    (low, high), *_ = estimate(*means).ends
                    reach.append(0 if low is None or high is None else high - low)
                    cells.append((low or 0) <= 0.5 <= (high or 1))
                    cells.append(bool(estimate(*differences).p[0] < ALPHA))
                held.append(cells[::2])
                false.append(cells[1::2])
                widths.append(reach[1] / reach[0])
            shares = [*map(_percent, np.array(held).T), *map(_percent, np.array(false).T)]
            print(f"| {number} | {label} | {' | '.join(shares)} | {np.mean(widths):.2f} |", flush=True)


def simulate_collections(samples: int) -> None:
    """Print how often intervals of macro means hold the mean of all such collections, in percent.

    The true means of collections are drawn, then their queries. By t over collections, and over the queries
    of these collections alone.
    """
    shapes: dict[str, Callable[[tuple[int, int]], Float64]] = {
        "even": lambda size: random.uniform(0.2, 0.8, size),
        "skewed": lambda size: random.beta(1, 3, size),
        "few are hard": lambda size: np.where(random.random(size) < 0.15, 0.1, 0.7),
    }
    print(
        "| means of collections | queries | "
        + " | ".join(f"{n}: over, these" for n in (8, 13, 26, 50))
        + " |"
    )
    print("|---|---:|---:|---:|---:|---:|")
    for name, draw in shapes.items():
        truth = float(draw((100_000, 1)).mean())
        for n_queries in (50, 300):
            cells = []
            for number in (8, 13, 26, 50):
                centres = draw((number, samples))
                strata = [random.beta(2 * each, 2 - 2 * each, (n_queries, samples)) for each in centres]
                means = np.stack([values.mean(axis=0) for values in strata])
                over = statistics.over_collections(means, 0, 1)
                these = estimate(strata, np.full(number, 1 / number), low=0, high=1).ends
                cells.append(
                    ", ".join(_percent([(a or 0) <= truth <= (b or 1) for a, b in x]) for x in (over, these))
                )
            print(f"| {name} | {n_queries} | {' | '.join(cells)} |", flush=True)


rows_of: list[list[str]] = []
"""For each collection the judgments and runs of `--rows`."""


def _real_values() -> list[dict[str, Float64]]:
    """For each collection of `--rows` its values by measure, float64 [queries, runs]."""
    from pipeline import evaluate

    read = []
    for qrels, *runs in rows_of:
        values = np.stack([evaluate(qrels, run, measures=MEASURES).values for run in runs], axis=2)
        read.append({name: values[:, number] for number, name in enumerate(MEASURES.split(","))})
    return read


def simulate_separated(samples: int) -> None:
    """Print how many pairs of real runs are separated, of the queries as they are; `samples` is not used."""
    print("| queries | measure | pairs | * | Holm | interval shown | with the warning |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    for collection in _real_values():
        for measure, values in collection.items():
            pairs = list(combinations(range(values.shape[1]), 2))
            tested = compare_pairs(list("abcdefgh"), {}, [np.ascontiguousarray(values)], ONE, pairs, 1)
            cells = [
                len(pairs),
                sum(pair.shown for pair in tested),
                sum(pair.p_holm < 0.05 for pair in tested),
                sum(pair.ci_low is not None for pair in tested),
                sum(pair.shown and pair.rare_failures for pair in tested),
            ]
            print(f"| {len(values)} | {measure} | {' | '.join(map(str, cells))} |", flush=True)


def simulate_real(samples: int) -> None:
    """Print what intervals and gates of real values hold, in percent: the mean, and the worst case.

    The queries of a collection are the population. Of a gate the margin is how far a run really is below
    another; the macro means of two or three collections are of samples of 43, 114 and 300 queries.
    """
    resampling.RESAMPLES = 999
    collections = [np.stack(list(each.values()), axis=1) for each in _real_values()]
    sizes: list[tuple[int, ...]] = [
        (25,),
        (43,),
        (114,),
        (300,),
        *([(43, 114, 300)[: len(collections)]] if len(collections) > 1 else []),
    ]
    print(
        "| measure | queries | means held, of shown | lowest | shown | differences held, of shown | lowest "
        "| shown | false passes | most |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for number, measure in enumerate(MEASURES.split(",")):
        for size in sizes:
            several = len(size) > 1
            chosen = [collections[: len(size)]] if several else [[each] for each in collections]
            means, differences, passes = [], [], []
            for populations in chosen:
                values = [each[:, number] for each in populations]
                runs = min(each.shape[1] for each in values)
                pairs = [(a, b) for a in range(runs) for b in range(runs) if a != b]
                for run in range(runs):
                    means.append(_held([each[:, run] for each in values], size, samples, 0.0))
                for a, b in pairs:
                    apart = [each[:, a] - each[:, b] for each in values]
                    differences.append(_held(apart, size, samples, -1.0))
                    if (mean := float(np.mean([each.mean() for each in apart]))) < -0.001:
                        passes.append(_false_passes(apart, size, samples, -mean))
            cells = []
            for found in (means, differences):
                held, shown = np.array(found).T
                known = shown > 0.02  # else there are too few samples of it
                cells += (
                    [
                        f"{100 * each:.1f}"
                        for each in (
                            np.average(held[known], weights=shown[known]),
                            held[known].min(),
                            shown.mean(),
                        )
                    ]
                    if known.any()
                    else ["", "", "0.0"]
                )
            cells += [f"{100 * each:.1f}" for each in (np.mean(passes), np.max(passes))]
            print(f"| {measure} | {', '.join(map(str, size))} | {' | '.join(cells)} |", flush=True)


def _drawn(
    populations: Sequence[Float64], size: tuple[int, ...], samples: int
) -> tuple[list[Float64], Float64]:
    """Samples of populations, float64 [queries, samples] each, and their weights."""
    drawn = [
        random.choice(each, (queries, samples)) for each, queries in zip(populations, size, strict=False)
    ]
    return drawn, np.full(len(drawn), 1 / len(drawn))


def _held(
    populations: Sequence[Float64], size: tuple[int, ...], samples: int, low: float
) -> tuple[float, float]:
    """How often the interval holds the true mean where it is shown, and how often it is."""
    truth = np.mean([each.mean() for each in populations])
    made = estimate(*_drawn(populations, size, samples), low=low, high=1)
    start, end = np.array(made.ends, dtype=np.float64).T
    held = ((start <= truth + 1e-12) & (truth - 1e-12 <= end))[made.shown]
    return float(held.mean()) if len(held) else 1.0, float(made.shown.mean())


def _false_passes(
    populations: Sequence[Float64], size: tuple[int, ...], samples: int, margin: float
) -> float:
    """How often a gate passes what is worse by the margin."""
    strata, weights = _drawn(populations, size, samples)
    not_worse, _ = noninferiority(strata, np.full(samples, margin), weights)
    return float((not_worse < ALPHA).mean())


LOGGED, LABELLED, TOP = 2000, (25, 50, 100, 300), 10
DISCOUNTS = {"precision@10": np.full(TOP, 1 / TOP), "dcg@10": 1 / np.log2(np.arange(2, TOP + 2))}


class Apart(NamedTuple):
    """What two systems found, of each query: float64 [queries, 2 · TOP] each, 0 where there is no passage.

    `worth` is what a relevant passage adds to the difference; `grades` are people's, as shares of the highest
    grade; `enough` is the share from which a passage is relevant (0: the grade itself counts); `steps` is the
    number of grades above the lowest; `pooled`, float64 [queries], counts the passages in either's top ranks.
    """

    worth: Float64
    grades: Float64
    pooled: Float64
    enough: float = 0
    steps: int = 1

    def relevance(self, grades: Float64) -> Float64:
        """From 0 to 1, float64 of the same shape."""
        return (grades >= self.enough).astype(np.float64) if self.enough else grades

    def drawn(self, queries: int) -> Apart:
        """Queries drawn with replacement."""
        rows = random.integers(0, len(self.worth), queries)
        return self._replace(worth=self.worth[rows], grades=self.grades[rows], pooled=self.pooled[rows])


def _generated(discounts: Float64) -> Apart:
    """5,000 queries of smooth relevance, which differ in how hard they are and in which system they suit."""
    queries = 5000
    hard = random.normal(0, 1, (queries, 1)) + random.normal(0, 0.5, (queries, 2)) + [0.15, 0]
    relevance = 1 / (1 + np.exp(-np.repeat(hard, TOP, axis=1) - random.normal(0, 1, (queries, 2 * TOP))))
    apart = random.random((queries, TOP)) < 0.6  # the others are shared, at the same rank
    worth = np.concatenate([apart * discounts, apart * -discounts], axis=1) / discounts.sum()
    return Apart(worth, relevance, 2 * TOP - (worth[:, TOP:] == 0).sum(axis=1))


def _found(qrels: str, runs: Sequence[str], measure: str) -> list[Apart]:
    """Every two runs of a collection; for precision, half the highest grade or more is relevant."""
    judgments, read = read_qrels(qrels), [_top(run) for run in runs]
    passages, queries = judgments.passage_ids.to_pylist(), judgments.query_ids.to_pylist()
    highest = int(judgments.grades.max())
    enough = max(1, (highest + 1) // 2) / highest if measure.startswith("precision") else 0
    graded = {
        (queries[q], passages[p]): max(float(grade), 0) / highest
        for q, p, grade in zip(judgments.queries, judgments.passages, judgments.grades, strict=True)
    }
    discounts = DISCOUNTS[measure]
    discounts = discounts / discounts.sum()
    pairs = []
    for one, other in combinations(read, 2):
        empty = np.zeros((len(queries), 2 * TOP))
        made = Apart(empty, empty.copy(), np.zeros(len(queries)), enough, highest)
        for row, query in enumerate(queries):
            added: dict[str, float] = {}
            for sign, top in ((1, one.get(query, [])), (-1, other.get(query, []))):
                for place, passage in enumerate(top):
                    added[passage] = added.get(passage, 0) + sign * discounts[place]
            made.pooled[row] = len(added)
            for cell, (passage, worth) in enumerate(added.items()):
                made.worth[row, cell] = worth if abs(worth) > 1e-12 else 0
                made.grades[row, cell] = graded.get((query, passage), 0)
        pairs.append(made)
    return pairs


def _top(path: str) -> dict[str, list[str]]:
    run = read_run(path)
    queries, documents = run.query_ids.to_pylist(), run.documents.to_pylist()
    hits: dict[str, list[tuple[float, str]]] = {query: [] for query in queries}
    for query, document, score in zip(run.queries, documents, run.scores, strict=True):
        hits[queries[query]].append((float(score), document))
    return {
        query: [document for _, document in sorted(found, reverse=True)[:TOP]]
        for query, found in hits.items()
    }


def _judged(judge: str, pair: Apart) -> Float64:
    """The relevance by a judge instead of people, float64 [queries, 2 · TOP]."""
    worth, grades = pair.worth, pair.grades
    relevance, there = pair.relevance(grades), worth != 0
    if judge == "perfect":
        return relevance
    if judge == RANDOM_ERRORS:  # half of the labels are drawn from all labels
        return np.where(
            random.random(worth.shape) < 0.5, relevance, random.choice(relevance[there], worth.shape)
        )
    if judge == ONE_GRADE_OFF:
        return pair.relevance(_one_grade_off(grades, there, pair.steps))
    if judge == "coin":
        return (random.random(worth.shape) < 0.5).astype(np.float64)
    if judge == "all relevant":
        return np.ones(worth.shape)
    if judge == "in love with A":
        return (worth > 0).astype(np.float64)
    turned = random.random((len(worth), 1)) < 0.05  # adversarial: few of these are among the drawn
    return np.where(turned, worth < 0, relevance)


def _one_grade_off(grades: Float64, there: BoolArray, steps: int) -> Float64:
    """Labels of which so many are the next higher or lower grade that kappa is 0.5."""
    level = np.rint(grades * steps).astype(np.int64)
    moved = level + random.choice([-1, 1], level.shape)
    moved = np.where((moved < 0) | (moved > steps), 2 * level - moved, moved)
    of_people, off = (np.bincount(each[there], minlength=steps + 1) / there.sum() for each in (level, moved))
    # If a share p is moved, 1 - p agree; by chance a - p (a - b) do. p is where that makes kappa 0.5.
    a, b = of_people @ of_people, of_people @ off
    share = (1 - a) / (2 - a + b)
    return np.where(random.random(level.shape) < share, moved, level) / steps


RANDOM_ERRORS, ONE_GRADE_OFF = "kappa 0.5, random errors", "kappa 0.5, off by one grade"
JUDGES = (
    "perfect",
    ONE_GRADE_OFF,
    RANDOM_ERRORS,
    "coin",
    "all relevant",
    "in love with A",
    "right on 95%, else for B",
)


def simulate_judge(samples: int) -> None:
    """Print three tables: intervals, stopping, and pairs to judge."""
    sources = {"generated": {name: [_generated(discounts)] for name, discounts in DISCOUNTS.items()}}
    for qrels, *runs in rows_of:
        name = Path(qrels).parents[1].name
        sources[name] = {measure: _found(qrels, runs, measure) for measure in DISCOUNTS}
    print("| passages | judge | " + " | ".join(f"{n} labelled" for n in LABELLED) + " | at best |")
    print("|---|---|" + "---:|" * (len(LABELLED) + 1))
    judged = [
        (name, judge, [pair for pairs in source.values() for pair in pairs])
        for name, source in sources.items()
        for judge in JUDGES
        if judge != ONE_GRADE_OFF or next(iter(source.values()))[0].steps > 1
    ]
    for name, judge, pairs in judged:
        cells = []
        for n in LABELLED:
            made = [_interval(pair, judge, n) for pair in pairs for _ in range(-(-samples // len(pairs)))]
            held, alone, width, without = np.array(made).T
            cells.append(f"{_percent(held)} ({_percent(alone)}), {width.sum() / without.sum():.2f}")
        best = [
            _best_width(*systems_of(pair, judge)[:2]) for pair in pairs for _ in range(-(-20 // len(pairs)))
        ]
        cells.append(f"{np.mean(best):.2f}")
        print(f"| {name} | {judge} | {' | '.join(cells)} |", flush=True)
    print(
        "\n| passages | judge | false winners, A and B equal | decided | after, median | without judge "
        "| after |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for name, judge, pairs in judged:
        times = -(-samples // 4 // len(pairs))
        stopped = np.array([_stopped(pair, judge) for pair in pairs for _ in range(times)])
        false, with_judge, alone = stopped.T
        cells = [_percent(false > 0)]
        for after in (with_judge, alone):
            median = f"{np.median(after[after > 0]):.0f}" if (after > 0).any() else "–"
            cells += [_percent(after > 0), median]
        print(f"| {name} | {judge} | {' | '.join(cells)} |", flush=True)
    print(
        "\n| passages | measure | pairs pooled | that can change the difference "
        "| until certain, in random order | most important first | saved of the pool | of random order "
        "| at best |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, source in sources.items():
        for measure, pairs in source.items():
            n = 40
            pooled, listed = (
                n * np.mean([each.mean() for each in counts])
                for counts in (
                    [pair.pooled for pair in pairs],
                    [(pair.worth != 0).sum(axis=1) for pair in pairs],
                )
            )
            needed = [_until_certain(pair, n) for pair in pairs for _ in range(max(samples // 200, 1))]
            by_chance, by_worth, knowing = np.mean(needed, axis=0)
            cells = [f"{each:.0f}" for each in (pooled, listed, by_chance, by_worth)]
            saved = (1 - by_worth / pooled, 1 - by_worth / by_chance, 1 - knowing / by_chance)
            cells += [_percent(np.array([share])) for share in saved]
            print(f"| {name} | {measure} | {' | '.join(cells)} |", flush=True)


def _best_width(human: Float64, judged: Float64) -> float:
    """The width by the weight that is best for all queries, as a share of that without a judge."""
    return float(np.sqrt(1 - np.corrcoef(human, judged)[0, 1] ** 2)) if judged.std() else 1.0


def _interval(pair: Apart, judge: str, n: int) -> tuple[bool, bool, float, float]:
    """Whether the interval holds the mean, with the judge and without, and the widths of both."""
    queries = systems_of(pair, judge)
    made, _ = queries.estimate("by range", n)
    both, alone, truth = made.by_both, made.without_judge, float(queries.human.mean())
    widths = both.ci_high - both.ci_low, alone.ci_high - alone.ci_low
    return _holds(both, truth), _holds(alone, truth), *widths


def _holds(interval: Interval, truth: float) -> bool:
    return interval.ci_low - 1e-12 <= truth <= interval.ci_high + 1e-12


def _stopped(pair: Apart, judge: str) -> tuple[int, int, int]:
    """After how many labels there is a false winner of equal systems; a right one, with judge and without.

    0 where there is none after 300.
    """
    queries = systems_of(pair, judge)
    can = queries.high > queries.low
    human, judged, low, high, weights = (
        values[can] for values in (*queries[:4], queries.weights("by range"))
    )
    truth = human.mean()
    drawn = np.argsort(random.exponential(size=len(human)) / weights)[: LABELLED[-1]]
    bets = BetsInOrder((human - truth)[drawn], low - truth, high - truth, judged, drawn, weights)
    false, _ = bets.decided(0.05)
    found = []
    for labels in (judged, np.zeros(len(human))):
        after, side = BetsInOrder(human[drawn], low, high, labels, drawn, weights).decided(0.05)
        found.append(after if side * truth > 0 else 0)
    return false, found[0], found[1]


def _until_certain(pair: Apart, n: int) -> tuple[int, int, int]:
    """Pairs of n queries judged until the sign of their mean is certain: at random of all; by worth.

    The last number is the fewest that any order can need: those that move the winner's bound most come first.
    """
    drawn = pair.drawn(n)
    worth, relevance = drawn.worth.ravel(), drawn.relevance(drawn.grades).ravel()
    cells = np.flatnonzero(worth)
    shared = int(drawn.pooled.sum()) - len(cells)  # which say nothing
    by_chance = random.permutation(np.concatenate([cells, np.full(shared, -1)]))
    by_worth = cells[np.argsort(-np.abs(worth[cells]), kind="stable")]
    winner = np.sign((worth * relevance).sum())
    # how far a judgment moves the winner's bound towards the difference
    moves = np.abs(worth) * np.where(worth * winner > 0, relevance, 1 - relevance)
    knowing = cells[np.argsort(-moves[cells], kind="stable")]
    needed = []
    for order in (by_chance, by_worth, knowing):
        known = np.where(order < 0, 0, worth[order] * relevance[order])
        left = np.where(order < 0, 0, worth[order])
        low = np.cumsum(known) + np.minimum(left, 0).sum() - np.cumsum(np.minimum(left, 0))
        high = np.cumsum(known) + np.maximum(left, 0).sum() - np.cumsum(np.maximum(left, 0))
        certain = np.flatnonzero((low > 1e-9) | (high < -1e-9))
        needed.append(int(certain[0]) + 1 if len(certain) else len(order))
    return needed[0], needed[1], needed[2]


class Logged(NamedTuple):
    """Logged queries, float64 [LOGGED] each.

    `human` and `judged` are differences by people and by a judge, between `low` and `high`; `spread` is the
    root of the sum of squares of what each differing passage may add; `pairs` counts them.
    """

    human: Float64
    judged: Float64
    low: Float64
    high: Float64
    spread: Float64
    pairs: Float64

    def weights(self, draws: str) -> Float64:
        """What queries are drawn in proportion to."""
        farthest = np.maximum(-self.low, self.high)
        weights: dict[str, Float64] = {
            "uniform": np.ones(len(farthest)),
            "by range": farthest + LEAST * farthest.mean(),
            "by judge": np.hypot(self.spread, self.judged),
        }
        return weights[draws]

    def estimate(self, draws: str, n: int) -> tuple[PredictionPoweredEstimate, Int64]:
        """An estimate by so many labels, and the rows of the labelled queries."""
        can = np.flatnonzero(self.high > self.low) if draws != "uniform" else np.arange(len(self.low))
        low, high, judged, weights = (v[can] for v in (self.low, self.high, self.judged, self.weights(draws)))
        drawn = np.argsort(random.exponential(size=len(can)) / weights)[:n]
        made = estimate_with_judge(self.human[can[drawn]], judged, drawn, weights, low, high)
        share = len(can) / len(self.low)
        both, alone = (each.moved(0, share) for each in (made.by_both, made.without_judge))
        return replace(made, by_both=both, without_judge=alone), can[drawn]


def judged_losses(share: float, loss: float, judge: str, overlap: bool) -> Logged:
    """Queries that lose much and rarely, others that win 0.1 or nothing; the mean is near 0.

    With `overlap`, the rankings of the others differ in one passage; else nothing is known of them.
    """
    loses = random.random(LOGGED) < share
    wins = random.random(LOGGED) < share * loss / (1 - share) / 0.1
    human = np.where(loses, -loss, np.where(wins, 0.1, 0.0))
    judged = {
        "right": human,
        "blind to losses": np.where(loses, 0, human),
        "sees half the losses": np.where(loses & (random.random(LOGGED) < 0.5), 0, human),
        "70% right": np.where(random.random(LOGGED) < 0.7, human, random.choice(human, LOGGED)),
    }[judge]
    high = np.where(loses, 1, 0.1) if overlap else np.ones(LOGGED)
    return Logged(human, judged, -high, high, np.sqrt(high / 5), 20 * high)


def systems_of(pair: Apart, judge: str, errs: float = 0) -> Logged:
    """Logged queries of two systems; `errs` of them lose all that they can, and the judge does not see it."""
    drawn = pair.drawn(LOGGED)
    worth = drawn.worth
    low, high = np.minimum(worth, 0).sum(axis=1), np.maximum(worth, 0).sum(axis=1)
    human = (worth * drawn.relevance(drawn.grades)).sum(axis=1)
    judged = (worth * _judged(judge, drawn)).sum(axis=1)
    human = np.where(random.random(LOGGED) < errs, low, human)
    spread = np.sqrt((worth**2).sum(axis=1))
    return Logged(human, judged, low, high, spread, (worth != 0).sum(axis=1).astype(np.float64))


LOSSES = ((0.02, 1.0), (0.05, 0.8), (0.05, 0.5), (0.1, 0.5))
LOSS_JUDGES = ("blind to losses", "sees half the losses", "70% right", "right")
FEW_LABELS = (25, 40, 100)


def simulate_labels(samples: int) -> None:
    """Print two tables: rare losses; and labels that give the width of 40 which are drawn uniformly.

    "Before" is an interval without the rules for a mean.
    """
    count = max(samples // 5, 1)
    print("| differences | judge | drawn | labels | before: held | winner | shown | held | winner |")
    print("|---|---|---|" + "---:|" * 6)
    sources = [
        (Path(qrels).parents[1].name, [pair for m in DISCOUNTS for pair in _found(qrels, runs, m)])
        for qrels, *runs in rows_of
    ]
    cases: list[tuple[str, str, Sequence[str], list[Callable[[], Logged]]]] = [
        (f"{share:.0%} lose {loss}", judge, ["uniform"], [partial(judged_losses, share, loss, judge, False)])
        for share, loss in LOSSES
        for judge in LOSS_JUDGES
    ]
    cases += [
        (
            f"{name}, {errs:.0%} lose all",
            f"blind to them, else {RANDOM_ERRORS}",
            ["uniform", "by range"],
            [partial(systems_of, pair, RANDOM_ERRORS, errs) for pair in pairs],
        )
        for name, pairs in sources
        for errs in (0.02, 0.04, 0.07)
    ]
    for name, judge, draws, makers in cases:
        for drawn in draws:
            for n in FEW_LABELS:
                cells = _of_labels(makers * -(-count // len(makers)), drawn, n)
                print(f"| {name} | {judge} | {drawn} | {n} | {cells} |", flush=True)
    print("\n| queries | judge | drawn | labels | pairs | shown, 40 labels | held | held if shown |")
    print("|---|---|---|" + "---:|" * 5)
    of_systems: list[tuple[str, str, list[Callable[[], Logged]]]] = [
        (name, judge, [partial(systems_of, pair, judge) for pair in pairs])
        for name, pairs in sources
        for judge in ("coin", RANDOM_ERRORS, ONE_GRADE_OFF)
        if judge != ONE_GRADE_OFF or pairs[0].steps > 1
    ]
    of_systems += [
        ("2% lose 1, others 0 to 0.1", judge, [partial(judged_losses, 0.02, 1.0, judge, True)])
        for judge in ("blind to losses", "right")
    ]
    for name, judge, makers in of_systems:
        _print_labels(name, judge, makers * -(-count // len(makers)))


def _of_labels(makers: Sequence[Callable[[], Logged]], draws: str, n: int) -> str:
    """How often intervals hold, and how often they name a false winner: without rules, and by the rules."""
    rows = []
    for queries in (make() for make in makers):
        made, _ = queries.estimate(draws, n)
        truth, shown = float(queries.human.mean()), made.unshown == ""
        before, now = made.without_judge, made.by_both
        false = [each.ci_low > 0 >= truth or each.ci_high < 0 <= truth for each in (before, now)]
        rows.append([_holds(before, truth), false[0], shown, _holds(now, truth), shown and false[1]])
    alone, winner, shown, held, false = np.array(rows).T
    if_shown = _percent(held[shown]) if shown.any() else "–"
    return " | ".join([*map(_percent, (alone, winner, shown)), if_shown, _percent(false)])


LABEL_COUNTS = (12, 16, 20, 25, 32, 40, 50)


def _print_labels(name: str, judge: str, makers: Sequence[Callable[[], Logged]]) -> None:
    """Print how many labels of each way of drawing give the width of 40 uniform ones by people alone."""
    sampled = [make() for make in makers]
    wide = [queries.estimate("uniform", 40)[0].without_judge for queries in sampled]
    width = np.mean([each.ci_high - each.ci_low for each in wide])
    for draws in ("uniform", "by range", "by judge"):
        widths, pairs = [], []
        for n in LABEL_COUNTS:
            made = [queries.estimate(draws, n) for queries in sampled]
            widths.append(np.mean([each.by_both.ci_high - each.by_both.ci_low for each, _ in made]))
            pairs.append(
                np.mean([q.pairs[labelled].sum() for q, (_, labelled) in zip(sampled, made, strict=True)])
            )
            if n == 40:
                shown = np.array([each.unshown == "" for each, _ in made])
                held = np.array(
                    [_holds(each.by_both, q.human.mean()) for q, (each, _) in zip(sampled, made, strict=True)]
                )
        # widths fall with labels, and np.interp wants what rises
        needed = float(np.exp(np.interp(-np.log(width), -np.log(widths), np.log(LABEL_COUNTS))))
        cells = [f"{needed:.0f}", f"{np.interp(needed, LABEL_COUNTS, pairs):.0f}"]
        cells += [_percent(each) for each in (shown, held, held[shown])]
        print(f"| {name} | {judge} | {draws} | {' | '.join(cells)} |", flush=True)


PARTS: dict[str, Callable[[int], None]] = {
    "intervals": simulate_intervals,
    "losses": simulate_losses,
    "tests": simulate_tests,
    "detect": simulate_detect,
    "suites": simulate_suites,
    "shared": simulate_shared,
    "gate": simulate_gate,
    "rare": simulate_rare,
    "many_gates": simulate_many_gates,
    "spreads": simulate_spreads,
    "clusters": simulate_clusters,
    "collections": simulate_collections,
    "real": simulate_real,
    "separated": simulate_separated,
    "needed": simulate_needed,
    "judge": simulate_judge,
    "labels": simulate_labels,
}
OF_ROWS = ("real", "separated")
"""Parts of real runs alone."""


def main() -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument(
        "--samples", type=int, default=2000, help="samples of each row; a bootstrap has a fifth"
    )
    parser.add_argument("--rows", nargs="+", action="append", default=[], help="judgments, and runs")
    arguments = parser.parse_args()
    rows_of.extend(arguments.rows)
    for name in arguments.parts or [name for name in PARTS if rows_of or name not in OF_ROWS]:
        PARTS[name](arguments.samples)
        print()


if __name__ == "__main__":
    main()
