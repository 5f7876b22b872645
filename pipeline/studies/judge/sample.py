"""Which few pairs of query and passage people judge to decide between results, and reading of their grades.

rows, facts = pool_to_decide(folders, decidable("precision@10"), queries=40, seed=1)
write_pool(rows, Path("pool.tsv"))  # people fill in the grades, in the file's order
labels = read_labels(open_rankings(folders, "--labels"), Path("pool.tsv"))
labels.queries, labels.values  # int64 [n], rows of the collection; float64 [n, results]

Queries are drawn at random, so that n of them speak for all N. A query whose rankings may differ more is
drawn more often, in proportion to `drawing_weights`; one whose difference no grade can change is not drawn,
as its difference is known. Of each query the SHA-256 of the seed and its id is a uniform number u; in the
order of -ln(u) / weight each next query is drawn from those left in proportion to its weight (Efraimidis and
Spirakis, Information Processing Letters 97(5), 2006). More queries with the same seed continue the same
order. Every row says which one it is of how many and for which measure, and grades of other queries are
refused.

People may stop at any time. A query counts once all its rows have grades, and only queries before the first
one that is not finished count: who skipped the hard ones would not have drawn at random.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from pipeline.comparison.inputs import ResultLike
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64, Qrels
from pipeline.metrics.definitions import Measure, parse_measure
from pipeline.studies.judge.pool import PoolRow, open_results, read_grades, rows_of_pairs, with_grades
from pipeline.studies.shared.cached import scored_ranking
from pipeline.studies.shared.pools import LoadedResults, deciding_pairs, difference_ranges, is_judged

QUERIES, SEED = 40, 1
HIGHEST_GRADE = 3
LEAST = 0.3
"""Weight of a query that can hardly differ, as a share of the mean weight. With it most samples of 40 queries
have an interval, and the interval is as narrow as any: `scripts/simulate_statistics.py labels`."""
_DRAW = re.compile(r"[0-9]{1,9}/(?P<queries>[0-9]{1,9}) seed (?P<seed>[0-9]{1,9}) (?P<measure>\S+)")


@dataclass(frozen=True)
class Labels:
    """What people's grades say of the drawn queries that are finished."""

    measure: Measure  # what they were drawn to decide
    queries: Int64  # int64 [n], rows of the collection, in the order of drawing
    # float64 [N], what they were drawn in proportion to; 0 of those whose difference is known.
    weights: Float64
    # float64 [N, results], the measure of all queries by the grades and the collection's own judgments.
    values: Float64
    after: int  # how many finished ones were left out, as one before them is not finished
    qrels: Qrels  # the collection's judgments with the grades


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
    if measure.definition.additive:
        return ""
    if measure.definition.first_only:
        return f"{measure} depends on shared passages, too: all of the top {measure.cutoff} are listed"
    return (
        f"{measure} divides by all relevant passages: those known are in the top {measure.cutoff} of these "
        f"results, or were judged before. For others, take precision@{measure.cutoff} or dcg@{measure.cutoff}"
    )


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
    folders: Sequence[ResultLike], measure: Measure, queries: int = QUERIES, seed: int = SEED
) -> tuple[list[PoolRow], dict[str, int]]:
    """Draw queries, and list their unjudged pairs that can change a difference between results.

    Returns:
        The rows to judge: queries in the order of drawing, the most important pair of each first, and those
        of equal importance at random. And the number of `queries` drawn, `of` how many, and how many are
        `known`: no grade can change their difference.

    Raises:
        InputError: As of `open_rankings`.
    """
    opened = open_rankings(folders, "--decide")
    collection = opened.collection
    ids = collection.queries.ids.to_pylist()
    weights = drawing_weights(opened, measure)
    drawn = draw_order(ids, weights, seed)[:queries]
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
    return rows, {"queries": len(drawn), "of": len(ids), "known": int((weights == 0).sum())}


