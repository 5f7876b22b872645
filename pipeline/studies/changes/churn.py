"""What changes where one result takes the place of another: rankings, and what judging could change.

churn = churn_of(compare([old, new], "precision@10"))
churn.changed, churn.overlap, churn.lowest, churn.highest

All of it is read from result folders and the cached collection. No vector is computed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Int64, JsonObject, Ranking
from pipeline.core.table import FilledColumn, Table, right, table_of
from pipeline.metrics.names import Measure, parse_measure
from pipeline.metrics.rankings import gains
from pipeline.studies.shared.cached import find_collection, scored_ranking
from pipeline.studies.shared.pools import LoadedResults, deciding_pairs, is_judged, pair_keys
from pipeline.studies.study import Findings

DEPTH, PERSISTENCE = 10, 0.9
ALWAYS = (
    "changed: queries whose top {k} differ in passages or order. overlap: share of the top {k} in both. "
    "RBO: rank-biased overlap, p = 0.9."
)
BOUNDS = (
    "lowest and highest: the difference in {measure}, the second minus the first, if all unjudged passages "
    "were judged in the worst and in the best way."
)
JUDGED = "to judge: unjudged pairs that can change it."


@dataclass(frozen=True)
class Churn(Findings):
    """What changes from one result to another."""

    before: str  # before, after: their names
    after: str
    measure: str  # what they are compared by
    depth: int  # k, the ranks that are compared: the measure's cutoff, else 10
    queries: int  # how many were judged
    changed: int  # how many of them have another top k, in passages or order
    overlap: float  # mean share of the top k that both have
    # Mean rank-biased overlap of the top k, extrapolated, with p = 0.9 (Webber, Moffat and Zobel, ACM TOIS
    # 28(4), 2010, equation 30).
    rbo: float
    # lowest, highest: What the mean difference, after minus before, could be with all unjudged passages
    # judged; None of measures that are no sums over ranks.
    lowest: float | None
    highest: float | None
    # Unjudged pairs that could change the difference; None where judging cannot decide it.
    to_judge: int | None
    heading = "If you switch"

    def json(self) -> JsonObject:
        """What `compare --json` prints as `churn`."""
        return asdict(self)

    def figures(self) -> JsonObject:
        """The same as columns of the pair's row, for CSV."""
        return {f"churn_{name}": value for name, value in self.json().items()}

    def tables(self) -> list[Table]:
        """One table of one row."""
        columns: list[FilledColumn] = [
            (right("changed", form=","), [self.changed]),
            (right("overlap", form=".3f"), [self.overlap]),
            (right("RBO", form=".3f"), [self.rbo]),
            (right("lowest", form="+.4f"), [self.lowest]),
            (right("highest", form="+.4f"), [self.highest]),
            (right("to judge", form=","), [self.to_judge]),
        ]
        shown = {
            ALWAYS: True,
            BOUNDS: self.lowest is not None,
            JUDGED: self.to_judge is not None,
        }
        legend = " ".join(sentence for sentence, needed in shown.items() if needed)
        notes = [legend.format(k=self.depth, measure=self.measure)]
        title = f"from {self.before} to {self.after}, {self.queries:,} queries"
        return [table_of(title, columns, notes)]


def churn_of(comparison: Comparison) -> Churn | None:
    """What changes from the first of two results to the other, or from the baseline to the other.

    Returns:
        None of other than two results, of suites and run files, where the collection is not in the cache of
        either, or where a ranking cannot be read.
    """
    if (
        len(comparison.loaded) != 2
        or comparison.of_suites
        or any(each.folder.is_file() for each in comparison.loaded)
    ):
        return None
    names = [entry.name for entry in comparison.results]
    first = names.index(comparison.baseline) if comparison.baseline else 0
    order = (first, 1 - first)
    before, after = (comparison.sources[number] for number in order)
    measure = comparison.measure
    parsed = parse_measure(measure)
    depth = parsed.cutoff or DEPTH
    try:
        collection = find_collection(after) or find_collection(before)
        if collection is None:
            return None
        results = {names[number]: comparison.sources[number] for number in order}
        rankings = [scored_ranking(each, collection) for each in (before, after)]
        opened = LoadedResults(results, collection, rankings)
    except (InputError, OSError):
        return None
    judged = np.unique(collection.qrels.queries)
    tops = [_top(ranking, depth)[judged] for ranking in opened.rankings]
    shared = _shared(*tops)
    sizes_of = np.maximum(*(np.count_nonzero(top >= 0, axis=1) for top in tops))
    overlap = shared[:, -1] / np.maximum(sizes_of, 1)
    known = not parsed.condensed and parsed.name != "judged" and bool(parsed.cutoff)
    low, high, pairs = _bounds(opened, parsed) if known else (None, None, None)
    return Churn(
        before=names[order[0]],
        after=names[order[1]],
        measure=measure,
        depth=depth,
        queries=len(judged),
        changed=int((tops[0] != tops[1]).any(axis=1).sum()),
        overlap=float(overlap[sizes_of > 0].mean()) if sizes_of.any() else 1.0,
        rbo=float(_rank_biased_overlap(shared).mean()),
        lowest=low,
        highest=high,
        to_judge=pairs,
    )


