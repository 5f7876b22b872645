"""Verdicts of the gate where the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from scipy.special import stdtrit

from pipeline.core.records import BoolArray, Float64
from pipeline.metrics.paired import detectable_difference, queries_needed
from pipeline.metrics.statistics import ONE, estimate
from pipeline.studies.gate.betting import Bets
from pipeline.studies.gate.margin_tests import (
    noninferiority,
    with_one_more,
)
from simulations.values import (
    DIFFERENCES,
    LEVEL,
    MARGIN,
    Cell,
    Figure,
    Sampler,
    each_size,
    percent,
    random,
    rare,
    skewed_losses,
)

BETS = 100  # samples of a cell that are bet on
BINARY = ((0, 0.01), (0.01, 0.02), (0.05, 0.06), (0.2, 0.21))
"""Shares of queries that win and lose: worse by the margin."""
RARE = (
    (0.01, 1.0, 0.001), (0.01, 1.0, 0.02), (0.02, 0.9, 0.01), (0.02, 0.9, 0.05), (0.02, 0.9, 0.1),
    (0.05, 0.9, 0.01), (0.05, 0.9, 0.1), (0.05, 0.5, 0.02), (0.1, 0.6, 0.02),
)  # fmt: skip
"""Queries that lose much: their share, the loss, and the standard deviation of all others' differences."""


def by_rates(wins: float, losses: float) -> Sampler:
    """Differences of a binary measure."""

    def draw(samples: int, queries: int) -> Float64:
        kind = random.random((samples, queries))
        return np.where(kind < wins, 1.0, np.where(kind < wins + losses, -1.0, 0.0))

    return draw


def gates(samples: int) -> Iterator[Cell]:
    """Results that are worse by exactly the margin, and results that are equally good."""
    noise: dict[str, Sampler] = {"noise of 0.0001": lambda *size: random.normal(0, 1e-4, size)}
    cases: dict[str, tuple[Sampler, Sampler]] = {
        name: (lambda *size, draw=draw: draw(*size) - MARGIN, draw)
        for name, draw in (DIFFERENCES | noise).items()
    }
    for wins, losses in BINARY:
        cases[f"binary, {wins:.0%} win, {losses:.0%} lose"] = by_rates(wins, losses), by_rates(wins, wins)
    sizes = (25, 43, 114, 300, 1000)
    return each_size(((name, (*draws, samples)) for name, draws in cases.items()), _gates, sizes)


def _gates(at_margin: Sampler, equal: Sampler, samples: int, n_queries: int) -> list[Figure]:
    figures = []
    for name, draw in (("false passes", at_margin), ("passes where equal", equal)):
        values = draw(samples, n_queries).T
        not_worse, is_worse = noninferiority([values], np.full(samples, MARGIN))
        bet = [Bets.of_one(one.clip(-1, 1)).p_value(-MARGIN) < LEVEL for one in values.T[:BETS]]
        figures += by_mark_of_verdict(name, values, not_worse, by_t(values))
        figures.append(Figure(f"{name}, --guarantee", "", percent(bet)))
        if draw is at_margin:
            figures += by_mark_of_verdict("false fails", values, is_worse, by_t(values, -1), 1)
    return figures


def by_mark_of_verdict(
    name: str, values: Float64, p: Float64, t_alone: BoolArray, side: int = 0, margin: float = MARGIN
) -> list[Figure]:
    """How many verdicts there are, of differences float64 [queries, samples], and how many without `~`.

    Args:
        name: Of the verdict.
        values: Differences.
        p: float64 [samples], by the gate.
        t_alone: bool [samples]: the verdict of a t-test.
        side: 0 for passes, 1 for fails.
        margin: Of the gate.
    """
    undone = with_one_more([values], np.full(len(p), margin), ONE, 1.0)[side] >= LEVEL
    return [
        Figure(name, percent(t_alone), percent(p < LEVEL)),
        Figure(f"{name} without ~", "", percent((p < LEVEL) & ~undone)),
    ]


def by_t(values: Float64, sign: int = 1, margin: float = MARGIN) -> BoolArray:
    """Bool [samples]: whether a one-sided t-test finds the mean above minus the margin; below, by sign -1."""
    found = estimate([values])
    above = sign * (found.means + margin)
    t = np.divide(above, found.errors, out=np.copysign(np.inf, above), where=found.errors > 0)
    passes: BoolArray = t > stdtrit(len(values) - 1, 1 - LEVEL)
    return passes


