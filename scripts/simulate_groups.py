#!/usr/bin/env python3
"""Simulates how often groups of queries are marked that are not special, and how often one that is.

    .venv/bin/python scripts/simulate_groups.py --samples 400

One result of 114 queries, grouped as on the built-in sample: a partition into 4 groups, the smallest of 22
queries, and three into thirds. Counted are results with any mark, by Welch's t-tests with Holm's correction
and by the permutation test that `compare --groups` uses; and, of results that are worse in one group of 4,
those in which it is marked. Then pairs of results, of which the second is as good or worse in that group.
`--rows QRELS RUN RUN…` adds values of real runs, drawn with replacement.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from sys import path

import numpy as np
from scipy.stats import ttest_ind

path.insert(0, str(Path(__file__).resolve().parents[1]))

from pipeline import evaluate
from pipeline.core.records import BoolArray, Float64
from pipeline.metrics import resampling
from pipeline.metrics.paired import LEVEL, compare_with_rest, difference_tests, holm, smallest_shown

SIZES = (36, 30, 26, 22)
QUERIES = sum(SIZES)
WORSE = 3  # the group that is made worse
random = np.random.default_rng(7)


def reciprocal_ranks(better: Float64) -> Float64:
    """Of a relevant passage that is at each rank with a probability of about 0.6 of those that remain."""
    ranks = random.geometric(np.clip(0.6 * better, 0.02, 1))
    return np.where(ranks <= 10, 1 / ranks, 0)


def successes(better: Float64) -> Float64:
    """1 at eight queries of ten."""
    return (random.random(QUERIES) < 0.8 * better).astype(np.float64)


def graded(better: Float64) -> Float64:
    """Values of a smooth distribution."""
    values: Float64 = random.beta(2, 1.1, QUERIES) * better
    return values


VALUES: dict[str, Callable[[Float64], Float64]] = {
    "success, mean 0.8": successes,
    "MRR-like": reciprocal_ranks,
    "nDCG-like": graded,
    "nDCG-like, half are 1": lambda better: np.where(
        random.random(QUERIES) < 0.5 * better, 1, graded(better)
    ),
}
"""Values per query; `better`, float64 [queries], is 1, and less in queries that are done worse."""


def of_runs(qrels: str, runs: list[str]) -> dict[str, Callable[[Float64], Float64]]:
    """Values of real runs by measure, of another run each time."""
    scored = [evaluate(qrels, run, measures="ndcg@10,mrr@10,success@1") for run in runs]

    def sampler(column: int) -> Callable[[Float64], Float64]:
        def draw(better: Float64) -> Float64:
            values = scored[random.integers(len(scored))].values[:, column]
            kept = random.random(QUERIES) < better  # else nothing is found
            return np.where(kept, random.choice(values, QUERIES), 0)

        return draw

    where = Path(qrels).parents[1].name
    return {f"{measure}, {where}": sampler(i) for i, measure in enumerate(scored[0].measures)}


def groups_of() -> list[BoolArray]:
    """A partition into 4, and three random ones into thirds; bool [queries] each."""
    labels = [np.repeat(np.arange(len(SIZES)), SIZES)]
    labels += [random.permutation(np.arange(QUERIES) % 3) for _ in range(3)]
    return [each == group for each in labels for group in range(each.max() + 1)]


def by_welch(values: Float64, groups: list[BoolArray]) -> BoolArray:
    """Bool [groups]: marked by Welch's t-tests with Holm's correction."""
    found = []
    for inside in groups:
        ours, theirs = values[inside], values[~inside]
        varies = np.ptp(ours) > 1e-12 or np.ptp(theirs) > 1e-12
        found.append(ttest_ind(ours, theirs, equal_var=False).pvalue if varies else ours[0] != theirs[0])
    return holm(np.array(found)) < LEVEL


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--rows", nargs="+", action="append", default=[], help="judgments, and runs")
    arguments = parser.parse_args()
    samples, drawn = arguments.samples, dict(VALUES)
    for qrels, *runs in arguments.rows:
        drawn |= of_runs(qrels, runs)
    resampling.PERMUTATIONS = 999
    print("| values | any mark, Welch | any mark | one of 4 halved: marked | another of the 4 marked |")
    print("|---|---:|---:|---:|---:|")
    for name, draw in drawn.items():
        welch, none, there, others = [], [], [], []
        for _ in range(samples):
            groups = groups_of()
            values = draw(np.ones(QUERIES))
            welch.append(by_welch(values, groups).any())
            none.append((compare_with_rest(values[:, None], groups) < LEVEL).any())
            halved = draw(np.where(groups[WORSE], 0.5, 1))
            marked = compare_with_rest(halved[:, None], groups)[: len(SIZES), 0] < LEVEL
            there.append(marked[WORSE])
            others.append(np.delete(marked, WORSE).any())
        cells = (f"{100 * np.mean(each):.1f}" for each in (welch, none, there, others))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print()
    print("| loss in one group of 4 | any group shown | one without a loss | that group |")
    print("|---:|---:|---:|---:|")
    for loss in (0.0, 0.2, 0.4):
        counts = np.zeros(3)
        for _ in range(samples):
            groups = groups_of()
            worse = groups[WORSE]
            smallest = smallest_shown([int(group.sum()) for group in groups], 1)
            ours, theirs = random.beta(2, 1.1, (2, QUERIES))
            tied = random.random(QUERIES) < 0.2
            differences = np.where(tied, 0, (ours - theirs) / 2) + np.where(worse, loss, 0)
            shown = difference_tests(differences[:, None], groups, smallest)[1][:, 0] < LEVEL
            apart = [row for row, group in enumerate(groups) if not (group & worse).any()]
            counts += [shown.any(), shown[apart].any(), shown[WORSE]]
        print(f"| {loss} | {' | '.join(f'{100 * count / samples:.1f}' for count in counts)} |", flush=True)


if __name__ == "__main__":
    main()