def _top(ranking: Ranking, depth: int) -> Int64:
    """int64 [queries, depth], padded with -1."""
    top = np.full((len(ranking.passages), depth), -1)
    found = ranking.passages[:, :depth]
    top[:, : found.shape[1]] = found
    return top


def _shared(one: Int64, other: Int64) -> Int64:
    """int64 [queries, k]: how many passages the first 1 to k ranks of two rankings share."""
    queries, depth = one.shape
    stride = int(max(one.max(initial=0), other.max(initial=0))) + 1
    keys, cells = [], []
    for top in (one, other):
        cells.append(np.flatnonzero(top >= 0))
        keys.append((np.arange(queries)[:, None] * stride + top).ravel()[cells[-1]])
    _, *places = np.intersect1d(keys[0], keys[1], assume_unique=True, return_indices=True)
    ranks = [cell[place] % depth for cell, place in zip(cells, places, strict=True)]
    # a shared passage counts from the deeper of its two ranks on
    first = cells[0][places[0]] // depth * depth + np.maximum(*ranks)
    counts = np.bincount(first, minlength=queries * depth).reshape(queries, depth)
    return np.cumsum(counts, axis=1)


def _rank_biased_overlap(shared: Int64) -> Float64:
    """float64 [queries]: extrapolated from the shared passages of the first 1 to k ranks."""
    ranks = np.arange(1, shared.shape[1] + 1)
    agreement = shared / ranks
    terms = (1 - PERSISTENCE) / PERSISTENCE * (agreement * PERSISTENCE**ranks).sum(axis=1)
    whole: Float64 = agreement[:, -1] * PERSISTENCE ** ranks[-1] + terms
    return whole


def _bounds(opened: LoadedResults, measure: Measure) -> tuple[float | None, float | None, int]:
    """The lowest and highest mean difference, second minus first, and the unjudged pairs that it depends on.

    Where none is unjudged, both are the difference.
    """
    collection = opened.collection
    qrels, pairs = collection.qrels, deciding_pairs(opened, measure)
    judged = np.unique(qrels.queries)
    unjudged = ~is_judged(pairs, qrels, collection) & np.isin(pairs.queries, judged)
    settings = measure.settings
    if not measure.definition.additive or not {"gain", "rel"} & settings.keys():
        return None, None, int(unjudged.sum())
    keys, graded = (pair_keys(each.queries, each.passages, collection) for each in (pairs, qrels))
    grades = np.zeros(len(keys), qrels.grades.dtype)
    if len(graded):
        place = np.minimum(np.searchsorted(graded, keys), len(graded) - 1)
        grades = np.where(graded[place] == keys, qrels.grades[place], 0)
    most = max(1, qrels.grades.max(initial=0).item())
    if "gain" in settings:
        gain = str(settings["gain"])
        worth, best = gains(grades, gain), float(gains(np.array([most]), gain)[0])
    else:
        worth, best = (grades >= float(settings["rel"])).astype(np.float64), 1.0
    counted = np.isin(pairs.queries, judged)
    known = float((pairs.delta * worth)[counted].sum())
    open_ = pairs.delta[unjudged] * best
    low, high = known + np.minimum(open_, 0).sum(), known + np.maximum(open_, 0).sum()
    return float(low / len(judged)), float(high / len(judged)), int(unjudged.sum())
