"""Entries of a comparison of suites, and the tables that show them and their pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.core.display import counted, decimal, interval, rounded, signed
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.results.correction import Correction
from pipeline.results.leaderboard import GROUPS, pair_table
from pipeline.results.suite_pairs import SuitePair
from pipeline.results.suite_tables import GROUPED, MACRO, NO_MACRO_INTERVAL


@dataclass(frozen=True)
class SuiteEntry:
    """One result of a suite.

    Attributes:
        name: Of the benchmark; with a part of its path where two have the same.
        mean: The macro mean of the measure, as in `suite.json`.
        ci_low, ci_high: Ends of its 95% interval; None where none is shown.
        queries: How many were judged, in all collections together.
        letters: Two results that share a letter were not shown to differ; None with a baseline.
        rank: Among the results, by macro mean.
        rank_low, rank_high: The best and the worst rank that the tests of all pairs leave; None with a
            baseline, and with the correction `bh`.
        best: On how many collections its mean is the highest.
        by_collection: The mean on each collection.
        seconds: Of all stages of all collections, each in the run that finished it.
    """

    name: str
    mean: float
    ci_low: float | None
    ci_high: float | None
    queries: int
    letters: str | None
    rank: int
    rank_low: int | None
    rank_high: int | None
    best: int
    by_collection: dict[str, float]
    seconds: float | None


RANKS = (
    "'rank' is by macro mean, and beside it the ranks that the tests of all pairs leave possible. 'best' "
    "counts the collections on which a result has the highest mean."
)
OVER = "of macro means"
COUNTS = (
    "Randomizations change values within collections. w/t/l counts the collections where a wins, ties and "
    "loses."
)
EACH = (
    "* marks a difference shown at 5% on that collection: by the larger p of t-test and randomization, by "
    "Holm's correction over the collections."
)


def suite_tables(
    measure: str,
    entries: Sequence[SuiteEntry],
    pairs: Sequence[SuitePair],
    groups: Mapping[str, str],
    correction: Correction,
    notes: Sequence[str],
) -> list[Table]:
    """Systems and collections; if there are several, their pairs, and these on each collection."""
    tables = [suite_leaderboard(measure, entries, groups)]
    if pairs:
        tables += [pair_table(measure, pairs, correction, OVER, COUNTS), each_collection(measure, pairs)]
    last = tables[-1]
    return [*tables[:-1], replace(last, notes=[*last.notes, *(f"Note: {note}." for note in notes)])]


def suite_leaderboard(measure: str, entries: Sequence[SuiteEntry], groups: Mapping[str, str]) -> Table:
    """A result a row: its macro mean, its rank, and its mean on every collection."""
    several = len(entries) > 1
    columns: list[FilledColumn] = [
        (Column("result", least=8), [entry.name for entry in entries]),
        (Column(MACRO, "right", "never"), _best([entry.mean for entry in entries])),
        (
            Column("95% interval", "right", "never"),
            [Cell(interval(entry.ci_low, entry.ci_high), entry.ci_low) for entry in entries],
        ),
        (Column("group", wrap="never"), [(entry.letters or "") if several else "" for entry in entries]),
        (Column("rank", "right", "never"), [_rank(entry) if several else "" for entry in entries]),
        (
            Column("best", "right", "never", hint="collections with the highest mean"),
            [Cell(str(entry.best), entry.best) if several else "" for entry in entries],
        ),
        (
            Column("seconds", "right", "never", hint="time of all stages of all collections"),
            [Cell(decimal(entry.seconds, 1), entry.seconds) for entry in entries],
        ),
    ]
    for name in entries[0].by_collection:
        cells = _best([entry.by_collection[name] for entry in entries])
        columns.append((Column(name, "right", "never", section="by collection"), cells))
    notes = [GROUPS] if several and entries[0].letters else []
    notes += [RANKS] if several else []
    if any(entry.ci_low is None for entry in entries):
        notes.append(NO_MACRO_INTERVAL)
    if groups:
        notes.append(GROUPED.format(", ".join(sorted(set(groups.values())))))
    size = counted(len(entries[0].by_collection), "collection")
    queries = counted(entries[0].queries, "query", "queries")
    return table_of(f"{measure} over {size}, {queries}", columns, notes)


def each_collection(measure: str, pairs: Sequence[SuitePair]) -> Table:
    """A pair a row, and a collection a column: its difference there, with a star where it is shown."""
    columns: list[FilledColumn] = [
        (Column("a - b", least=13), [f"{pair.a} - {pair.b}" for pair in pairs]),
    ]
    for number, first in enumerate(pairs[0].collections):
        found = [pair.collections[number] for pair in pairs]
        cells = [Cell(signed(each.difference) + " *" * each.shown, each.difference) for each in found]
        columns.append((Column(first.collection, "right", "never"), cells))
    return table_of(f"differences in {measure} on each collection", columns, [EACH])


def _best(values: Sequence[float]) -> list[Cell]:
    highest = rounded(max(values))
    return [Cell(rounded(value), value, strong=rounded(value) == highest) for value in values]


def _rank(entry: SuiteEntry) -> Cell:
    if entry.rank_low is None:
        return Cell(str(entry.rank), entry.rank)
    return Cell(f"{entry.rank} ({entry.rank_low} to {entry.rank_high})", entry.rank)
