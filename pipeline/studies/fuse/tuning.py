"""Weights of a fusion that are tuned by cross-validation over queries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, Float64, Int64, Qrels, Ranking
from pipeline.metrics.definitions import Measure
from pipeline.metrics.scoring import compute_measures
from pipeline.search.fusion import Fusion, unions

STEP = 0.1  # of the weights that are tried
COARSE_STEP = 0.2  # for more than `FEW` rankings, which have many times as many weights
FEW = 4


@dataclass(frozen=True)
class Tuning:
    """How weights are to be tuned: what is maximized, judgments, and folds int64 [queries]."""

    measure: Measure
    qrels: Qrels
    folds: Int64


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
    rankings: Sequence[Ranking], fusion: Fusion, tuning: Tuning, id_rank: Int64, top_k: int | None, bar: Bar
) -> Float64:
    """Choose weights for each fold, float64 [folds, rankings], by cross-validation over queries.

    For each fold, the weights are those with the best mean of a measure over the queries of all other folds,
    so no query is scored by weights that have seen it. Of equally good ones, those nearest to equal weights
    count.

    Other arguments are as of `fuse`; the bar counts the weights tried, for each block of queries.
    """
    points = grid(len(rankings))
    qrels, folds = tuning.qrels, tuning.folds
    values = np.empty((len(folds), len(points)))
    for union in unions(rankings, fusion):
        start, stop = union.queries.start, union.queries.stop
        first, last = np.searchsorted(qrels.queries, (start, stop))
        judgments = slice(first, last)
        judged = Qrels(qrels.queries[judgments] - start, qrels.passages[judgments], qrels.grades[judgments])
        for number, point in enumerate(points):
            ranking = union.ranking(fusion, point, id_rank, top_k)
            values[start:stop, number] = compute_measures(ranking, judged, [tuning.measure])[:, 0]
            bar.update(1)
    chosen = []
    for fold in range(int(folds.max()) + 1):
        means = values[folds != fold].mean(axis=0)
        chosen.append(int(np.argmax(means >= means.max() - 1e-12)))
    return points[chosen]


def tuned_facts(tuning: Tuning, of_folds: Float64) -> Facts:
    """The measure, and the weights of each fold, float64 [folds, rankings], as JSON."""
    sizes = np.bincount(tuning.folds, minlength=len(of_folds)).tolist()
    folds = [{"queries": size, "weights": row} for size, row in zip(sizes, of_folds.tolist(), strict=True)]
    return {"measure": str(tuning.measure), "folds": folds}
