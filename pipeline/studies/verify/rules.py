"""Rules that the scores of one evaluation must keep, whatever the model: they follow from the definitions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import nan
from typing import NamedTuple

from pipeline.core.errors import InputError
from pipeline.metrics.definitions import MEASURES
from pipeline.metrics.names import parse_measure

TIED = ("mrr", "recall(cap=true)")  # measures that tools computed of another order than the rest

Point = tuple[str, int]
"""A measure without its cutoff, and the cutoff; 0 for other numbers of an evaluation."""
Scores = Mapping[Point, tuple[float, float]]
"""The values of one evaluation, and by how much rounding may have changed each."""
Broken = Callable[[Scores], list[list[Point]]]
"""Finds the values that contradict a rule."""


class Rule(NamedTuple):
    """What must hold of every evaluation: its name, what finds the values that break it, why it holds."""

    name: str
    broken: Broken
    reason: str


@dataclass(frozen=True)
class Contradiction:
    """Values that cannot be, both right; `cause` is what may explain them, as far as the file tells."""

    identity: str
    values: str
    reason: str
    cause: str


def above(scores: Scores, first: Point, second: Point, weights: tuple[int, int] = (1, 1)) -> bool:
    """Whether weights[0] times the first value is above weights[1] times the second, both being there."""
    (one, one_error), (other, other_error) = scores.get(first, (nan, nan)), scores.get(second, (nan, nan))
    return one * weights[0] - other * weights[1] > 1.001 * (one_error * weights[0] + other_error * weights[1])


def exceeds(first: str, second: str, only_1: bool = False) -> Broken:
    """Where one measure is above another at the same cutoff."""
    return lambda scores: [
        [(first, k), (second, k)]
        for name, k in scores
        if name == first and (k == 1 or not only_1) and above(scores, (first, k), (second, k))
    ]


def differ_at_1(first: str, second: str) -> Broken:
    """Where two measures differ at the first rank."""
    more, less = exceeds(first, second, only_1=True), exceeds(second, first, only_1=True)
    return lambda scores: more(scores) or less(scores)


def falls(measure: str, times_k: bool = False) -> Broken:
    """Where a measure, perhaps times k, is lower at a higher cutoff."""
    return lambda scores: [
        [(measure, low), (measure, high)]
        for low, high in itertools.pairwise(sorted(k for name, k in scores if name == measure))
        if above(scores, (measure, low), (measure, high), (low, high) if times_k else (1, 1))
    ]


def outside(scores: Scores) -> list[list[Point]]:
    """Values of measures outside [0, 1], or that are no numbers."""
    return [[at] for at, (value, error) in scores.items() if at[1] and not -error <= value <= 1 + error]


def no_copy(scores: Scores) -> list[list[Point]]:
    """The main score, if it is not among the other numbers."""
    main, _ = scores.get(("main_score", 0), (nan, nan))
    equal = [at for at, (value, _) in scores.items() if abs(value - main) <= 1.001e-5]  # perhaps rounded
    return [equal] if len(equal) == 1 else []


ONE_HIT, NO_HIT = "both ask whether the first hit is relevant", "each is 0 for a query without a relevant hit"
RULES = (
    Rule("mrr@1 = precision@1", differ_at_1("mrr", "precision"), ONE_HIT),
    Rule("success@1 = precision@1", differ_at_1("success", "precision"), ONE_HIT),
    Rule("map@1 = recall@1", differ_at_1("map", "recall"), "both are 1 / R if the first hit is relevant"),
    Rule("ndcg@1 <= precision@1", exceeds("ndcg", "precision", only_1=True), "only a relevant hit gains"),
    Rule("map@k <= recall@k", exceeds("map", "recall"), "each precision that is summed is at most 1"),
    Rule("recall@k <= recall(cap=true)@k", exceeds("recall", "recall(cap=true)"), "a cap divides by less"),
    *(
        Rule(f"{name}@k <= success@k", exceeds(name, "success"), NO_HIT)
        for name in ("recall", "mrr", "precision", "ndcg")
    ),
    *(
        Rule(f"{name} does not fall with k", falls(name), "more hits only add")
        for name, measure in MEASURES.items()
        if measure.rises and measure.bounded
    ),
    Rule("k P@k does not fall with k", falls("precision", times_k=True), "it counts the relevant hits"),
    Rule("values are in [0, 1]", outside, "those of all queries are"),
    Rule("main score is one of the measures", no_copy, "it is a copy of one"),
)


def contradictions(scores: Scores, cause: str = "") -> Iterator[Contradiction]:
    """What breaks rules; `cause` may explain values of `TIED` measures."""
    for rule in RULES:
        for points in rule.broken(scores):
            zeros = [f"{name}@{k} is 0: not computed" for name, k in points if k and scores[name, k][0] == 0]
            tied = cause if len({*points}) > 1 and any(name in TIED for name, _ in points) else ""
            values = ", ".join(f"{name}{f'@{k}' if k else ''} {scores[name, k][0]:.5f}" for name, k in points)
            yield Contradiction(rule.name, values, rule.reason, zeros[0] if zeros else tied)


def point_of(name: str) -> Point:
    """The measure without its cutoff, and the cutoff; 0 for unbounded measures and other names."""
    try:
        measure = parse_measure(name)
    except InputError:
        return name, 0
    if measure.cutoff is None or not measure.definition.bounded:
        return name, 0
    return str(replace(measure, cutoff=None)), measure.cutoff
