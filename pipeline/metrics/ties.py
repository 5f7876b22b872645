"""What a measure could be if tied documents were ordered in another way: lowest, expected and highest value.

Documents of equal scores have no order of their own: tools order them by id, by insertion or at random. Here
all orders of each group of tied documents are equally likely (McSherry and Najork, *Computing information
retrieval performance measures efficiently in the presence of tied scores*, ECIR 2008). No order is drawn: the
lowest and highest values are those of the rankings in which every group begins with its lowest or highest
grades, and each expectation is a closed form. Documents below the ranking's end are unknown, so ties with
them do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.records import BoolArray, Float64, Int64, Qrels, Ranking
from pipeline.metrics.measures import (
    MEASURES,
    Graded,
    JudgedRanking,
    content,
    gains,
    ideal_order,
    ratio,
)
from pipeline.metrics.names import Measure
from pipeline.metrics.ranking_notes import TieRange, Ties
from pipeline.metrics.scoring import judge_ranking, values_of


@dataclass(frozen=True)
class TiedRanking:
    """The judged documents of a ranking, in groups of equal scores; one without a tie is a group of one.

    Attributes:
        n_queries: Number of queries.
        queries: int64 [cells], row of the query, ascending.
        above: int64 [cells], number of documents of higher scores, ascending within a query.
        size: int64 [cells], number of documents in the group, judged or not.
        grades: int64 [cells].
        ideal, retrieved: As in `JudgedRanking`.
    """

    n_queries: int
    queries: Int64
    above: Int64
    size: Int64
    grades: Int64
    ideal: Graded
    retrieved: Int64

    def where(self, keep: BoolArray) -> TiedRanking:
        """The cells where `keep`, bool [cells], is true."""
        cells = (self.queries[keep], self.above[keep], self.size[keep], self.grades[keep])
        return TiedRanking(self.n_queries, *cells, self.ideal, self.retrieved)

    def relevant(self, rel: int) -> TiedRanking:
        """The cells of grade `rel` or higher."""
        return self.where(self.grades >= rel)

    def n_relevant(self, rel: int) -> Int64:
        """int64 [queries, 1]: number of relevant documents of each query, retrieved or not."""
        return self.ideal.relevant(rel).count()

    def counts(self) -> tuple[Int64, Int64]:
        """int64 [cells] each: how many cells of its query are in groups above, and how many in its own."""
        start, first, end = self.groups()
        return first - start, end - first

    def groups(self) -> tuple[Int64, Int64, Int64]:
        """int64 [cells] each: the first cell of the query, the first of the group, and one past its last."""
        key = self.queries * (int(self.above.max(initial=0)) + 1) + self.above
        first, end = np.searchsorted(key, key), np.searchsorted(key, key, side="right")
        return np.searchsorted(self.queries, self.queries), first, end

    def condensed(self) -> TiedRanking:
        """The ranking without unjudged documents, as `JudgedRanking.condensed`."""
        kept = self.relevant(0)
        before, within = kept.counts()
        retrieved = np.bincount(kept.queries, minlength=self.n_queries)
        return replace(kept, above=before, size=within, retrieved=retrieved)

    def ordered(self, best_first: bool) -> JudgedRanking:
        """The ranking with every group's highest grades first and unjudged documents last, or reversed."""
        order = np.lexsort((-self.grades if best_first else self.grades, self.above, self.queries))
        _, first, end = self.groups()
        unjudged = 0 if best_first else self.size - (end - first)
        ranks = self.above + unjudged + np.arange(len(first)) - first + 1
        found = Graded(self.n_queries, self.queries, ranks, self.grades[order])
        return JudgedRanking(found, self.ideal, self.retrieved)

    def total(
        self, cutoffs: Int64, weights: Float64 | None = None, discounts: Float64 | None = None
    ) -> Float64:
        """float64 [queries, cutoffs]: the expected sum of weight x discount over cells within each cutoff.

        A cell is at each rank of its group with the same probability.

        Args:
            cutoffs: int64 [c], or [cells, 1] for a cutoff of each cell's own.
            weights: float64 [cells]; None is 1.
            discounts: float64 [deepest rank], of each rank; None is 1.
        """
        depth = int((self.above + self.size).max(initial=0))
        within = np.concatenate(
            ([0.0], np.cumsum(np.ones(depth) if discounts is None else discounts[:depth]))
        )
        end, start = (self.above + self.size)[:, None], self.above[:, None]
        shares = (within[np.minimum(end, cutoffs)] - within[np.minimum(start, cutoffs)]) / self.size[:, None]
        return self.sums(shares if weights is None else shares * weights[:, None])

    def sums(self, cells: Float64) -> Float64:
        """float64 [queries, c]: the sums of [cells, c] over each query's cells."""
        columns = [np.bincount(self.queries, column, minlength=self.n_queries) for column in cells.T]
        return np.stack(columns, axis=1).astype(np.float64)  # without cells, they are counts

    def ranks(self) -> Int64:
        """The ranks down to the last judged group's end."""
        return np.arange(1, int((self.above + self.size).max(initial=0)) + 1)


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
    tied = (ranking.scores[:, 1:] == ranking.scores[:, :-1]) & (ranking.passages[:, 1:] >= 0)
    rows = np.intersect1d(np.flatnonzero(tied.any(axis=1)), counted)
    if not rows.size:
        return None
    chosen = [each for each in measures if each.name in EXPECTED and ("norm", "retrieved") not in each.params]
    values = values[:, [measures.index(each) for each in chosen]]
    groups = _grouped(
        Ranking(ranking.passages[rows], ranking.scores[rows]), tied[rows], _rows_of(qrels, rows)
    )
    formulas = {name: definition.compute for name, definition in MEASURES.items()}
    means = []
    for of, functions in (
        (groups.ordered(best_first=False), formulas),
        (groups, EXPECTED),
        (groups.ordered(best_first=True), formulas),
    ):
        changed = values.copy()
        changed[rows] = values_of(of, len(rows), chosen, ranking.passages.shape[1], functions)
        means.append(changed[counted].mean(axis=0).tolist())
    ranges = (
        TieRange(lowest=low, expected=mean, highest=high) for low, mean, high in zip(*means, strict=True)
    )
    return Ties(queries=len(rows), measures=dict(zip(map(str, chosen), ranges, strict=True)))


