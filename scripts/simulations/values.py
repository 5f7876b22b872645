"""What simulations share: the cells of their table, and random values per query whose means are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pipeline.core.records import Float64

random = np.random.default_rng(20190)
"""Seeded again for each cell, so that its figures depend on nothing else."""
SIZES = (25, 43, 114, 300)
"""Numbers of queries."""
LEVEL, MARGIN = 0.05, 0.01
FEWEST = 20
"""Fewer samples than these have no share."""

Sampler = Callable[[int, int], Float64]
"""Values for a number of samples and queries, float64 [samples, queries]."""


class Figure(NamedTuple):
    """What is counted, in percent if nothing else is said: by the plain method, and by what is promised."""

    name: str
    before: str
    after: str


class Cell(NamedTuple):
    """A case of known truth, a number of queries, and what simulates it."""

    case: str
    queries: str
    simulate: Callable[[], Iterable[Figure]]


Simulation = Callable[[int], Iterator[Cell]]
"""The cells of a promise, for a number of samples."""


def each_size(
    cases: Iterable[tuple[str, Sequence[Any]]],
    simulate: Callable[..., Iterable[Figure]],
    sizes: Sequence[int] = SIZES,
) -> Iterator[Cell]:
    """Every case with every number of queries, which `simulate` gets after the case's own arguments."""
    for case, arguments in cases:
        for queries in sizes:
            yield Cell(case, f"{queries:,}", partial(simulate, *arguments, queries))


def percent(held: ArrayLike) -> str:
    """The share of what is true; "" of too few."""
    values = np.asarray(held)
    return f"{100 * values.mean():.1f}" if values.size >= FEWEST else ""


def covers(
    ends: Sequence[tuple[float | None, float | None]], truth: ArrayLike
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Bool [intervals]: whether each of float64 [intervals, 2] contains the truth; not those without ends."""
    low, high = np.asarray(ends, dtype=np.float64).T
    inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = (low - 1e-12 <= truth) & (truth <= high + 1e-12)
    return inside


def by_mark(what: str, by_t: ArrayLike, held: ArrayLike, fragile: ArrayLike) -> list[Figure]:
    """Coverage of intervals: by t and as shown, then of those without and with `~`, bool [samples] each.

    What is missed without `~` is a share of all samples. What too few samples have is left out.
    """
    covered, marked = np.asarray(held), np.asarray(fragile)
    figures = [
        Figure(f"{what} held", percent(by_t), percent(covered)),
        Figure(f"{what} held, without ~", "", percent(covered[~marked])),
        Figure(f"{what} held, with ~", "", percent(covered[marked])),
        Figure(f"marked ~: {what}", "", percent(marked)),
        Figure(f"missed without ~: {what}", "", percent(~covered & ~marked)),
    ]
    return [figure for figure in figures if figure.after]


class Values(NamedTuple):
    """Values of a measure, or differences, with their true mean and range."""

    draw: Sampler
    mean: float
    low: float = 0.0
    high: float = 1.0


RANKS = 1 / np.arange(1, 11)


def of_ranks(first: float, missed: float) -> Values:
    """Reciprocal ranks: `first` at rank 1, `missed` not in the top 10, the rest at ranks 2 to 10."""
    shares = [first, *np.full(9, (1 - first - missed) / 9), missed]
    mean = first + (1 - first - missed) / 9 * RANKS[1:].sum()
    return Values(lambda *size: random.choice([*RANKS, 0], size, p=shares), mean)


def mostly_ties(samples: int, queries: int) -> Float64:
    """Differences that are 0 in nine queries of ten."""
    drawn = random.normal(0.1, 0.3, (samples, queries))
    return drawn * (random.random((samples, queries)) < 0.1)


def binary(share: float) -> Values:
    """Success of a share of the queries."""
    return Values(lambda *size: (random.random(size) < share).astype(np.float64), share)


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


VALUES = {
    "nDCG-like, mean 0.65": Values(lambda *size: random.beta(2, 1.1, size), 2 / 3.1),
    "nDCG-like, mean 0.5, most near 0 or 1": Values(lambda *size: random.beta(0.5, 0.5, size), 0.5),
    "nDCG-like, mean 0.2, skewed": Values(lambda *size: random.beta(0.4, 1.6, size), 0.2),
    "MRR-like, mean 0.36": of_ranks(0.25, 0.35),
    "MRR-like, mean 0.89": of_ranks(0.86, 0.01),
    "binary, 0.5": binary(0.5),
    "binary, 0.9": binary(0.9),
    "binary, 0.96": binary(0.96),
    "binary, 0.98": binary(0.98),
    "recall-like, 60% are 1, 3% are 0": Values(near_one, 0.6 + 0.37 * 0.945),
    "DCG-like, 2% are 0, no highest": Values(dcg_like, 0.98 * 0.95 * 4.54, high=np.inf),
    "differences, 9 of 10 ties": Values(mostly_ties, 0.01, -1),
    "differences, 80% ties, 3% lose 1": Values(rare_losses, -0.03, -1),
}


def rare(share: float, loss: float, deviation: float, ties: float = 0) -> Sampler:
    """Differences with a mean of 0: few losses, some ties, and others that make up for the losses."""

    def draw(samples: int, queries: int) -> Float64:
        kind = random.random((samples, queries))
        others = random.normal(share * loss / (1 - share - ties), deviation, kind.shape)
        return np.where(kind < share, -loss, np.where(kind < share + ties, 0, others))

    return draw


def skewed_losses(samples: int, queries: int) -> Float64:
    """Differences of a mean of 0: small gains at most queries, and a large loss at one in ten."""
    lost = random.random((samples, queries)) < 0.1
    return np.where(lost, -0.45, 0.05) * random.uniform(0.5, 1.5, (samples, queries))


DIFFERENCES: dict[str, Sampler] = {
    "normal": lambda *size: random.normal(0, 0.1, size),
    "6 of 10 ties": lambda *size: random.normal(0, 0.15, size) * (random.random(size) < 0.4),
    "7 of 8 ties": lambda *size: random.normal(0, 0.1, size) * (random.random(size) < 1 / 8),
    "rare large losses": skewed_losses,
}
"""Differences with a mean of 0."""


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
"""Values of runs that are equally good, but for `some_differ`: float64 [queries, runs]."""
