"""Pools of passages that several rankings found for queries, and which of them decide a difference."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.core.records import BoolArray, Collection, Float64, Int64, Qrels, Ranking
from pipeline.metrics.definitions import Measure
from pipeline.metrics.paired import SAME
from pipeline.metrics.scoring import compute_measures
from pipeline.results.folder import CollectionResult


class LoadedResults(NamedTuple):
    """Results of one collection by name, the collection, and the ranking of each as it was scored."""

    results: dict[str, CollectionResult]
    collection: Collection
    rankings: list[Ranking]

    def values(self, qrels: Qrels, measure: Measure) -> Float64:
        """float64 [queries, results]: the measure of each query by some judgments."""
        each = [compute_measures(ranking, qrels, [measure])[:, 0] for ranking in self.rankings]
        return np.stack(each, axis=1)


class JudgmentPairs(NamedTuple):
    """Pairs of query and passage, rows of the collection, the most important of each query first.

    `queries` and `passages` are int64 [pairs]; `delta`, float64 [pairs], is what a relevant passage adds to
    the last result less what it adds to the first.
    """

    queries: Int64
    passages: Int64
    delta: Float64


def pair_keys(queries: Int64, passages: Int64, collection: Collection) -> Int64:
    """int64: one number for each pair of a query and a passage, rows of a collection, in their order."""
    return queries * (len(collection.passages) + len(collection.missing_ids)) + passages


def pairs_of(keys: Int64, collection: Collection) -> tuple[Int64, Int64]:
    """The queries and the passages of `pair_keys`."""
    return np.divmod(keys, len(collection.passages) + len(collection.missing_ids))


def deciding_pairs(opened: LoadedResults, measure: Measure) -> JudgmentPairs:
    """All pairs whose grades can change a difference in a measure with a cutoff, sorted by query."""
    rankings = opened.rankings
    depth = measure.cutoff or 0
    rank_weight = measure.definition.weight(np.arange(1, depth + 1), **measure.settings)
    keys, weights_of = [], []
    for ranking in rankings:
        top = ranking.passages[:, :depth]
        retrieved = top >= 0
        keys.append(pair_keys(np.arange(len(top))[:, None], top, opened.collection)[retrieved])
        weights_of.append(np.broadcast_to(rank_weight[: top.shape[1]], top.shape)[retrieved])
    pairs = np.unique(np.concatenate(keys))
    weights = np.zeros((len(rankings), len(pairs)))
    for row, key, weight in zip(weights, keys, weights_of, strict=True):
        row[np.searchsorted(pairs, key)] = weight
    importance = np.ptp(weights, axis=0)
    queries, passages = pairs_of(pairs, opened.collection)
    decides = importance > SAME
    if not measure.definition.additive:  # shared passages count, but not of a query with equal rankings
        decides = np.isin(queries, queries[decides])
    queries, passages, importance = queries[decides], passages[decides], importance[decides]
    best, delta = weights.max(axis=0)[decides], (weights[-1] - weights[0])[decides]
    # in the order of a hash where importance is equal, so that the place does not tell the result
    hash_order = (queries * 0x9E3779B1 + passages * 0x85EBCA77) % 0xFFFFFFFB
    order = np.lexsort((hash_order, -best.round(9), -importance.round(9), queries))
    return JudgmentPairs(queries[order], passages[order], delta[order])


def is_judged(pairs: JudgmentPairs, qrels: Qrels, collection: Collection) -> BoolArray:
    """Bool [pairs]: whether each has a grade."""
    keys = pair_keys(pairs.queries, pairs.passages, collection)
    return np.isin(keys, pair_keys(qrels.queries, qrels.passages, collection))


def difference_ranges(
    opened: LoadedResults, measure: Measure, a: int, b: int, highest: float
) -> tuple[Float64, Float64]:
    """The lowest and highest difference, `a` minus `b`, of each query, whatever its unjudged passages are.

    `a` and `b` are the places of two results; `highest` is the highest grade to come, or the collection's.

    Returns:
        float64 [queries] each, equal where no unjudged passage matters.
    """
    own = opened.collection.qrels
    both = opened._replace(rankings=[opened.rankings[a], opened.rankings[b]])
    pairs = deciding_pairs(both, measure)
    unjudged = ~is_judged(pairs, own, opened.collection)
    queries, passages, delta = pairs.queries[unjudged], pairs.passages[unjudged], pairs.delta[unjudged]
    if not measure.definition.additive:
        values = both.values(own, measure)
        known = values[:, 0] - values[:, 1]
        unknown = np.isin(np.arange(len(known)), queries)
        return np.where(unknown, -1.0, known), np.where(unknown, 1.0, known)
    highest = max(highest, own.grades.max(initial=0), float(measure.settings.get("rel", 0)))
    tops = [
        Ranking(each.passages[:, : measure.cutoff], each.scores[:, : measure.cutoff])
        for each in both.rankings
    ]
    both = both._replace(rankings=tops)  # no rank below counts
    ends = []
    for favoured in (delta > 0, delta < 0):
        grades = np.where(favoured, highest, 0).astype(own.grades.dtype)
        every, passage = np.append(own.queries, queries), np.append(own.passages, passages)
        order = np.lexsort((passage, every))
        qrels = Qrels(every[order], passage[order], np.append(own.grades, grades)[order])
        values = both.values(qrels, measure)
        ends.append(values[:, 0] - values[:, 1])
    return ends[0], ends[1]
