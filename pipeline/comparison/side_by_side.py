"""Results side by side, computed from their folders alone: intervals, paired tests, ranks and cost.

comparison = compare(["results/fp32", "results/bf16"], "ndcg@10")
comparison.pairs[0].p_holm
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from math import inf
from os import PathLike

import numpy as np

from pipeline.comparison import tables
from pipeline.comparison.inputs import PairIndices, ResultLike, read_results, shared_values
from pipeline.comparison.notes import notes_of
from pipeline.comparison.pairs import Pair, compare_pairs, two_sided
from pipeline.comparison.tables import ColumnGroup, Entry, History
from pipeline.core.display import figure
from pipeline.core.errors import InputError
from pipeline.core.records import Facts, Float64, JsonObject
from pipeline.core.result_records import Cost
from pipeline.core.table import Column, FilledColumn, Rows, Table, Tabular, table_of
from pipeline.metrics.paired import LEVEL, SAME, holm, paired_differences, standings
from pipeline.metrics.statistics import (
    MIN_COLLECTIONS,
    ONE,
    Strata,
    estimate,
    over_collections,
    pool_draws,
)
from pipeline.results.folder import CollectionResult
from pipeline.results.records import Metrics, kinds_of
from pipeline.results.result import Result

OVER = ("over_collections_low", "over_collections_high", "rank_over_low", "rank_over_high")
OF_ONE = ("passages_per_second", "queries_per_second")
OF_SUITES = ("rank", "best", "by_collection", *OVER)
"""Attributes of `Entry` that only results of one collection have in the JSON form, and only suites."""


@dataclass(repr=False)
class Comparison(Tabular):
    """Results side by side, by one measure."""

    measure: str  # the measure
    results: Rows[Entry]  # in the order given. They and the pairs are tidy tables, too (`to_dataframe`).
    # Every two of them, the earlier one as `a`; with a baseline, each of the others as `a` and the baseline
    # as `b`.
    pairs: Rows[Pair]
    notes: list[str]  # what to know before trusting it, a sentence each: other passages, other hardware
    measures: list[str]  # those that all results have, on every collection
    strata: Strata  # for each collection float64 [queries, results], in the first result's order
    loaded: list[Result]  # the results as read, in the order given; not part of the JSON form
    # The name of the result that the others are tested against; None where all pairs are tested.
    baseline: str | None = None
    collection: str = ""  # what the results are of, where a folder of several collections is compared
    # The earlier results of the same names, where such a folder has any.
    history: list[History] = field(default_factory=list)
    # What studies know of each result; see `with_columns`.
    groups: list[ColumnGroup] = field(default_factory=list)
    # A difference of which the number of queries that detect it is shown; None for none.
    detect: float | None = None
    of_suites: bool = field(init=False)  # whether the results are of suites, and not of one collection
    # The results of the first collection, which is the only one unless they are of suites.
    sources: list[CollectionResult] = field(init=False)
    # The content of their `metrics.json`, by the names of the results.
    records: dict[str, Metrics] = field(init=False)
    query_ids: list[str] = field(init=False)  # the queries of the first collection
    # float64 [queries, results]: the measure on the first collection, query by query.
    values: Float64 = field(init=False)

    def __post_init__(self) -> None:
        self.of_suites = self.loaded[0].suite is not None
        self.sources = [result.collections[0] for result in self.loaded]
        names = [entry.name for entry in self.results]
        self.records = {name: each.record for name, each in zip(names, self.sources, strict=True)}
        self.query_ids, self.values = self.sources[0].query_ids, self.strata[0]

    @property
    def verdict(self) -> str:
        """One sentence: which result is better and by how much, and what so many queries cannot show."""
        queries, detect = self.results[0].queries, self.detect
        opening, parts, against = tables.standing(self.measure, self.results, self.pairs, self.baseline)
        said = ["; ".join([opening, *parts])]
        detected = [pair.detects for pair in against if not pair.shown and pair.detects is not None]
        if detected:
            ends = dict.fromkeys(figure(end, ".2g") for end in (min(detected), max(detected)))
            said.append(f"{queries:,} queries detect a difference of {' to '.join(ends)} (80% power)")
        needed = max((pair.queries_to_detect or 0 for pair in against), default=0)
        if detect is not None and needed:
            power = two_sided(len(self.pairs))
            said.append(f"a difference of {detect:g} takes about {needed:,} queries ({power})")
        elif detect is not None and not any(pair.detects for pair in against):
            said.append(
                f"how many queries a difference of {detect:g} takes is not known, as nearly all queries "
                "have the same difference"
            )
        return "; ".join(said)

    @property
    def headline(self) -> str:
        """The verdict alone, in at most 25 words."""
        opening, parts, _ = tables.standing(self.measure, self.results, self.pairs, self.baseline)
        return ", ".join([opening, *parts[: 2 if self.baseline else 1]])

    @property
    def columns(self) -> list[FilledColumn]:
        """The columns that studies add to the leaderboard."""
        return [column for group in self.groups for column in group.columns]

    def with_columns(self, groups: Iterable[ColumnGroup]) -> Comparison:
        """The same comparison with what studies know of each result."""
        added = list(groups)
        notes = [note for group in added for note in group.notes]
        return replace(self, groups=[*self.groups, *added], notes=[*self.notes, *notes])

    def board(self, short: bool = False) -> Table:
        """The leaderboard, the highest mean first."""
        groups = self.loaded[0].groups
        board = tables.leaderboard(self.measure, self.results, groups, self.columns, short)
        order = sorted(range(len(board.rows)), key=lambda row: -self.results[row].mean)
        title = f"{self.collection}: {board.title}" if self.collection else board.title
        return replace(board, title=title, rows=[board.rows[row] for row in order])

    def _past(self) -> list[Table]:
        """A name a row, where there is any: its means in the order of time."""
        runs = [each.runs for each in self.history]
        lines = [
            " → ".join(f"{figure(run.mean)}{' *' * run.shown} ({run.created[:10]})" for run in each)
            for each in runs
        ]
        columns: list[FilledColumn] = [
            (Column("result", least=8), [each.name for each in self.history]),
            (Column(f"{self.measure} by date", wrap="words"), lines),
        ]
        starred = any(run.shown for each in runs for run in each)
        notes = ["* = differs from the run before (5%)."] if starred else []
        return [table_of("history", columns, notes)] if self.history else []

    def short_tables(self) -> list[Table]:
        """At most two tables for a terminal: the leaderboard, and the pairs where the verdict has not all."""
        several = len(self.pairs) > 1
        shown = [self.board(short=True)]
        if several:
            best = max(self.results, key=lambda entry: entry.mean).name
            pairs = [pair for pair in self.pairs if best in (pair.a, pair.b)]
            few = self.baseline or len(self.pairs) <= tables.MOST_PAIRS
            board = shown[0]
            table = tables.pair_table(self.measure, self.pairs if few else pairs, self.detect, short=True)
            some = "" if few else f"Only pairs with {best} are shown. "
            legend = f"{some}{' '.join([*board.notes, *table.notes[:1]])}"
            marks = [note for note in table.notes[1:] if note not in board.notes]
            shown = [replace(board, notes=[]), replace(table, notes=[legend, *marks])]
        notes = [*shown[-1].notes, *(f"Note: {note}." for note in self.notes)]
        return [*shown[:-1], replace(shown[-1], notes=notes), *self._past()]

    def tables(self) -> list[Table]:
        """The leaderboard, the pairs of several results, and what kinds report of them."""
        shown = [self.board()]
        if self.pairs:
            shown.append(tables.pair_table(self.measure, self.pairs, self.detect))
        if self.pairs and self.of_suites:
            shown.append(tables.each_collection(self.measure, self.pairs))
        notes = [*shown[-1].notes, *(f"Note: {note}." for note in self.notes)]
        shown[-1] = replace(shown[-1], notes=notes)
        for kind in [] if self.of_suites else kinds_of(self.records.values()):
            if kind.in_comparisons:
                shown += kind.tables(self.records, self.measure)
        return [*shown, *self._past()]

    def figures(self, added: JsonObject | None = None) -> Table:
        """Every figure in full precision, for CSV: a row per result and per pair, and for each collection.

        The column `against` holds the second result of a pair; `collection` is empty in rows of macro means;
        `value` is a mean, or the difference of a pair. `added` are further columns of the last pair's row.
        """
        rows: list[JsonObject] = []
        for entry, document in zip(self.results, self._entries(), strict=True):
            document.pop("by_collection", None)
            for group in self.groups:
                known = document.pop(group.name)
                for name, value in known.items() if isinstance(known, dict) else ():
                    document[f"{group.name}_{name}"] = value
            means = entry.by_collection.items()
            rows += [document, *({"name": entry.name, "collection": name, "mean": m} for name, m in means)]
        for pair in map(asdict, self.pairs):
            collections = pair.pop("collections")
            rows += [pair, *({"a": pair["a"], "b": pair["b"], **each} for each in collections)]
        rows[-1] |= added or {}
        if self.collection:
            rows = [{"of": self.collection, **row} for row in rows]
        # a result's mean and a pair's difference share a column
        renamed = {"mean": "value", "difference": "value", "a": "name", "b": "against"}
        named = [{renamed.get(key, key): value for key, value in row.items()} for row in rows]
        first = ["name", "against", *(["collection"] if self.of_suites else [])]
        keys = dict.fromkeys([*first, *(key for row in named for key in row)])
        cells = [["" if row.get(key) is None else str(row[key]) for key in keys] for row in named]
        columns = [Column("measure"), *map(Column, keys)]
        return Table("", columns, [[self.measure, *row] for row in cells])

    def _entries(self) -> list[JsonObject]:
        left_out = OF_ONE if self.of_suites else OF_SUITES
        return [
            {key: value for key, value in asdict(entry).items() if key not in left_out}
            | {group.name: group.documents[number] for group in self.groups}
            for number, entry in enumerate(self.results)
        ]

    def json(self) -> JsonObject:
        """The document that `compare --json` prints."""
        first = self.loaded[0]
        suite = {"collections": [each.name for each in first.collections], "groups": first.groups}
        pairs = [
            {key: value for key, value in asdict(pair).items() if key != "collections" or value}
            for pair in self.pairs
        ]
        board = {
            "collection": self.collection,
            "history": {each.name: [run._asdict() for run in each.runs] for each in self.history},
        }
        return {
            **(board if self.collection else {}),
            "measure": self.measure,
            "verdict": self.verdict,
            **(suite if self.of_suites else {}),
            "results": self._entries(),
            "pairs": pairs,
            "notes": self.notes,
            "measures": self.measures,
            "baseline": self.baseline,
            "detect": self.detect,
        }


def compare(
    folders: Sequence[ResultLike],
    measure: str | None = None,
    baseline: PathLike[str] | str | None = None,
    qrels: PathLike[str] | str | None = None,
    detect: float | None = None,
) -> Comparison:
    """Compare finished results.

    Args:
        folders: Result folders, results of `run_benchmark`, or TREC run files of one collection; or folders
            of one suite, of which the macro means are compared, and each collection; one or more.
        measure: A measure that all of them have; None takes the first one's first such.
        baseline: The result that the others are tested against, and only against it: one of the folders, or
            another, which is put before them, or the name of one of the results. None tests every pair.
        qrels: The judgments that run files are scored by. Not of suites.
        detect: A difference of means, above 0: `queries_to_detect` of each pair says how many queries show
            it with 80% power.

    Raises:
        InputError: A folder has no complete result, the results were scored on different queries or by
            different judgments, the measure is not in all of them, or some are suites and some are not.
    """
    if detect is not None and not 0 < detect < inf:
        raise InputError(f"detect {detect}", allowed="a difference above 0, such as 0.01")
    loaded, position = read_results(folders, baseline, qrels, measure)
    (chosen, *_), values, shared = shared_values(loaded, [measure] if measure else [])
    first, names = loaded[0], [result.name for result in loaded]
    strata = [each[:, :, 0] for each in values]
    independent, weights = first.pool_draws(strata)
    highest = float(first.highest([chosen])[0])
    best_first = sorted(range(len(loaded)), key=lambda number: -loaded[number].metrics[chosen])
    indices = list(combinations(best_first, 2))
    if position is not None:
        indices = [(other, position) for other in range(len(loaded)) if other != position]
    collections = [collection.name for collection in first.collections] if first.suite else []
    by_collection = dict(zip(collections, strata, strict=False))
    drawn = {
        name: pool_draws([values], ONE, [part.draws])[0][0]
        for (name, values), part in zip(by_collection.items(), first.collections, strict=False)
    }
    pairs = compare_pairs(names, drawn, independent, weights, indices, highest, detect, strata[0])
    of_means = estimate(*first.pool_draws(strata, of_means=True), low=0, high=highest)
    means = [result.metrics[chosen] for result in loaded]
    ranked: list[Facts] = [{} for _ in loaded]  # further attributes of each entry
    if position is None:  # letters and ranks need a test of every two
        letters, ranks = standings(means, _better(indices, means, [pair.shown for pair in pairs]))
        for entry, letter, (low, high) in zip(ranked, letters, ranks, strict=True):
            entry |= {"letters": letter, "rank_low": low, "rank_high": high}
    units = first.unit_means(strata)
    if first.suite and len(units) >= MIN_COLLECTIONS:
        a, b = np.array(indices, dtype=np.int64).reshape(-1, 2).T
        apart, p = over_collections(paired_differences(units[:, a], units[:, b]), -highest, highest)
        pairs = [
            replace(pair, over_collections_low=low, over_collections_high=high)
            for pair, (low, high) in zip(pairs, apart, strict=True)
        ]
        ends, _ = over_collections(units, 0, highest)
        ranks_over: Sequence[tuple[int | None, int | None]] = [(None, None)] * len(loaded)
        if position is None:
            _, ranks_over = standings(means, _better(indices, means, holm(p) < LEVEL))
        for entry, over, places in zip(ranked, ends, ranks_over, strict=True):
            entry |= zip(OVER, (*over, *places), strict=True)
    by_mean = np.stack([values.mean(axis=0) for values in strata])  # [collections, results]
    best = (by_mean >= by_mean.max(axis=1, keepdims=True) - SAME).sum(axis=0)
    results = [
        Entry(
            name=result.name,
            mean=means[i],
            ci_low=of_means.ends[i][0],
            ci_high=of_means.ends[i][1],
            fragile=bool(of_means.fragile[i]),
            queries=sum(map(len, strata)),
            rank=1 + sum(other > means[i] for other in means),
            best=int(best[i]),
            by_collection=dict(zip(collections, by_mean[:, i].tolist(), strict=False)),
            **cost_of_all([collection.record for collection in result.collections])._asdict(),
            **ranked[i],
        )
        for i, result in enumerate(loaded)
    ]
    return Comparison(
        measure=chosen,
        results=Rows(results),
        pairs=Rows(pairs),
        notes=notes_of(loaded, chosen, indices),
        measures=shared,
        strata=strata,
        loaded=loaded,
        baseline=None if position is None else names[position],
        detect=detect,
    )


def _better(indices: PairIndices, means: Sequence[float], shown: Iterable[bool]) -> list[tuple[int, int]]:
    """The pairs that are shown to differ, the better one first."""
    pairs = zip(indices, shown, strict=True)
    return [(a, b) if means[a] > means[b] else (b, a) for (a, b), differs in pairs if differs]


def cost_of_all(records: Sequence[Metrics]) -> Cost:
    """The cost of a result; of a suite the index of all its collections and the seconds, but no speed."""
    costs = [record.cost for record in records]
    if len(costs) == 1:
        return costs[0]
    seconds = [cost.seconds for cost in costs if cost.seconds is not None]
    sizes = [cost.index_bytes for cost in costs if cost.index_bytes is not None]
    parts = [
        cost.bytes_per_passage * record.passages
        for cost, record in zip(costs, records, strict=True)
        if cost.bytes_per_passage is not None
    ]
    whole = len(parts) == len(costs)
    each = sum(parts) / sum(record.passages for record in records) if whole else None
    return Cost(None, None, sum(sizes) if whole else None, each, sum(seconds) if seconds else None)
