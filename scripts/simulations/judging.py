"""Few labels of people and many of a judge: intervals, false winners, and what need not be judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.special import stdtrit

from pipeline.core.records import BoolArray, Float64, Int64
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.studies.judge.bets_in_order import BetsInOrder
from pipeline.studies.judge.prediction_powered import Interval, PredictionPoweredEstimate, estimate_with_judge
from pipeline.studies.judge.sample import LEAST
from simulations.real import ROWS, name_of
from simulations.values import Cell, Figure, each_size, percent, random

T = TypeVar("T")
LOGGED, LABELLED, TOP = 2000, (25, 50, 100, 300), 10
"""Logged queries, labels of a cell, and passages of a system."""
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


@cache
def _systems(qrels: str, runs: tuple[str, ...], measure: str) -> list[Apart]:
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
    """Queries that lose much and rarely, others that win 0.1 or nothing; the mean is 0.

    With `overlap`, the rankings of the others differ in one passage; else nothing is known of them.
    """
    losers, winners = round(share * LOGGED), round(share * loss / 0.1 * LOGGED)
    human = np.repeat([-loss, 0.1, 0.0], [losers, winners, LOGGED - losers - winners])
    loses = human < 0
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


def _sources() -> dict[str, dict[str, list[Apart]]]:
    """By name and measure, every two systems: generated ones, and those of real runs."""
    sources = {"generated": {name: [_generated(discounts)] for name, discounts in DISCOUNTS.items()}}
    for qrels, *runs in ROWS:
        sources[name_of(qrels)] = {name: _systems(qrels, tuple(runs), name) for name in DISCOUNTS}
    return sources


def _published(human: Float64, judged: Float64, drawn: Int64) -> Interval:
    """PPI++ (arXiv 2311.01453) with Student's t, of queries drawn uniformly: no rule for rare losses."""
    n, x, of_all = len(human), judged[drawn], judged.var()
    slope = 0.0
    if of_all > 0:
        slope = float(np.clip(np.cov(human, x)[0, 1] / of_all / (1 + n / len(judged)), 0, 1))
    rest = human - slope * x
    mean = float(rest.mean() + slope * judged.mean())
    error = np.sqrt(rest.var(ddof=1) / n + slope**2 * of_all / len(judged))
    reach = float(stdtrit(n - 1, 0.975) * error)
    return Interval(mean, mean - reach, mean + reach)


def _spread(cases: Sequence[T], samples: int) -> list[T]:
    """As many samples, of each case as often as of the others."""
    return [cases[number % len(cases)] for number in range(samples)]


def _cases() -> Iterator[tuple[str, str, list[Apart]]]:
    """A case's name and judge, and pairs of systems."""
    for name, source in _sources().items():
        pairs = [pair for of_measure in source.values() for pair in of_measure]
        for judge in JUDGES:
            if judge != ONE_GRADE_OFF or pairs[0].steps > 1:
                yield f"{name}, judge: {judge}", judge, pairs


def judge(samples: int) -> Iterator[Cell]:
    """Intervals by both, and their width."""
    return each_size(
        ((name, (pairs, judge, samples)) for name, judge, pairs in _cases()), _intervals, LABELLED
    )


