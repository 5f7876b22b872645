"""How far a judge and people agree on grades, with intervals over queries.

found = agreement(of_people, of_judge, queries)  # int64 [pairs] each
found.kappa, found.ci_low, found.ci_high, found.confusion

Pairs of one query are no independent draws, so the bootstrap draws whole queries (Efron and Tibshirani, *An
Introduction to the Bootstrap*, 1993, chapter 8). Kappa is Cohen's (Educational and Psychological Measurement
20(1), 1960), by scikit-learn.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.statistics import CONFIDENCE

DRAWS, SEED = 1000, 60651


class Agreement(NamedTuple):
    """How far a judge and people agree on the pairs that both graded.

    Attributes:
        pairs: How many.
        kappa, ci_low, ci_high: Cohen's, unweighted, with its 95% interval over queries; None if undefined.
        grades: The grades of either.
        confusion: int64 [grades, grades]: a row for each grade of people.
        same: For each grade of people, the ends of the 95% interval of the share that the judge gave it, too.
    """

    pairs: int
    kappa: float | None
    ci_low: float | None
    ci_high: float | None
    grades: list[int]
    confusion: Int64
    same: list[tuple[float | None, float | None]]


def agreement(of_people: Int64, of_judge: Int64, queries: Int64) -> Agreement:
    """The agreement on pairs that both graded.

    Args:
        of_people: int64 [pairs], grades; at least one.
        of_judge: int64 [pairs], grades.
        queries: int64 [pairs], the query of each.
    """
    from sklearn.metrics import cohen_kappa_score

    values, codes = np.unique(np.concatenate([of_people, of_judge]), return_inverse=True)
    rows, columns = codes[: len(of_people)], codes[len(of_people) :]
    _, places = np.unique(queries, return_inverse=True)
    size = len(values)
    by_query = np.zeros((places.max() + 1, size, size))
    np.add.at(by_query, (places, rows, columns), 1)
    times = np.random.default_rng(SEED).multinomial(
        len(by_query), np.full(len(by_query), 1 / len(by_query)), DRAWS
    )
    drawn = np.tensordot(times, by_query, axes=1)  # [draws, grades, grades]
    totals = drawn.sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (drawn.sum(axis=1) * drawn.sum(axis=2)).sum(axis=1) / totals**2
        kappas = (np.trace(drawn, axis1=1, axis2=2) / totals - chance) / (1 - chance)
        shares = np.diagonal(drawn, axis1=1, axis2=2) / drawn.sum(axis=2)
    low, high = _ends(kappas)
    kappa = float(cohen_kappa_score(of_people, of_judge)) if size > 1 else None
    confusion = by_query.sum(axis=0).astype(np.int64)
    return Agreement(
        len(of_people), kappa, low, high, values.tolist(), confusion, [_ends(s) for s in shares.T]
    )


def _ends(draws: Float64) -> tuple[float | None, float | None]:
    """The ends of the 95% interval of bootstrap draws; None where most are undefined."""
    draws = draws[np.isfinite(draws)]
    if len(draws) < DRAWS // 2:
        return None, None
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return low, high
