"""Comparison of suites: macro means, paired tests of them, ranks, and every collection for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.core.table import Displayed, Table
from pipeline.metrics.equivalence import rank_intervals
from pipeline.metrics.macro import macro, macro_intervals
from pipeline.metrics.paired import SAME
from pipeline.metrics.statistics import compact_letters, ends
from pipeline.results import comparable
from pipeline.results.comparison import check_margin, column_of, cost
from pipeline.results.correction import Correction
from pipeline.results.main_measures import MAIN, canonical_measure, main_measures_note, measure_in
from pipeline.results.pairs import tested_pairs
from pipeline.results.suite_folder import SavedSuite
from pipeline.results.suite_leaderboard import SuiteEntry, suite_tables
from pipeline.results.suite_pairs import SuitePair, compare_suite_pairs
from pipeline.results.tables import figures_table


@dataclass(frozen=True, repr=False)
class SuiteComparison(Displayed):
    """Results of one suite side by side, by the macro mean of one measure.

    Attributes:
        measure: The measure.
        collections: Names of the collections.
        groups: The group of each collection that is in one.
        results: In the order given.
        pairs: Every two of them, the earlier one as `a`; with a baseline, each of the others as `a` and the
            baseline as `b`.
        baseline: The name of the result that the others are tested against; None where all pairs are tested.
        correction: The correction that decides which differences are shown.
        notes: What to know before trusting it, a sentence each.
        measures: Those that all results have on every collection.
        strata: For each collection float64 [queries, results].
        sources: The suites as read, in the order given; neither is part of the JSON form.
    """

    measure: str
    collections: list[str]
    groups: dict[str, str]
    results: list[SuiteEntry]
    pairs: list[SuitePair]
    notes: list[str]
    measures: list[str]
    strata: list[Float64]
    sources: list[SavedSuite]
    baseline: str | None = None
    correction: Correction = Correction.both

    def tables(self) -> list[Table]:
        """Systems and collections, the pairs of systems, and those on each collection."""
        return suite_tables(self.measure, self.results, self.pairs, self.groups, self.correction, self.notes)

    def figures(self) -> Table:
        """Every figure in full precision, for CSV: a row per result and per pair, and for each collection.

        The column `against` holds the second result of a pair, `collection` is empty in rows of macro means,
        and `value` is a mean or a difference.
        """
        rows: list[dict[str, Any]] = []
        for entry in self.results:
            rows.append({key: value for key, value in asdict(entry).items() if key != "by_collection"})
            rows += [
                {"name": entry.name, "collection": name, "mean": mean}
                for name, mean in entry.by_collection.items()
            ]
        for pair in self.pairs:
            inner = asdict(pair)
            rows += [inner, *({"a": pair.a, "b": pair.b, **each} for each in inner.pop("collections"))]
        return figures_table(self.measure, ["name", "against", "collection"], rows)

    def json(self) -> dict[str, Any]:
        """The document that `compare --json` prints."""
        return {
            "measure": self.measure,
            "collections": self.collections,
            "groups": self.groups,
            "results": [asdict(entry) for entry in self.results],
            "pairs": [asdict(pair) for pair in self.pairs],
            "notes": self.notes,
            "measures": self.measures,
            "baseline": self.baseline,
            "correction": self.correction.value,
        }


def compare_suites(
    suites: Sequence[SavedSuite],
    measure: str | None = None,
    baseline: int | None = None,
    correction: Correction = Correction.both,
    margin: float | None = None,
) -> SuiteComparison:
    """Compare suites that have been read; like `pipeline.results.comparison.compare`.

    Raises:
        InputError: A collection failed in one of them, they have other collections, or a collection of them
            was scored on other queries or by other judgments; or the measure is not in all.
    """
    check_margin(margin)
    first = suites[0]
    names = comparable.distinct_names(
        [suite.record.name for suite in suites], [suite.folder for suite in suites]
    )
    check_suites(suites, names)
    measures = shared_measures(suites)
    chosen = choose_measure(measures, measure, names)
    collections, weights = list(first.record.collections), first.weights
    strata = strata_of(suites, chosen)
    pairs = tested_pairs(len(suites), baseline)
    compared = compare_suite_pairs(names, collections, strata, weights, pairs, correction, margin)
    shown = [pair for pair, made in zip(pairs, compared, strict=True) if made.shown]
    return SuiteComparison(
        chosen,
        collections,
        dict(first.record.groups),
        _entries(suites, names, strata, shown if baseline is None else None, correction),
        compared,
        _notes(suites, names, chosen),
        measures,
        strata,
        list(suites),
        None if baseline is None else names[baseline],
        correction,
    )


def shared_measures(suites: Sequence[SavedSuite]) -> list[str]:
    """The measures that all suites have; their main measures only if those are the same in all."""
    first = suites[0]
    same = all(suite.record.main_measures == first.record.main_measures for suite in suites)
    kept = [name for name in first.measures if all(name in suite.measures for suite in suites)]
    return [name for name in kept if name != MAIN or same]


def strata_of(suites: Sequence[SavedSuite], measure: str) -> list[Float64]:
    """For each collection float64 [queries, suites]: a measure, query by query in the first one's order."""
    strata = []
    for collection, result in suites[0].results.items():
        name = measure_in(collection, measure, suites[0].record.main_measures)
        columns = [column_of(suite.results[collection], name, result.query_ids) for suite in suites]
        strata.append(np.stack(columns, axis=1))
    return strata