def bets(samples: int) -> Iterator[Cell]:
    """False winners, and right ones, where one may stop at each of 300 labels."""
    cases: list[tuple[str, Makers]] = [
        (name, [partial(systems_of, pair, judge) for pair in pairs]) for name, judge, pairs in _cases()
    ]
    cases += [
        (f"2% lose 1, judge: {judge}", [partial(judged_losses, 0.02, 1.0, judge, False)])
        for judge in (LOSS_JUDGES[0], LOSS_JUDGES[-1])
    ]
    for name, makers in cases:
        yield Cell(name, "300 labels", partial(_stops, makers, samples // 10))


def until_certain(samples: int) -> Iterator[Cell]:
    """Pairs that people grade until it is certain who wins on 40 queries."""
    for name, source in _sources().items():
        for measure, pairs in source.items():
            yield Cell(f"{name}, {measure}", "40", partial(_certain, pairs, samples // 4))


def _intervals(pairs: Sequence[Apart], judge: str, samples: int, n: int) -> list[Figure]:
    rows = []
    for pair in _spread(pairs, samples):
        queries = systems_of(pair, judge)
        found, _ = queries.estimate("by range", n)
        both, alone, truth = found.by_both, found.without_judge, float(queries.human.mean())
        widths = both.ci_high - both.ci_low, alone.ci_high - alone.ci_low
        rows.append((_holds(alone, truth), _holds(both, truth), *widths))
    before, after, width, without = np.array(rows).T
    return [
        Figure("held; before: without the judge", percent(before), percent(after)),
        Figure("width, % of that without the judge", "100", f"{100 * width.sum() / without.sum():.0f}"),
    ]


def _holds(interval: Interval, truth: float) -> bool:
    return interval.ci_low - 1e-12 <= truth <= interval.ci_high + 1e-12


def _stops(makers: Makers, samples: int) -> list[Figure]:
    stopped = [_stopped(make()) for make in _spread(makers, samples)]
    false, with_judge, alone = np.array(stopped).T
    medians = [
        f"{np.median(after[after > 0]):.0f}" if (after > 0).any() else "" for after in (alone, with_judge)
    ]
    return [
        Figure("bets: false winners of equal systems", "", percent(false > 0)),
        Figure("bets: decided; before: without the judge", percent(alone > 0), percent(with_judge > 0)),
        Figure("bets: labels until decided, median", *medians),
    ]


def _stopped(queries: Logged) -> tuple[int, int, int]:
    """After how many labels there is a false winner of equal systems; a right one, with judge and without.

    0 where there is none after 300.
    """
    can = queries.high > queries.low
    human, judged, low, high, weights = (
        values[can] for values in (*queries[:4], queries.weights("by range"))
    )
    truth = round(float(human.mean()), 12)
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


def _certain(pairs: Sequence[Apart], samples: int) -> list[Figure]:
    needed = [_until_certain(pair, 40) for pair in _spread(pairs, samples)]
    by_chance, by_worth, _ = np.mean(needed, axis=0)
    pooled = 40 * np.mean([pair.pooled.mean() for pair in pairs])
    figures = [
        Figure("pairs graded until the winner is certain; before: all", f"{pooled:.0f}", f"{by_worth:.0f}")
    ]
    return [*figures, Figure("the same; before: in random order", f"{by_chance:.0f}", f"{by_worth:.0f}")]


LOSSES = ((0.02, 1.0), (0.05, 0.8), (0.05, 0.5), (0.1, 0.5))
LOSS_JUDGES = ("blind to losses", "sees half the losses", "70% right", "right")
FEW_LABELS = (20, 25, 40, 100)
Makers = list[Callable[[], Logged]]


def labels(samples: int) -> Iterator[Cell]:
    """Rare losses, to some of which the judge is blind; and labels that give the width of 40 uniform ones."""
    sources = {
        name: [pair for of_measure in source.values() for pair in of_measure]
        for name, source in _sources().items()
        if name != "generated"
    }
    cases: list[tuple[str, str, Makers]] = [
        (
            f"{share:.0%} lose {loss}, judge: {judge}",
            "uniform",
            [partial(judged_losses, share, loss, judge, False)],
        )
        for share, loss in LOSSES
        for judge in LOSS_JUDGES
    ]
    cases += [
        (
            f"{name}, {errs:.0%} lose all, unseen by the judge",
            draws,
            [partial(systems_of, pair, RANDOM_ERRORS, errs) for pair in pairs],
        )
        for name, pairs in sources.items()
        for errs in (0.02, 0.04, 0.07)
        for draws in ("uniform", "by range")
    ]
    for name, draws, makers in cases:
        for n in FEW_LABELS:
            yield Cell(name, f"{n} labels, {draws}", partial(_of_labels, makers, draws, n, samples))
    of_systems: list[tuple[str, Makers]] = [
        (f"{name}, judge: {judge}", [partial(systems_of, pair, judge) for pair in pairs])
        for name, pairs in sources.items()
        for judge in ("coin", RANDOM_ERRORS, ONE_GRADE_OFF)
        if judge != ONE_GRADE_OFF or pairs[0].steps > 1
    ]
    of_systems += [
        (f"2% lose 1, others 0 to 0.1, judge: {judge}", [partial(judged_losses, 0.02, 1.0, judge, True)])
        for judge in LOSS_JUDGES[:: len(LOSS_JUDGES) - 1]
    ]
    for name, makers in of_systems:
        yield Cell(name, "labels", partial(_as_wide_as_40, makers, samples // 5))


def _of_labels(makers: Makers, draws: str, n: int, samples: int) -> list[Figure]:
    rows = []
    for make in _spread(makers, samples):
        queries = make()
        found, drawn = queries.estimate(draws, n)
        truth, shown = round(float(queries.human.mean()), 12), found.unshown == ""
        before, now = _published(queries.human[drawn], queries.judged, drawn), found.by_both
        false = [each.ci_low > 0 >= truth or each.ci_high < 0 <= truth for each in (before, now)]
        rows.append((_holds(before, truth), _holds(now, truth), *false, shown))
    held, held_now, false, false_now, shown = np.array(rows).T
    uniform = draws == "uniform"  # as the published interval takes
    published, published_false = (percent(each) if uniform else "" for each in (held, false))
    return [
        Figure("difference held; before: PPI++", published, percent(held_now[shown])),
        Figure("false winner; before: PPI++", published_false, percent(false_now & shown)),
        Figure("shown and misses", "", percent(shown & ~held_now)),
        Figure("shown", "", percent(shown)),
    ]


LABEL_COUNTS = (12, 16, 20, 25, 32, 40, 50)


def _as_wide_as_40(makers: Makers, samples: int) -> Iterator[Figure]:
    """How many labels of each way of drawing give the width of 40 uniform ones by people alone."""
    sampled = [make() for make in _spread(makers, samples)]
    wide = [queries.estimate("uniform", 40)[0].without_judge for queries in sampled]
    width = np.mean([each.ci_high - each.ci_low for each in wide])
    known: dict[str, list[str]] = {}
    for draws in ("uniform", "by range", "by judge"):
        widths, pairs = [], []
        for n in LABEL_COUNTS:
            found = [queries.estimate(draws, n) for queries in sampled]
            widths.append(np.mean([each.by_both.ci_high - each.by_both.ci_low for each, _ in found]))
            pairs.append(np.mean([q.pairs[rows].sum() for q, (_, rows) in zip(sampled, found, strict=True)]))
            if n == 40:
                shown = np.array([each.unshown == "" for each, _ in found])
                held = [
                    _holds(each.by_both, q.human.mean()) for q, (each, _) in zip(sampled, found, strict=True)
                ]
        # widths fall with labels, and np.interp wants what rises
        needed = float(np.exp(np.interp(-np.log(width), -np.log(widths), np.log(LABEL_COUNTS))))
        graded = np.interp(needed, LABEL_COUNTS, pairs)
        known[draws] = [f"{needed:.0f}", f"{graded:.0f}", percent(held), percent(shown)]
    names = ("labels for the width of 40", "pairs to grade for it", "40 labels: held", "40 labels: shown")
    for draws in ("by range", "by judge"):
        for name, before, after in zip(names, known["uniform"], known[draws], strict=True):
            yield Figure(f"{name}; uniform, {draws}", before, after)
