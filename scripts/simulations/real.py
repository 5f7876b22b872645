"""Rows of real systems: pairs that are told apart, and their queries as a population to draw from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from pipeline import evaluate
from pipeline.comparison.pairs import Pair, compare_pairs
from pipeline.core.records import Float64
from pipeline.metrics import holm
from pipeline.metrics.statistics import ONE, estimate
from pipeline.studies.gate.margin_tests import noninferiority
from simulations.gates import by_mark_of_verdict, by_t
from simulations.pairs import MAX_T, max_t_changes
from simulations.values import LEVEL, MARGIN, SIZES, Cell, Figure, by_mark, covers, random

MEASURES = "ndcg@10,map,mrr@10,recall@100,success@5"
FEW = 10
"""Differing queries of a pair that is shifted; of fewer nothing is promised."""
ROWS: list[list[str]] = []
"""For each collection its judgments, and runs."""


def name_of(qrels: str) -> str:
    """The folder above that of the judgments."""
    return Path(qrels).parents[1].name


@cache
def _values() -> list[tuple[str, str, Float64]]:
    """Collection, measure, and float64 [queries, runs]."""
    read = []
    for qrels, *runs in ROWS:
        values = np.stack([evaluate(qrels, run, measures=MEASURES).values for run in runs], axis=2)
        columns = enumerate(MEASURES.split(","))
        read += [(name_of(qrels), name, np.ascontiguousarray(values[:, number])) for number, name in columns]
    return read


def _tested(values: Float64) -> list[Pair]:
    pairs = list(combinations(range(values.shape[1]), 2))
    return compare_pairs([str(run) for run in range(values.shape[1])], {}, [values], ONE, pairs, 1)


def separated(samples: int) -> Iterator[Cell]:
    """Pairs of real runs that are separated, of the queries as they are; `samples` is not used."""
    for collection, measure, values in _values():
        yield Cell(f"{collection}, {measure}", str(len(values)), partial(_separated, values))


def _separated(values: Float64) -> list[Figure]:
    tested = _tested(values)
    warned = sum(pair.shown and pair.fragile for pair in tested)
    pairs = list(combinations(range(values.shape[1]), 2))
    changed = max_t_changes(tested, [values], ONE, pairs)
    of_all = f"of {len(tested)} pairs"
    return [
        Figure(
            f"* {of_all}; before: Holm",
            str(sum(pair.p_holm < LEVEL for pair in tested)),
            str(sum(pair.shown for pair in tested)),
        ),
        Figure("intervals with ~", "", str(sum(pair.fragile for pair in tested))),
        Figure("* with ~", "", str(warned)),
        Figure(MAX_T, "", str(changed)),
    ]


def detect(samples: int) -> Iterator[Cell]:
    """Pairs without `*`, of which the better one is raised until they differ by what is detected."""
    for collection, measure, values in _values():
        yield Cell(f"{collection}, {measure}", str(len(values)), partial(_detect, values, samples // 4))


def _detect(values: Float64, samples: int) -> list[Figure]:
    n_queries, runs = values.shape
    pairs = list(combinations(range(runs), 2))
    first, second = np.array(pairs).T
    powers = []
    for number, pair in enumerate(_tested(values)):
        if pair.shown or pair.detects is None:
            continue
        raised = values.copy()
        raised[:, pairs[number][pair.difference < 0]] += pair.detects - abs(pair.difference)
        rows = random.integers(n_queries, size=(samples, n_queries))
        drawn = (raised[one][:, first] - raised[one][:, second] for one in rows)
        powers.append(100 * np.mean([holm(estimate([one]).p)[number] < LEVEL for one in drawn]))
    ends = ((f"lowest of {len(powers)} pairs", np.min), ("mean", np.mean)) if powers else ()
    return [Figure(f"what is detected: found, {name}", "", f"{end(powers):.1f}") for name, end in ends]


def drawn(samples: int) -> Iterator[Cell]:
    """Intervals and gates of queries drawn with replacement from real ones.

    Of a gate the margin is how far a run really is below another.
    """
    for collection, measure, values in _values():
        for n_queries in SIZES:
            yield Cell(
                f"{collection}, {measure}", str(n_queries), partial(_drawn, values, samples // 2, n_queries)
            )


def _drawn(values: Float64, samples: int, n_queries: int) -> list[Figure]:
    runs = range(values.shape[1])
    apart = [values[:, a] - values[:, b] for a in runs for b in runs if a != b]
    worse = [one for one in apart if one.mean() < -0.001]
    figures = _held("mean", [values[:, run] for run in runs], 0, samples, n_queries)
    figures += _held("difference", [one for one in apart if one.any()], -1, samples, n_queries)
    # a gate whose margin is the difference; then one of the usual margin, where pairs lose just that
    kinds = {"": [(one, -float(one.mean())) for one in worse]}
    kinds[", shifted"] = [(one - one.mean() - MARGIN, MARGIN) for one in apart if (one != 0).sum() >= FEW]
    for kind, cases in kinds.items():
        shares: dict[str, list[list[float]]] = {}
        for one, margin in cases:
            rows = random.choice(one, (n_queries, samples))
            for side, p in enumerate(noninferiority([rows], np.full(samples, margin))):
                name, t_alone = ("false passes", "false fails")[side], by_t(rows, 1 - 2 * side, margin)
                found = by_mark_of_verdict(name + kind, rows, p, t_alone, side, margin)
                for figure in found:
                    both = [float(each or "nan") for each in (figure.before, figure.after)]
                    shares.setdefault(figure.name, []).append(both)
        figures += [
            Figure(f"{name}, {end}", *("" if np.isnan(each) else f"{each:.1f}" for each in column(both, 0)))
            for name, both in shares.items()
            for end, column in (("mean", np.mean), ("most", np.max))
        ]
    return figures


def _held(what: str, populations: list[Float64], low: float, samples: int, n_queries: int) -> list[Figure]:
    by_t, held, fragile = [], [], []
    for values in populations:
        found = estimate([random.choice(values, (n_queries, samples))], low=low, high=1)
        reach = stdtrit(n_queries - 1, 0.975) * found.errors
        by_t.append(np.abs(found.means - values.mean()) <= reach + 1e-12)
        held.append(covers(found.ends, values.mean()))
        fragile.append(found.fragile)
    figures = by_mark(what, *map(np.concatenate, (by_t, held, fragile)))
    missed = (~np.array(held) & ~np.array(fragile)).mean(axis=1).max()
    lowest = np.array(held).mean(axis=1).min()
    return [
        *figures,
        Figure(f"{what} held, lowest", "", f"{100 * lowest:.1f}"),
        Figure(f"missed without ~: {what}, most", "", f"{100 * missed:.1f}"),
    ]