def check_suites(suites: Sequence[SavedSuite], names: Sequence[str]) -> None:
    """Refuse suites whose macro means cannot be compared."""
    for suite, name in zip(suites, names, strict=True):
        if suite.record.failed:
            raise InputError(
                f"{name} has no macro mean: {', '.join(suite.record.failed)} failed",
                allowed="suites of which every collection is finished",
                fix="run its config again, which does only what is missing; or compare single collections",
            )
    first = suites[0].record
    for suite, name in zip(suites[1:], names[1:], strict=True):
        apart = sorted(set(first.collections) ^ set(suite.record.collections))
        if apart or first.groups != suite.record.groups:
            what = f"'{apart[0]}' is only in one" if apart else "their groups differ"
            raise InputError(
                f"{names[0]} and {name} are of different collections: {what}",
                allowed="results of one suite",
                fix="run both with the same data",
            )
    for collection in first.collections:
        results = [suite.results[collection] for suite in suites]
        comparable.check(results, [f"{name}/{collection}" for name in names])


def choose_measure(measures: Sequence[str], wanted: str | None, names: Sequence[str]) -> str:
    """The measure to compare by: the one that is wanted, or the first that all have."""
    chosen = canonical_measure(wanted) if wanted else next(iter(measures), None)
    if chosen is None or chosen not in measures:
        raise InputError(
            f"{chosen or 'no measure'} is not on every collection of {', '.join(names)}",
            allowed=", ".join(measures) or "measures that all have",
            fix="add it to evaluate.measures and run again; nothing else is computed again",
        )
    return chosen


def _entries(
    suites: Sequence[SavedSuite],
    names: Sequence[str],
    strata: list[Float64],
    shown: list[tuple[int, int]] | None,
    correction: Correction,
) -> list[SuiteEntry]:
    """The results; `shown` are the pairs that were shown to differ, None where not all were tested."""
    collections, weights = suites[0].record.collections, suites[0].weights
    means = macro(strata, weights).means.tolist()
    intervals = [ends(low, high) for low, high in zip(*macro_intervals(strata, weights), strict=True)]
    by_collection = np.stack([values.mean(axis=0) for values in strata])
    best = (by_collection >= by_collection.max(axis=1, keepdims=True) - SAME).sum(axis=0)
    letters = [None] * len(suites) if shown is None else compact_letters(means, shown)
    ranks: list[tuple[int, int]] | list[tuple[None, None]] = [(None, None)] * len(suites)
    if shown is not None and correction is not Correction.bh:
        ranks = rank_intervals(len(suites), [(a, b) if means[a] > means[b] else (b, a) for a, b in shown])
    entries = []
    for i, (suite, rank) in enumerate(
        zip(suites, [1 + sum(other > mean for other in means) for mean in means], strict=True)
    ):
        low, high = intervals[i] or (None, None)
        seconds = [cost(result.record)[3] for result in suite.results.values()]
        entries.append(
            SuiteEntry(
                name=names[i],
                mean=means[i],
                ci_low=low,
                ci_high=high,
                queries=sum(map(len, strata)),
                letters=letters[i],
                rank=rank,
                rank_low=ranks[i][0],
                rank_high=ranks[i][1],
                best=int(best[i]),
                by_collection=dict(zip(collections, by_collection[:, i].tolist(), strict=True)),
                seconds=sum(each or 0 for each in seconds) or None,
            )
        )
    return entries


def _notes(suites: Sequence[SavedSuite], names: Sequence[str], measure: str) -> list[str]:
    """Which main measures there are, and what to know of each collection, with its name.

    A note that is the same of all collections is said once.
    """
    found: dict[str, list[str]] = {}
    for collection in suites[0].record.collections:
        for note in comparable.notes([suite.results[collection] for suite in suites], names):
            found.setdefault(note, []).append(collection)
    every = len(suites[0].record.collections)
    main = [main_measures_note(suites[0].record.main_measures)] if measure == MAIN else []
    of_some = (
        note if len(where) == every else f"{', '.join(where)}: {note}" for note, where in found.items()
    )
    speeds = comparable.speed_notes([list(suite.results.values()) for suite in suites], names)
    return [*main, *of_some, *speeds]