def read_labels(opened: LoadedResults, path: Path, allowed: Sequence[int] = ()) -> Labels:
    """Read a file of `pool_to_decide` in which people have filled in grades, all or the first ones.

    `opened` are the results that it was made of, in any order. Without `allowed` grades, all are.

    Raises:
        InputError: It cannot be read, has a grade that is not allowed or of a query that was not drawn, fewer
            than two queries are finished, or a grade contradicts the collection's judgments.
    """
    collection = opened.collection
    grades = read_grades(path)
    for row in grades.rows:
        if allowed and row.grade not in allowed:
            raise InputError(
                f"{path}: grade {row.grade} for passage {row.passage_id} of query {row.query_id}",
                allowed=f"{', '.join(map(str, allowed))}, as in judge.grades",
                fix="correct it, or change judge.grades",
            )
    ids = collection.queries.ids.to_pylist()

    def not_drawn(row: PoolRow) -> InputError:
        why = f"{row.draw!r} says otherwise" if row.draw else "its column draw is empty"
        return InputError(
            f"{path} has a grade for query {row.query_id}, which was not drawn ({why})",
            allowed="grades of drawn queries, with the column draw as written: "
            "only a random choice speaks for all queries",
            fix="use the file of benchmarco pool --decide, made from these results",
        )

    said = _DRAW.fullmatch(grades.rows[0].draw)
    if said is None:
        raise not_drawn(grades.rows[0])
    measure, seed, count = decidable(said["measure"]), int(said["seed"]), int(said["queries"])
    weights = drawing_weights(opened, measure)
    order = draw_order(ids, weights, seed)[:count]
    place = {ids[row]: number for number, row in enumerate(order, 1)}
    for row in grades.rows:
        if row.draw != f"{place.get(row.query_id)}/{count} seed {seed} {measure}":
            raise not_drawn(row)
    qrels, _ = with_grades(collection, grades)
    pairs = deciding_pairs(opened, measure)
    known = is_judged(pairs, qrels, collection)
    finished = ~np.isin(order, pairs.queries[~known])
    first = len(order) if finished.all() else int(np.argmin(finished))
    if first < 2:
        raise InputError(
            f"{path}: {counted(first, 'finished query', 'finished queries')} before the first that has rows "
            "without a grade",
            allowed="grades for all rows of at least the first two queries",
            fix="judge the queries in the order of the file",
        )
    labelled = order[:first]
    after = int(finished[first:].sum())
    values = opened.values(qrels, measure)
    return Labels(measure, labelled, weights, values, after, qrels)


def draw_order(query_ids: Sequence[str], weights: Float64, seed: int) -> Int64:
    """int64: the rows of a weight above 0, float64 [queries], in the order in which they are drawn."""
    digests = (sha256(f"{seed} {query}".encode()).digest() for query in query_ids)
    uniform = (np.array([int.from_bytes(digest[:6]) for digest in digests]) + 0.5) / 2**48
    waits = np.divide(-np.log(uniform), weights, out=np.full(len(weights), np.inf), where=weights > 0)
    return np.argsort(waits, kind="stable")[: np.count_nonzero(weights)]


def drawing_weights(opened: LoadedResults, measure: Measure) -> Float64:
    """float64 [queries]: what queries are drawn in proportion to, 0 where every difference is known.

    That is how far the rankings of a query allow its difference to be, and `LEAST` of the mean besides. So
    one labelled query stands for a difference of about the same size, whichever it is: few queries that lose
    everything cannot hide among many that lose little.
    """
    farthest = np.zeros(len(opened.collection.queries))
    unknown = np.zeros(len(farthest), dtype=bool)
    for a, b in itertools.combinations(range(len(opened.rankings)), 2):
        low, high = difference_ranges(opened, measure, a, b, HIGHEST_GRADE)
        farthest, unknown = np.maximum(farthest, np.maximum(-low, high)), unknown | (low < high)
    if not unknown.any():
        return np.zeros(len(farthest))
    return np.where(unknown, farthest + LEAST * farthest[unknown].mean(), 0.0)