def _rows_of(qrels: Qrels, rows: Int64) -> Qrels:
    """The judgments of some queries, which are numbered anew."""
    kept = np.isin(qrels.queries, rows)
    queries = np.searchsorted(rows, qrels.queries[kept])
    return Qrels(queries, qrels.passages[kept], qrels.grades[kept])


def _grouped(ranking: Ranking, tied: BoolArray, qrels: Qrels) -> TiedRanking:
    """A ranking's judged documents; `tied`, bool [queries, k - 1], says which hits tie with the next."""
    n_queries, k = ranking.passages.shape
    judged = judge_ranking(ranking, qrels, n_queries)
    edge, places = np.ones((n_queries, 1), np.bool_), np.arange(k)
    start = np.where(np.hstack((edge, ~tied)), places, 0)
    start = np.maximum.accumulate(start, axis=1)
    end = np.where(np.hstack((~tied, edge)), places + 1, k)
    end = np.minimum.accumulate(end[:, ::-1], axis=1)[:, ::-1]
    found = judged.found
    above, last = (each[found.queries, found.ranks - 1] for each in (start, end))
    return TiedRanking(
        n_queries, found.queries, above, last - above, found.grades, judged.ideal, judged.retrieved
    )


def _precision(tied: TiedRanking, cutoffs: Int64, rel: int) -> Float64:
    return tied.relevant(rel).total(cutoffs) / cutoffs


def _recall(tied: TiedRanking, cutoffs: Int64, rel: int, cap: bool) -> Float64:
    n_relevant = tied.n_relevant(rel)
    reachable = np.minimum(n_relevant, cutoffs) if cap else n_relevant
    return ratio(tied.relevant(rel).total(cutoffs), reachable)


def _r_precision(tied: TiedRanking, cutoffs: Int64, rel: int) -> Float64:
    n_relevant, relevant = tied.n_relevant(rel), tied.relevant(rel)
    return ratio(relevant.total(n_relevant[relevant.queries]), n_relevant)


def _judged_share(tied: TiedRanking, cutoffs: Int64) -> Float64:
    return ratio(tied.total(cutoffs), np.minimum(cutoffs, tied.retrieved[:, None]))


def _rbp(tied: TiedRanking, cutoffs: Int64, p: float, rel: int) -> Float64:
    relevant = tied.relevant(rel)
    return relevant.total(cutoffs, None, (1 - p) * np.power(p, relevant.ranks() - 1.0))


def _cg(tied: TiedRanking, cutoffs: Int64, gain: str) -> Float64:
    return tied.total(cutoffs, gains(tied.grades, gain))


def _dcg(tied: TiedRanking, cutoffs: Int64, gain: str) -> Float64:
    return tied.total(cutoffs, gains(tied.grades, gain), 1 / np.log2(tied.ranks() + 1))


