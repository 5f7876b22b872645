"""Contradictions: values that one evaluation cannot have given, whatever the model.

The rules follow from the definitions of measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from math import nan
from typing import NamedTuple

from pipeline.core.errors import InputError
from pipeline.metrics.definitions import MEASURES
from pipeline.metrics.names import parse_measure

Point = tuple[str, int]
"""A measure without its cutoff, and the cutoff; 0 for other numbers of an evaluation."""
Scores = Mapping[Point, tuple[float, float]]
"""The values of one evaluation, and by how much rounding may have changed each."""

ONE_HIT, NO_HIT = "both ask whether the first hit is relevant", "each is 0 for a query without a relevant hit"
RULES = (
    ("mrr", "=", "precision", "1", ONE_HIT),
    ("success", "=", "precision", "1", ONE_HIT),
    ("map", "=", "recall", "1", "both are 1 / R if the first hit is relevant"),
    ("ndcg", "<=", "precision", "1", "only a relevant hit gains"),
    ("map", "<=", "recall", "k", "each precision that is summed is at most 1"),
    ("recall", "<=", "recall(cap=true)", "k", "a cap divides by less"),
    *((name, "<=", "success", "k", NO_HIT) for name in ("recall", "mrr", "precision", "ndcg")),
)
"""Two measures at cutoff 1 or at every cutoff k, how they are related, and why."""
TIED = ("mrr", "recall(cap=true)")  # measures that tools computed of another order than the rest


class Contradiction(NamedTuple):
    """Values that cannot be, both right; `cause` is what may explain them, as far as the file tells."""

    identity: str
    values: str
    reason: str
    cause: str


class Rule(NamedTuple):
    """That the first value, times its weight, is not above the second one; its name, and why."""

    name: str
    reason: str
    first: Point
    second: Point
    weights: tuple[int, int] = (1, 1)

    def is_broken(self, scores: Scores) -> bool:
        """Whether both values are there and break it by more than rounding can."""
        (one, one_error), (other, other_error) = (scores.get(at, (nan, nan)) for at in self[2:4])
        weight, other_weight = self.weights
        error = one_error * weight + other_error * other_weight
        return one * weight - other * other_weight > 1.001 * error


def _rules(scores: Scores) -> Iterator[Rule]:
    """Those of `RULES`, and that measures do not fall with k, for the cutoffs of an evaluation."""
    for first, relation, second, cutoff, reason in RULES:
        for k in [k for name, k in scores if name == first and cutoff in ("k", str(k))]:
            name = f"{first}@{cutoff} {relation} {second}@{cutoff}"
            yield Rule(name, reason, (first, k), (second, k))
            if relation == "=":
                yield Rule(name, reason, (second, k), (first, k))
    rising = {name: "more hits only add" for name, known in MEASURES.items() if known.rises and known.bounded}
    for name, reason in (rising | {"precision": "it counts the relevant hits"}).items():
        what = name if name in rising else "k P@k"
        for low, high in pairwise(sorted(k for other, k in scores if other == name)):
            weights = (1, 1) if name in rising else (low, high)
            yield Rule(f"{what} does not fall with k", reason, (name, low), (name, high), weights)


def _broken(scores: Scores) -> Iterator[tuple[str, str, list[Point]]]:
    """The rules that values break: each with its reason, and the points of those values."""
    yield from ((rule.name, rule.reason, [*rule[2:4]]) for rule in _rules(scores) if rule.is_broken(scores))
    for at, (value, error) in scores.items():
        if at[1] and not -error <= value <= 1 + error:
            yield "values are in [0, 1]", "those of all queries are", [at]
    main, _ = scores.get(("main_score", 0), (nan, nan))
    equal = [at for at, (value, _) in scores.items() if abs(value - main) <= 1.001e-5]  # perhaps rounded
    if len(equal) == 1:
        yield "main score is one of the measures", "it is a copy of one", equal


def contradictions(scores: Scores, cause: str = "") -> Iterator[Contradiction]:
    """What breaks rules; `cause` may explain values of `TIED` measures."""
    for identity, reason, points in _broken(scores):
        zeros = [f"{name}@{k} is 0: not computed" for name, k in points if k and scores[name, k][0] == 0]
        tied = cause if len({*points}) > 1 and any(name in TIED for name, _ in points) else ""
        values = ", ".join(f"{name}{f'@{k}' if k else ''} {scores[name, k][0]:.5f}" for name, k in points)
        yield Contradiction(identity, values, reason, zeros[0] if zeros else tied)


def point_of(name: str) -> Point:
    """The measure without its cutoff, and the cutoff; 0 for unbounded measures and other names."""
    try:
        measure = parse_measure(name)
    except InputError:
        return name, 0
    if measure.cutoff is None or not measure.definition.bounded:
        return name, 0
    return str(replace(measure, cutoff=None)), measure.cutoff