def suite_gates(samples: int) -> Iterator[Cell]:
    """Suites whose macro mean is worse by the margin; in some the first collection loses all."""
    for sizes in ((25, 25), (43, 114, 300), (50,) * 6, (50, 1000)):
        label = ", ".join(map(str, sizes))
        first = by_rates(0, MARGIN * len(sizes))
        cases: dict[str, list[Sampler]] = {
            f"binary, {wins:.0%} win": [by_rates(wins, losses)] * len(sizes) for wins, losses in BINARY
        }
        others = len(sizes) - 1
        cases["losses in one, others tie"] = [first, *[lambda *size: np.zeros(size)] * others]
        cases["losses in one, others normal"] = [first, *[DIFFERENCES["normal"]] * others]
        for name, draws in cases.items():
            yield Cell(f"suite: {name}", label, partial(_suite_gate, draws, sizes, samples))


def _suite_gate(draws: list[Sampler], sizes: tuple[int, ...], samples: int) -> list[Figure]:
    strata = [draw(samples, size).T for draw, size in zip(draws, sizes, strict=True)]
    weights, margins = np.full(len(sizes), 1 / len(sizes)), np.full(samples, MARGIN)
    passes = noninferiority(strata, margins, weights)[0] < LEVEL
    undone = with_one_more(strata, margins, weights, 1.0)[0] >= LEVEL
    marked = Figure("false passes without ~", "", percent(passes & ~undone))
    return [Figure("false passes", "", percent(passes)), marked]


def rare_losses(samples: int) -> Iterator[Cell]:
    """Results worse by exactly the margin, of which few queries lose much, or gain much."""
    cases = {f"{q:.0%} lose {loss:g}, others ± {sd:g}": rare(q, loss, sd) for q, loss, sd in RARE}
    cases |= {f"{ties:.0%} ties, 3% lose 0.8": rare(0.03, 0.8, 0, ties) for ties in (0.5, 0.7)}
    cases["skewed: 10% lose 0.45"] = skewed_losses
    return each_size(((name, (draw, samples)) for name, draw in cases.items()), _rare)


def _rare(draw: Sampler, samples: int, n_queries: int) -> list[Figure]:
    figures = []
    for side, (name, sign) in enumerate((("false passes", 1), ("false fails, as many gain", -1))):
        values = (sign * draw(samples, n_queries) - MARGIN).T
        p = noninferiority([values], np.full(samples, MARGIN))[side]
        figures += by_mark_of_verdict(name, values, p, by_t(values, sign), side)
        if side == 0:
            bet = [Bets.of_one(one.clip(-1, 1)).p_value(-MARGIN) < LEVEL for one in values.T[:BETS]]
            figures.append(Figure(f"{name}, --guarantee", "", percent(bet)))
    return figures


def many_gates(samples: int) -> Iterator[Cell]:
    """Many gates on the same queries."""
    return each_size([("20 commits, 10 releases", (samples // 2,))], _many_gates, (114, 300, 1000))


def _many_gates(series: int, n_queries: int) -> list[Figure]:
    figures = []
    for shared, said in (
        (0, "any of 20 commits passes"),
        (0.5, "any of 20 commits passes, half in common"),
    ):
        common, own = (
            random.normal(0, 0.1 * np.sqrt(share), (series, n_queries, commits))
            for share, commits in ((shared, 1), (1 - shared, 20))
        )
        p = [noninferiority([one], np.full(20, MARGIN))[0] for one in common + own - MARGIN]
        figures.append(Figure(said, "", percent([(one < LEVEL).any() for one in p])))
    last, first = [], []
    for steps in random.normal(-MARGIN / 2, 0.05, (series, n_queries, 10)):
        passes = noninferiority([steps], np.full(10, MARGIN))[0] < LEVEL
        since_first = noninferiority([steps.cumsum(axis=1)], np.full(10, MARGIN))[0] < LEVEL
        last.append(passes.sum())
        first.append((passes & since_first).sum())
    both = [f"{np.mean(each):.1f}" for each in (last, first)]
    return [*figures, Figure("of 10 that each lose half the margin pass; after: --since the first", *both)]


def needed(samples: int) -> Iterator[Cell]:
    """How often the loss is found that a gate says its queries detect, or the number that a margin takes.

    The queries are the population: only their mean is made 0. 80% is promised.
    """
    return each_size(((name, (draw, samples)) for name, draw in DIFFERENCES.items()), _needed, (43, 300))


def _needed(draw: Callable[[int, int], Float64], samples: int, n_queries: int) -> list[Figure]:
    values = draw(1, n_queries)[0]
    values -= values.mean() * (values != 0) / np.mean(values != 0)
    errors = estimate([values[:, None]], ONE)
    (loss,) = detectable_difference(errors.wide_errors, errors.wide_freedom, LEVEL)
    number = int(queries_needed(0.02 / errors.wide_errors / n_queries**0.5, LEVEL).item())
    figures = []
    for said, size, margin in (("loss named: found", n_queries, loss), ("number named: found", number, 0.02)):
        drawn, margins = random.choice(values, (size, samples)), np.full(samples, margin)
        figures.append(Figure(said, "", percent(noninferiority([drawn], margins)[0] < LEVEL)))
    return figures