def _ndcg(tied: TiedRanking, cutoffs: Int64, gain: str, ideal: str) -> Float64:
    best = tied.ideal if ideal == "all" else ideal_order(tied.n_queries, tied.queries, tied.grades)
    return ratio(_dcg(tied, cutoffs, gain), best.dcg(cutoffs, gain))


def _average_precision(tied: TiedRanking, cutoffs: Int64, rel: int, norm: str) -> Float64:
    """Of the R - 1 other relevant documents of a group of n, (R - 1) / (n - 1) are expected at each rank.

    The precision expected at the j-th rank of the group, below `above` documents with r relevant ones, is
    (r + 1 + (j - 1) slope) / (above + j) = (r + 1 - (above + 1) slope) / rank + slope.
    """
    relevant = tied.relevant(rel)
    before, within = relevant.counts()
    slope = ratio((within - 1).astype(np.float64), relevant.size - 1)
    at_rank = before + 1 - (relevant.above + 1) * slope
    precisions = relevant.total(cutoffs, at_rank, 1 / relevant.ranks()) + relevant.total(cutoffs, slope)
    return ratio(precisions, tied.n_relevant(rel))


def _bpref(tied: TiedRanking, cutoffs: Int64, rel: int) -> Float64:
    """From none to all N non-relevant documents of its group stand above a relevant one, equally likely."""
    labelled, relevant = tied.relevant(0), tied.relevant(rel)
    is_relevant = labelled.grades >= rel
    all_before, all_within = labelled.counts()
    before, within = relevant.counts()
    before, within = all_before[is_relevant] - before, all_within[is_relevant] - within
    n_relevant = tied.n_relevant(rel)
    most = np.minimum(n_relevant, tied.n_relevant(0) - n_relevant)[relevant.queries, 0]
    below = np.clip(most - before, 0, within + 1)  # how many of these N + 1 numbers are below the most
    above = (below * before + below * (below - 1) / 2 + (within + 1 - below) * most) / (within + 1)
    return ratio(relevant.total(cutoffs, 1 - ratio(above, most)), n_relevant)


def _success(tied: TiedRanking, cutoffs: Int64, rel: int) -> Float64:
    relevant = tied.relevant(rel)
    return _reading(relevant, cutoffs, np.ones(len(relevant.grades)), np.ones(len(relevant.ranks())))


def _mrr(tied: TiedRanking, cutoffs: Int64, rel: int) -> Float64:
    relevant = tied.relevant(rel)
    return _reading(relevant, cutoffs, np.ones(len(relevant.grades)), 1 / relevant.ranks())


def _err(tied: TiedRanking, cutoffs: Int64) -> Float64:
    relevant = tied.relevant(1)
    return _reading(relevant, cutoffs, content(relevant.grades), 1 / relevant.ranks())


def _reading(tied: TiedRanking, cutoffs: Int64, stops: Float64, worth: Float64) -> Float64:
    """The expected worth of the rank at which a reader stops, float64 [queries, cutoffs].

    `stops`, [cells], is the probability that a document ends the reading, `worth` the value of each rank. The
    probability to read on after j documents of a group is the mean product of 1 - stops over all sets of j
    documents: `onward`, which is built up by one document after the other.
    """
    values = np.zeros((tied.n_queries, len(worth) + 1))
    reads = np.ones(tied.n_queries)
    _, first, end = tied.groups()
    for cell in np.unique(first):
        query, above, size = tied.queries[cell], tied.above[cell], tied.size[cell]
        if reads[query] == 0:
            continue
        onward = np.ones(size + 1)
        count = size - (end[cell] - cell)  # documents that end no reading
        for stop in stops[cell : end[cell]]:
            count += 1
            j = np.arange(1, count + 1)
            onward[1 : count + 1] = (
                (count - j) * onward[1 : count + 1] + j * (1 - stop) * onward[:count]
            ) / count
        here = slice(above, above + size)
        values[query, 1:][here] = reads[query] * (onward[:-1] - onward[1:]) * worth[here]
        reads[query] *= onward[size]
    total: Float64 = np.cumsum(values, axis=1)[:, np.minimum(cutoffs, len(worth))]
    return total


EXPECTED: dict[str, Callable[..., Float64]] = {
    "precision": _precision, "recall": _recall, "mrr": _mrr, "map": _average_precision, "success": _success,
    "r_precision": _r_precision, "judged": _judged_share, "bpref": _bpref, "cg": _cg, "dcg": _dcg,
    "ndcg": _ndcg, "rbp": _rbp, "err": _err,
}  # fmt: skip
"""The expected values by the names of `MEASURES`; arguments are those of their formulas.

There is none for `infap`, nor for `map(norm=retrieved)`: both divide by what depends on the order too.
"""
