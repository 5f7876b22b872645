"""What changes where one result takes the place of another: its rankings, and the queries that differ most.

churn = churn_of(compare([old, new], "precision@10"))
churn.changed, churn.overlap, churn.lowest, churn.highest

All of it is read from result folders and the cached collection. No vector is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import counted, cut, figure
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float64, Int64, JsonObject, Ranking
from pipeline.core.result_records import columns_of
from pipeline.core.table import Cell, Column, FilledColumn, Table, right, table_of
from pipeline.metrics.definitions import Measure, parse_measure
from pipeline.studies.shared.cached import find_collection, scored_ranking
from pipeline.studies.shared.pools import LoadedResults, deciding_pairs, difference_ranges, is_judged
from pipeline.studies.study import Findings

TEXT, PASSAGE = 60, 200  # characters shown of a query and of a passage
MOST_RANKS = 3
"""Relevant passages of one query in a table; CSV and JSON have all."""
DEPTH, PERSISTENCE = 10, 0.9


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
        shown = [
            ("changed", "changed", ","),
            ("overlap", "overlap", ".3f"),
            ("RBO", "rbo", ".3f"),
            ("lowest", "lowest", "+.4f"),
            ("highest", "highest", "+.4f"),
            ("to judge", "to_judge", ","),
        ]
        notes = [
            f"changed: queries whose top {self.depth} differ in passages or order. overlap: share of the "
            f"top {self.depth} in both. RBO: rank-biased overlap, p = 0.9."
        ]
        if self.lowest is not None:
            notes.append(
                f"lowest and highest: the difference in {self.measure}, the second minus the first, if all "
                "unjudged passages were judged in the worst and in the best way."
            )
        if self.to_judge is not None:
            notes.append("to judge: unjudged pairs that can change it.")
        title = f"from {self.before} to {self.after}, {self.queries:,} queries"
        return [table_of(title, columns_of([self], shown), notes)]


def churn_of(comparison: Comparison) -> Churn | None:
    """What changes from the first of two results to the other, or from the baseline to the other.

    Returns:
        None of other than two results, of suites and run files, where the collection is not in the cache of
        either, or where a ranking cannot be read.
    """
    files = any(each.folder.is_file() for each in comparison.loaded)
    if len(comparison.loaded) != 2 or comparison.of_suites or files:
        return None
    names = [entry.name for entry in comparison.results]
    first = names.index(comparison.baseline) if comparison.baseline else 0
    results = {names[number]: comparison.sources[number] for number in (first, 1 - first)}
    sources = [*results.values()]
    measure = parse_measure(comparison.measure)
    depth = measure.cutoff or DEPTH
    try:
        collection = find_collection(sources[1]) or find_collection(sources[0])
        if collection is None:
            return None
        opened = LoadedResults(results, collection, [scored_ranking(each, collection) for each in sources])
    except (InputError, OSError):
        return None
    judged = np.unique(collection.qrels.queries)
    tops = [_top(ranking, depth)[judged] for ranking in opened.rankings]
    shared = _shared(*tops)
    sizes_of = np.maximum(*(np.count_nonzero(top >= 0, axis=1) for top in tops))
    overlap = shared[:, -1] / np.maximum(sizes_of, 1)
    known = not measure.condensed and measure.name != "judged" and bool(measure.cutoff)
    low, high, pairs = _bounds(opened, measure) if known else (None, None, None)
    return Churn(
        before=names[first],
        after=names[1 - first],
        measure=comparison.measure,
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
    found = ranking.passages[:, :depth]
    return np.pad(found, ((0, 0), (0, depth - found.shape[1])), constant_values=-1)


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
    qrels, pairs = opened.collection.qrels, deciding_pairs(opened, measure)
    judged = np.unique(qrels.queries)
    unjudged = ~is_judged(pairs, qrels, opened.collection) & np.isin(pairs.queries, judged)
    if not measure.definition.additive:
        return None, None, int(unjudged.sum())
    low, high = difference_ranges(opened, measure, 1, 0, highest=1)
    return float(low[judged].mean()), float(high[judged].mean()), int(unjudged.sum())


@dataclass(frozen=True)
class RelevantPassage:
    """A relevant passage of a query: its rank in each result, None where it was not retrieved."""

    passage: str
    grade: float
    rank_a: int | None
    rank_b: int | None
    text: str


@dataclass(frozen=True)
class QueryChange:
    """A query: its values in both results, a minus b, and its relevant passages, the highest grades first."""

    query: str
    text: str
    value_a: float
    value_b: float
    difference: float
    relevant: list[RelevantPassage]


@dataclass(frozen=True)
class PairChanges:
    """The queries that differ most between two results, from the largest loss of a to its largest gain."""

    a: str
    b: str
    queries: list[QueryChange]


@dataclass(frozen=True)
class Changes(Findings):
    """The queries that differ most, for each pair of results."""

    measure: str  # what they are compared by
    pairs: list[PairChanges]  # in the order of the comparison
    known: bool  # whether the collection is in the cache; without it, there are no texts and ranks
    heading = "Queries that differ most"

    def json(self) -> JsonObject:
        """What `compare --json` prints as `changes`."""
        return {"pairs": [asdict(pair) for pair in self.pairs]}

    def csv(self) -> Table:
        """A relevant passage a row; a query without one has one row."""
        names = ("a", "b", "query", "text", "value_a", "value_b", "difference")
        of_passage = ("passage", "grade", "rank_a", "rank_b", "passage_text")
        rows = []
        for pair in self.pairs:
            for change in pair.queries:
                values = [pair.a, pair.b, *(str(getattr(change, name)) for name in names[2:])]
                of_each = [asdict(each).values() for each in change.relevant]
                cells = [["" if value is None else str(value) for value in each] for each in of_each]
                rows += [[*values, *each] for each in cells or [[""] * len(of_passage)]]
        return Table("", [*map(Column, names), *map(Column, of_passage)], rows)

    def tables(self) -> list[Table]:
        """A table of the first pair that differs, a query a row; JSON and CSV have all pairs."""
        pair = next((pair for pair in self.pairs if pair.queries), self.pairs[0])
        changes = pair.queries
        columns: list[FilledColumn] = [
            (Column("query", least=8), [change.query for change in changes]),
            (Column("text", wrap="words"), [cut(change.text, TEXT) for change in changes]),
            (right("a"), [change.value_a for change in changes]),
            (right("b"), [change.value_b for change in changes]),
            (
                right("a - b"),
                [Cell(figure(change.difference, "+.4f"), change.difference) for change in changes],
            ),
            (Column("relevant: rank in a, in b", wrap="words"), [_ranks(each.relevant) for each in changes]),
        ]
        title = f"queries that differ most in {self.measure}, {pair.a} (a) and {pair.b} (b)"
        notes = [
            "–: not retrieved." if self.known else "The collection is not in the cache: no texts and ranks."
        ]
        if others := len(self.pairs) - 1:
            notes.append(f"{counted(others, 'other pair')}: --format json or csv.")
        return [table_of(title, columns, notes)]


def _ranks(relevant: Sequence[RelevantPassage]) -> str:
    """The ranks of relevant passages as text."""
    shown = [f"{each.passage}: {each.rank_a or '–'}, {each.rank_b or '–'}" for each in relevant[:MOST_RANKS]]
    more = len(relevant) - len(shown)
    return "; ".join([*shown, *([f"{more:,} more"] if more else [])])


def find_changes(comparison: Comparison, count: int | None) -> Changes | None:
    """The largest losses and gains of each pair, `count` queries together; equal ones are left out.

    None where none are asked for, and of a result alone or a suite in a folder of many. A page has all
    queries anyway.

    Raises:
        InputError: The results are of a suite, or there is only one.
    """
    alone = comparison.of_suites or not comparison.pairs
    if not count or (comparison.collection and alone):
        return None
    if alone:
        what = "results of suites" if comparison.of_suites else "one result"
        raise InputError(
            f"--queries with {what}",
            allowed="two results or more, of one collection",
            fix="name another result, or the folder of a collection inside the suite",
        )
    names = [entry.name for entry in comparison.results]
    collection = next(filter(None, map(find_collection, comparison.sources)), None)
    rankings: dict[str, Ranking] = {}
    row_of: dict[str, int] = {}
    if collection is not None:
        row_of = {query: row for row, query in enumerate(collection.queries.ids.to_pylist())}
        rankings = {
            name: scored_ranking(source, collection)
            for name, source in zip(names, comparison.sources, strict=True)
            if not source.folder.is_file()
        }
    level = float(parse_measure(comparison.measure).settings.get("rel", 1))
    pairs = []
    for pair in comparison.pairs:
        values = comparison.values[:, [names.index(pair.a), names.index(pair.b)]]
        differences = values[:, 0] - values[:, 1]
        both = [rankings.get(name) for name in (pair.a, pair.b)]
        changes = []
        for row in _largest(differences, count):
            query, text, relevant = comparison.query_ids[row], "", []
            if collection is not None:
                text = collection.queries.texts[row_of[query]].as_py()
                relevant = _relevant(collection, both, row_of[query], level)
            a, b = values[row].tolist()
            changes.append(QueryChange(query, text, a, b, float(differences[row]), relevant))
        pairs.append(PairChanges(pair.a, pair.b, changes))
    return Changes(comparison.measure, pairs, collection is not None)


def _largest(differences: Float64, count: int) -> list[int]:
    """The rows of the largest losses and gains, half of each where there are as many, losses first."""
    order = np.argsort(differences, kind="stable")
    losses, gains = order[differences[order] < 0], order[differences[order] > 0]
    n_losses = min(len(losses), max(count // 2, count - len(gains)))
    n_gains = min(len(gains), count - n_losses)
    return [*losses[:n_losses].tolist(), *gains[len(gains) - n_gains :].tolist()]


def _relevant(
    collection: Collection, rankings: Sequence[Ranking | None], query: int, level: float
) -> list[RelevantPassage]:
    """The relevant passages of a query, a row of the collection, the highest grades first."""
    qrels, ids = collection.qrels, collection.judged_ids
    judged = np.flatnonzero((qrels.queries == query) & (qrels.grades >= level))
    tops = [ranking.passages[query].tolist() if ranking else [] for ranking in rankings]
    ranks = [{passage: rank for rank, passage in enumerate(top, 1)} for top in tops]
    relevant = []
    for entry in judged[np.argsort(-qrels.grades[judged], kind="stable")].tolist():
        passage = int(qrels.passages[entry])
        in_corpus = passage < len(collection.passages)
        text = collection.passages.texts[passage].as_py() if in_corpus else ""
        a, b = (rank_of.get(passage) for rank_of in ranks)
        grade = qrels.grades[entry].item()
        relevant.append(RelevantPassage(ids[passage].as_py(), grade, a, b, cut(text, PASSAGE)))
    return relevant
