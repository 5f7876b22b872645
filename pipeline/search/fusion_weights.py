"""Weights of a fusion, chosen by cross-validation over queries.

The queries are dealt out to folds. For each fold, the weights are those with the best mean of a measure over
the queries of all other folds; so no query is scored by weights that have seen it. The weights tried are all
multiples of `STEP` that sum to 1. Of equally good ones those nearest to equal weights are taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Float64, Int64, Qrels, Ranking
from pipeline.metrics.names import Measure
from pipeline.metrics.scoring import compute_measures
from pipeline.search.fusion import Fusion, unions

if TYPE_CHECKING:
    import pyarrow as pa

STEP = 0.1
COARSE_STEP = 0.2  # for more than `FEW` rankings, which have many times as many weights
FEW = 4


@dataclass(frozen=True)
class TunedWeights:
    """Weights that were chosen for each fold.

    Attributes:
        measure: What was maximized.
        folds: int64 [queries], the fold of each query.
        weights: float64 [folds, rankings], for the queries of each fold.
    """

    measure: Measure
    folds: Int64
    weights: Float64

    @property
    def by_query(self) -> Float64:
        """float64 [queries, rankings]."""
        return self.weights[self.folds]

    def facts(self) -> dict[str, Any]:
        """The measure, and for each fold the number of its queries and their weights, as JSON."""
        sizes = np.bincount(self.folds, minlength=len(self.weights)).tolist()
        rows = zip(sizes, self.weights.tolist(), strict=True)
        folds = [{"queries": size, "weights": weights} for size, weights in rows]
        return {"measure": str(self.measure), "folds": folds}


def grid(rankings: int) -> Float64:
    """float64 [points, rankings]: the weights that are tried, those nearest to equal weights first."""
    steps = round(1 / (STEP if rankings <= FEW else COARSE_STEP))
    bars = itertools.combinations(range(steps + rankings - 1), rankings - 1)
    cuts = np.array([(-1, *bar, steps + rankings - 1) for bar in bars], np.int64)
    points: Float64 = (np.diff(cuts, axis=1) - 1) / steps
    distance = ((points - 1 / rankings) ** 2).sum(axis=1).round(12)
    return points[np.argsort(distance, kind="stable")]


def folds_of(query_ids: pa.ChunkedArray, folds: int) -> Int64:
    """int64 [queries]: the fold of each query, by its place in the order of ids, whatever order they come in.

    Raises:
        InputError: There are fewer than two queries.
    """
    import pyarrow.compute as pc

    if len(query_ids) < 2:
        raise InputError(
            f"weights are to be tuned on {len(query_ids)} query",
            allowed="two queries or more",
            fix="give weights instead",
        )
    fold = np.empty(len(query_ids), np.int64)
    fold[pc.sort_indices(query_ids).to_numpy()] = np.arange(len(query_ids)) % min(folds, len(query_ids))
    return fold


def tune(
    rankings: Sequence[Ranking],
    fusion: Fusion,
    measure: Measure,
    qrels: Qrels,
    folds: Int64,
    id_rank: Int64,
    top_k: int | None,
    bar: Bar,
) -> TunedWeights:
    """Choose weights for each fold.

    Args:
        rankings: Of the same queries, ordered by the tie rule.
        fusion: The method.
        measure: Its mean is maximized.
        qrels: The judgments of these queries.
        folds: int64 [queries], the fold of each query.
        id_rank: int64 [passages], see `pipeline.core.order.descending_id_rank`.
        top_k: Passages of the joined ranking that are scored; None is all.
        bar: Advanced by each of the weights tried, for each block of queries.
    """
    points = grid(len(rankings))
    values = np.empty((len(folds), len(points)))
    for union in unions(rankings, fusion):
        start, stop = union.queries.start, union.queries.stop
        first, last = np.searchsorted(qrels.queries, (start, stop))
        own = slice(first, last)
        judged = Qrels(qrels.queries[own] - start, qrels.passages[own], qrels.grades[own])
        for number, point in enumerate(points):
            ranking = union.ranking(fusion, point, id_rank, top_k)
            values[start:stop, number] = compute_measures(ranking, judged, stop - start, [measure])[:, 0]
            bar.update(1)
    chosen = []
    for fold in range(int(folds.max()) + 1):
        means = values[folds != fold].mean(axis=0)
        chosen.append(int(np.argmax(means >= means.max() - 1e-12)))
    return TunedWeights(measure, folds, points[chosen])
