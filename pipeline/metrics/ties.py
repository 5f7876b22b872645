"""What a measure could be if tied documents were ordered in another way: lowest, expected and highest value.

Documents of equal scores have no order of their own: tools order them by id, by insertion or at random. Here
all orders of each group of tied documents are equally likely. No order is drawn: the lowest and highest
values are those of the rankings in which every group begins with its lowest or highest grades, and each
expectation is a closed form (`expected`). Documents below the ranking's end are unknown, so ties with them do
not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

import numpy as np

from pipeline.core.records import BoolArray, Float64, Int64, Qrels, Ranking
from pipeline.metrics.names import Measure
from pipeline.metrics.ranking_notes import TieRange, Ties
from pipeline.metrics.rankings import JudgedRanking, TiedCells
from pipeline.metrics.scoring import judge_ranking, values_of


class TiedValues(NamedTuple):
    """Values of queries with ties: their rows, and lowest, expected and highest, [3, rows, measures]."""

    rows: Int64
    values: Float64

    def of(self, rows: Int64) -> TiedValues:
        """The same among more queries, of which these are `rows`."""
        return TiedValues(rows[self.rows], self.values)


def tie_ranges(
    ranking: Ranking,
    qrels: Qrels,
    n_queries: int,
    measures: Sequence[Measure],
    values: Float64,
    counted: Int64,
) -> Ties | None:
    """The ranges of the means of measures; None if no documents tie.

    Args:
        ranking: A row for each query, as of `compute_measures`.
        qrels: The judgments.
        n_queries: Number of queries.
        measures: The measures; those without a range are left out.
        values: What `compute_measures` returned for them, float64 [n_queries, measures].
        counted: int64, rows of the queries that the means are over.
    """
    return ranges_of([tied_values(ranking, qrels, n_queries, measures)], measures, values, counted)


def tied_values(ranking: Ranking, qrels: Qrels, n_queries: int, measures: Sequence[Measure]) -> TiedValues:
    """The values of the queries with ties; arguments are those of `tie_ranges`."""
    ties = (ranking.scores[:, 1:] == ranking.scores[:, :-1]) & (ranking.passages[:, 1:] >= 0)
    rows = np.flatnonzero(ties.any(axis=1))
    if not rows.size:
        return TiedValues(rows, np.empty((3, 0, len(measures))))
    depth = ranking.passages.shape[1]
    groups = _grouped(Ranking(ranking.passages[rows], ranking.scores[rows]), ties[rows], rows_of(qrels, rows))
    worst, best = (
        JudgedRanking(groups.found.ordered(best_first), groups.ideal, groups.retrieved)
        for best_first in (False, True)
    )
    of_orders = (
        values_of(worst, measures, depth, lambda measure: measure.compute),
        values_of(groups, measures, depth, lambda measure: measure.expected),
        values_of(best, measures, depth, lambda measure: measure.compute),
    )
    return TiedValues(rows, np.stack(of_orders))


def ranges_of(
    tied: Sequence[TiedValues], measures: Sequence[Measure], values: Float64, counted: Int64
) -> Ties | None:
    """The ranges of means, of the values of disjoint queries; other arguments are those of `tie_ranges`."""
    rows = np.concatenate([part.rows for part in tied])
    n_tied = int(np.isin(rows, counted).sum())
    if not n_tied:
        return None
    changed = np.stack([values] * 3)
    changed[:, rows] = np.concatenate([part.values for part in tied], axis=1)
    means = changed[:, counted].mean(axis=1).tolist()
    ranges = {
        str(measure): TieRange(lowest=lowest, expected=expected, highest=highest)
        for measure, lowest, expected, highest in zip(measures, *means, strict=True)
        if not isnan(expected)
    }
    return Ties(queries=n_tied, measures=ranges)


def rows_of(qrels: Qrels, rows: Int64) -> Qrels:
    """The judgments of some queries, which are numbered anew."""
    is_in = np.isin(qrels.queries, rows)
    queries = np.searchsorted(rows, qrels.queries[is_in])
    return Qrels(queries, qrels.passages[is_in], qrels.grades[is_in])


def _grouped(ranking: Ranking, tied: BoolArray, qrels: Qrels) -> JudgedRanking[TiedCells]:
    """A ranking's judged documents; `tied`, bool [queries, k - 1], says which hits tie with the next."""
    n_queries, k = ranking.passages.shape
    judged = judge_ranking(ranking, qrels, n_queries)
    edge, places = np.ones((n_queries, 1), np.bool_), np.arange(k)
    start = np.where(np.hstack((edge, ~tied)), places, 0)
    start = np.maximum.accumulate(start, axis=1)
    end = np.where(np.hstack((~tied, edge)), places + 1, k)
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    graded = judged.found
    above, last = (places[graded.queries, graded.ranks - 1] for places in (start, end))
    cells = TiedCells(n_queries, graded.queries, graded.grades, above, last - above)
    return JudgedRanking(cells, judged.ideal, judged.retrieved)
