"""Which few pairs of query and passage people judge to decide between results, and reading of their grades.

drawn = pool_to_decide(folders, "precision@10", queries=40, seed=1)
write_pool(drawn.rows, Path("pool.tsv"))  # people fill in the grades, in the file's order
labels = read_labels(open_rankings(folders, "--labels"), Path("pool.tsv"))
labels.queries, labels.values  # int64 [n], rows of the collection; float64 [n, results]

Queries are drawn at random, so that n of them speak for all N: queries are sorted by the SHA-256 of the seed
and their id, and the first n are drawn. More queries with the same seed continue the same order. Every row
says which one it is of how many and for which measure, and grades of other queries are refused.

People may stop at any time. A query counts once all its rows have grades, and only queries before the first
one that is not finished count: who skipped the hard ones would not have drawn at random.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipeline.comparison.inputs import ResultLike, draw_order
from pipeline.comparison.pool import (
    PoolRow,
    open_results,
    pair_keys,
    pairs_of,
    read_grades,
    rows_of_pairs,
    with_grades,
)
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Collection, Float64, Int64, Qrels, Ranking
from pipeline.metrics.names import Measure, parse_measure
from pipeline.metrics.paired import SAME
from pipeline.metrics.scoring import compute_measures
from pipeline.results.cached import scored_ranking
from pipeline.results.folder import CollectionResult

QUERIES, SEED = 40, 1
SUMS = ("precision", "cg", "dcg", "rbp")
"""Sums over ranks: a passage that all results have at the same rank changes no difference."""
_DRAW = re.compile(
    r"(?P<place>[0-9]{1,9})/(?P<queries>[0-9]{1,9}) seed (?P<seed>[0-9]{1,9}) (?P<measure>\S+)"
)


class LoadedResults(NamedTuple):
    """Results of one collection by name, the collection, and the ranking of each as it was scored."""

    results: dict[str, CollectionResult]
    collection: Collection
    rankings: list[Ranking]

    def values(self, qrels: Qrels, measure: Measure) -> Float64:
        """float64 [queries, results]: the measure of each query by some judgments."""
        n_queries = len(self.collection.queries)
        each = [compute_measures(ranking, qrels, n_queries, [measure])[:, 0] for ranking in self.rankings]
        values: Float64 = np.stack(each, axis=1)
        return values


class JudgmentPairs(NamedTuple):
    """JudgmentPairs of query and passage, rows of the collection, the most important of each query first.

    `queries` and `passages` are int64 [pairs]; `importance`, float64 [pairs], is how much more a relevant
    passage adds to one result than to another; `delta`, float64 [pairs], what it adds to the last result
    less what it adds to the first.
    """

    queries: Int64
    passages: Int64
    importance: Float64
    delta: Float64


@dataclass(frozen=True)
class DrawnPool:
    """The rows to judge, query by query in the order of drawing.

    Attributes:
        rows: The most important of each query first; those of equal importance at random.
        measure: What is to be decided.
        queries: How many were drawn; those in which no pair can change the difference have no row.
        total: Of how many.
    """

    rows: list[PoolRow]
    measure: Measure
    queries: int
    total: int


@dataclass(frozen=True)
class Labels:
    """What people's grades say of the drawn queries that are finished.

    Attributes:
        measure: What they were drawn to decide.
        names: Of the results.
        queries: int64 [n], rows of the collection, in the order of drawing.
        values: float64 [n, results], the measure of each by the grades and the collection's own judgments.
        total: N, the queries of the collection.
        drawn: How many were drawn.
        after: How many finished ones were left out, as one before them is not finished.
        qrels: The collection's judgments with the grades.
    """

    measure: Measure
    names: list[str]
    queries: Int64
    values: Float64
    total: int
    drawn: int
    after: int
    qrels: Qrels


def decidable(name: str) -> Measure:
    """The measure of a name.

    Raises:
        InputError: Judging the first ranks does not decide a difference of it.
    """
    measure = parse_measure(name)
    if not measure.cutoff or measure.condensed or measure.name == "judged":
        raise InputError(
            f"--decide {measure}",
            allowed="measures with a cutoff, such as precision@10, dcg@10, rbp@10 or ndcg@10",
            fix="name one of them",
        )
    return measure


def note_of(measure: Measure) -> str:
    """What a difference by this measure rests on besides the pairs to judge; empty if on nothing."""
    if measure.name in SUMS:
        return ""
    if measure.name in ("mrr", "success", "err"):
        return f"{measure} depends on shared passages, too: all of the top {measure.cutoff} are listed"
    return (
        f"{measure} divides by all relevant passages: those known are in the top {measure.cutoff} of these "
        f"results, or were judged before. For others, take precision@{measure.cutoff} or dcg@{measure.cutoff}"
    )


def deciding_pairs(opened: LoadedResults, measure: Measure) -> JudgmentPairs:
    """All pairs whose grades can change a difference between results, sorted by query.

    Args:
        opened: The results.
        measure: With a cutoff.
    """
    rankings = opened.rankings
    depth = measure.cutoff or 0
    ranks = np.arange(1, depth + 1)
    if measure.name == "rbp":
        p = float(measure.settings["p"])
        rank_weight = (1 - p) * p ** (ranks - 1)
    elif measure.name == "cg":
        rank_weight = np.ones(depth)
    elif measure.name in ("dcg", "ndcg"):
        rank_weight = 1 / np.log2(ranks + 1)
    elif measure.name in ("mrr", "map", "err", "success"):
        rank_weight = 1 / ranks
    else:
        rank_weight = np.full(depth, 1 / depth)
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
    if measure.name not in SUMS:  # shared passages count, but not of a query with equal rankings
        decides = np.isin(queries, queries[decides])
    queries, passages, importance = queries[decides], passages[decides], importance[decides]
    best, delta = weights.max(axis=0)[decides], (weights[-1] - weights[0])[decides]
    # in the order of a hash where importance is equal, so that the place does not tell the result
    hash_order = (queries * 0x9E3779B1 + passages * 0x85EBCA77) % 0xFFFFFFFB
    order = np.lexsort((hash_order, -best.round(9), -importance.round(9), queries))
    return JudgmentPairs(queries[order], passages[order], importance[order], delta[order])


def open_rankings(folders: Sequence[ResultLike], what: str) -> LoadedResults:
    """Two or more results of one collection; `what` asks for them, for a message.

    Raises:
        InputError: There is one result, they are of different collections, or the collection is no longer in
            the cache.
    """
    results, collection = open_results(folders)
    if len(results) < 2:
        raise InputError(
            f"{what} with {len(results)} result", allowed="two or more, to decide between", fix="name another"
        )
    rankings = [scored_ranking(result, collection) for result in results.values()]
    return LoadedResults(results, collection, rankings)


def pool_to_decide(
    folders: Sequence[ResultLike], decide: str, queries: int = QUERIES, seed: int = SEED
) -> DrawnPool:
    """Draw queries, and list their unjudged pairs that can change a difference between results.

    Raises:
        InputError: There is one result, they are of different collections, the collection is no longer in the
            cache, or the measure cannot be decided so.
    """
    measure = decidable(decide)
    opened = open_rankings(folders, "--decide")
    collection = opened.collection
    ids = collection.queries.ids.to_pylist()
    drawn = draw_order(ids, seed)[:queries]
    place = np.zeros(len(ids), dtype=np.int64)  # 0 of those that were not drawn
    place[drawn] = np.arange(1, len(drawn) + 1)
    pairs = deciding_pairs(opened, measure)
    listed = np.flatnonzero((place[pairs.queries] > 0) & ~is_judged(pairs, collection.qrels, collection))
    listed = listed[np.argsort(place[pairs.queries[listed]], kind="stable")]
    rows = [
        replace(row, draw=f"{number}/{len(drawn)} seed {seed} {measure}")
        for row, number in zip(
            rows_of_pairs(collection, pairs.queries[listed], pairs.passages[listed]),
            place[pairs.queries[listed]].tolist(),
            strict=True,
        )
    ]
    return DrawnPool(rows, measure, len(drawn), len(ids))


def read_labels(opened: LoadedResults, path: Path) -> Labels:
    """Read a file of `pool_to_decide` in which people have filled in grades, all or the first ones.

    Args:
        opened: The results that the file was made of, in any order.
        path: The file.

    Raises:
        InputError: It cannot be read, has grades of queries that were not drawn, no query is finished, or a
            grade contradicts the collection's judgments.
    """
    collection = opened.collection
    grades = read_grades(path)
    ids = collection.queries.ids.to_pylist()
    row_of = {query: row for row, query in enumerate(ids)}
    said = _DRAW.fullmatch(grades.rows[0].draw)
    measure = decidable(said["measure"]) if said else None
    seed, count = (int(said["seed"]), int(said["queries"])) if said else (0, 0)
    order = draw_order(ids, seed)[:count]
    place = {int(row): number for number, row in enumerate(order, 1)}
    for row in grades.rows:
        number = place.get(row_of.get(row.query_id, -1))
        if measure is None or row.draw != f"{number}/{count} seed {seed} {measure}":
            raise InputError(
                f"{path} has a grade for query {row.query_id}, which was not drawn "
                + (f"({row.draw!r} says otherwise)" if row.draw else "(its column draw is empty)"),
                allowed="grades of drawn queries, with the column draw as written: "
                "only a random choice speaks for all queries",
                fix="use the file of benchmarco pool --decide, made from these results",
            )
    assert measure is not None
    qrels, _ = with_grades(collection, grades)
    pairs = deciding_pairs(opened, measure)
    known = is_judged(pairs, qrels, collection)
    finished = ~np.isin(order, pairs.queries[~known])
    first = len(order) if finished.all() else int(np.argmin(finished))
    if not first:
        raise InputError(
            f"{path}: query {ids[order[0]]}, the first that was drawn, has rows without a grade",
            allowed="grades for all rows of at least the first query",
            fix="judge the queries in the order of the file",
        )
    labelled = order[:first]
    values = opened.values(qrels, measure)[labelled]
    after = int(finished[first:].sum())
    return Labels(measure, list(opened.results), labelled, values, len(ids), len(order), after, qrels)


def is_judged(pairs: JudgmentPairs, qrels: Qrels, collection: Collection) -> BoolArray:
    """Bool [pairs]: whether each has a grade."""
    keys = pair_keys(pairs.queries, pairs.passages, collection)
    known: BoolArray = np.isin(keys, pair_keys(qrels.queries, qrels.passages, collection))
    return known
