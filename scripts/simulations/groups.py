"""Marks of groups of queries: of groups that are alike, and of one that is worse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics import paired
from pipeline.studies.groups.group_tests import compare_with_rest, difference_tests, smallest_shown
from simulations.values import LEVEL, Cell, Figure, each_size, percent, random

SPREADS = (
    ((0.4, 0.25, 0.15), (0.2, 0.3, 0.5)),
    ((0.4, 0.2, 0.2), (0.1, 0.3, 0.6)),
    ((0.4, 0.1, 0.1), (0.2, 0.4, 0.4)),
    ((0.4, 0.1), (0.1, 0.9)),
)
"""Groups of equal means: the standard deviation of each, and its share of the queries."""
SHAPES: dict[str, Callable[[int], Float64]] = {
    "normal": lambda n: random.normal(0, 1, n),
    "two values": lambda n: random.choice([-1.0, 1.0], n),
    "skewed": lambda n: random.exponential(1, n) - 1,
}


def spreads(samples: int) -> Iterator[Cell]:
    """Groups that have the same mean and another spread; three more groupings into thirds are at random."""
    cases = (
        (f"deviations {deviations} of {shares}, {shape}", (deviations, shares, draw, samples // 2))
        for deviations, shares in SPREADS
        for shape, draw in SHAPES.items()
    )
    return each_size(cases, _spreads, (60, 114, 300))


def _spreads(
    deviations: Sequence[float],
    shares: Sequence[float],
    draw: Callable[[int], Float64],
    samples: int,
    n_queries: int,
) -> list[Figure]:
    before, after = [], []
    for _ in range(samples):
        labels = random.choice(len(shares), n_queries, p=shares)
        groups = _with_thirds(labels)
        values = 0.5 + np.array(deviations)[labels] * draw(n_queries)
        before.append(_marked_by_difference(values, groups))
        after.append(bool((compare_with_rest(values[:, None], groups) < LEVEL).any()))
    return [Figure("any mark; before: by the difference of means", percent(before), percent(after))]


def _with_thirds(labels: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[BoolArray]:
    """Its groups, and those of three groupings into thirds at random; bool [queries] each."""
    groupings = [labels, *(random.permutation(np.arange(len(labels)) % 3) for _ in range(3))]
    return [each == group for each in groupings for group in range(each.max() + 1)]


def _marked_by_difference(values: Float64, groups: Sequence[BoolArray]) -> bool:
    """Whether permutations of the plain difference of means, corrected for all groups, mark any."""
    n = len(values)
    is_in = np.array([group for group in groups if 0 < group.sum() < n], dtype=np.float64)
    sizes = is_in.sum(axis=1)
    scale, centred = np.sqrt(n / (sizes * (n - sizes))), values - values.mean()
    drawn = random.permuted(np.tile(centred, (paired.PERMUTATIONS, 1)), axis=1)
    most = (np.abs(drawn @ is_in.T) * scale).max(axis=1)
    return bool((1 + (most >= (np.abs(is_in @ centred) * scale).max()).sum()) / (1 + len(drawn)) < LEVEL)


SIZES = (36, 30, 26, 22)
QUERIES = sum(SIZES)
WORSE = 3  # the group that is made worse
KINDS: dict[str, Callable[[Float64], Float64]] = {
    "success, mean 0.8": lambda better: (random.random(QUERIES) < 0.8 * better).astype(np.float64),
    "MRR-like": lambda better: _reciprocal_ranks(better),
    "nDCG-like": lambda better: random.beta(2, 1.1, QUERIES) * better,
    "nDCG-like, half are 1": lambda better: np.where(
        random.random(QUERIES) < 0.5 * better, 1, random.beta(2, 1.1, QUERIES) * better
    ),
}
"""Values per query; `better`, float64 [queries], is 1, and less in queries that are done worse."""


def _reciprocal_ranks(better: Float64) -> Float64:
    """Of a relevant passage that is at each rank with a probability of about 0.6 of those that remain."""
    ranks = random.geometric(np.clip(0.6 * better, 0.02, 1))
    return np.where(ranks <= 10, 1 / ranks, 0)


def groups(samples: int) -> Iterator[Cell]:
    """One result, or two, in 4 groups and three groupings into thirds at random."""
    for name, draw in KINDS.items():
        yield Cell(name, str(QUERIES), partial(_groups, draw, samples // 2))
    for loss in (0.0, 0.2, 0.4):
        yield Cell(f"a pair, loss of {loss} in one of 4", str(QUERIES), partial(_pair, loss, samples // 2))


def _groups(draw: Callable[[Float64], Float64], samples: int) -> list[Figure]:
    none, there = [], []
    for _ in range(samples):
        inside = _with_thirds(np.repeat(np.arange(len(SIZES)), SIZES))
        values = draw(np.ones(QUERIES))
        none.append((compare_with_rest(values[:, None], inside) < LEVEL).any())
        halved = draw(np.where(inside[WORSE], 0.5, 1))
        there.append(compare_with_rest(halved[:, None], inside)[WORSE, 0] < LEVEL)
    return [Figure("any mark", "", percent(none)), Figure("one made half as good: found", "", percent(there))]


def _pair(loss: float, samples: int) -> list[Figure]:
    counts = []
    for _ in range(samples):
        inside = _with_thirds(np.repeat(np.arange(len(SIZES)), SIZES))
        ours, theirs = random.beta(2, 1.1, (2, QUERIES))
        tied = random.random(QUERIES) < 0.2
        differences = np.where(tied, 0, (ours - theirs) / 2) + np.where(inside[WORSE], loss, 0)
        smallest = smallest_shown([int(group.sum()) for group in inside], 1)
        shown = difference_tests(differences[:, None], inside, 1.0, smallest)[2][:, 0] < LEVEL
        apart = [row for row, group in enumerate(inside) if not (group & inside[WORSE]).any()]
        counts.append((shown[apart].any(), shown[WORSE]))
    false, found = map(percent, np.array(counts).T)
    return [Figure("any false mark", "", false)] + [Figure("the loss found", "", found)] * (loss > 0)
