"""Comparison of several results, computed from their folders alone: intervals, paired tests, groups and cost.

comparison = compare(["results/fp32", "results/bf16"], "ndcg@10")
comparison.pairs[0].p_holm
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.core.table import Displayed, Table
from pipeline.metrics.equivalence import rank_intervals
from pipeline.metrics.names import parse_measure
from pipeline.metrics.statistics import compact_letters, shown_intervals
from pipeline.results import comparable
from pipeline.results.chunk_table import chunk_table
from pipeline.results.correction import Correction
from pipeline.results.folder import SavedResult
from pipeline.results.leaderboard import Entry, leaderboard, pair_table
from pipeline.results.pairs import Pair, compare_pairs, many_queries_notes, query_differences, tested_pairs
from pipeline.results.records import Metrics
from pipeline.results.run_files import read_results
from pipeline.results.tables import figures_table

if TYPE_CHECKING:
    from pipeline.results.groups import GroupComparison


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """Results side by side, by one measure.

    Attributes:
        measure: The measure.
        results: In the order given.
        pairs: Every two of them, the earlier one as `a`; with a baseline, each of the others as `a` and the
            baseline as `b`.
        baseline: The name of the result that the others are tested against; None where all pairs are tested.
        correction: The correction that decides which differences are shown.
        margin: Within which pairs were tested for equivalence; None where they were not.
        notes: What to know before trusting it, a sentence each: other passages, other hardware.
        measures: Those that all results have, in the first one's order.
        query_ids: The queries, in the first result's order.
        values: float64 [queries, results]: the measure, query by query.
        sources: The results as read, in the order given; not part of the JSON form.
        groups: The same in groups of queries; None where that was not asked for.
    """

    measure: str
    results: list[Entry]
    pairs: list[Pair]
    notes: list[str]
    measures: list[str]
    query_ids: list[str]
    values: Float64
    sources: list[SavedResult]
    baseline: str | None = None
    correction: Correction = Correction.both
    margin: float | None = None
    groups: GroupComparison | None = None

    def tables(self) -> list[Table]:
        """The leaderboard, the pairs of several results with what to know of them, chunks, and groups."""
        tables = [leaderboard(self.measure, self.results)]
        if self.pairs:
            tables.append(pair_table(self.measure, self.pairs, self.correction))
        notes = [*tables[-1].notes, *(f"Note: {note}." for note in self.notes)]
        in_groups = self.groups.tables() if self.groups else []
        cut = self.chunk_table()
        return [*tables[:-1], replace(tables[-1], notes=notes), *([cut] if cut else []), *in_groups]

    def chunk_table(self) -> Table | None:
        """The results by how their passages were cut; None if none were."""
        names = [entry.name for entry in self.results]
        return chunk_table(self.measure, names, [source.record for source in self.sources])

    def figures(self) -> Table:
        """Every figure in full precision, for CSV: a row per result, and a row per pair.

        The column `against` holds the second result of a pair; `value` is the mean of a result, or the
        difference of a pair.
        """
        both: list[Entry | Pair] = [*self.results, *self.pairs]
        return figures_table(self.measure, ["name", "against"], map(asdict, both))

    def json(self) -> dict[str, Any]:
        """The document that `compare --json` prints."""
        return {
            "measure": self.measure,
            "results": [asdict(entry) for entry in self.results],
            "pairs": [asdict(pair) for pair in self.pairs],
            "notes": self.notes,
            "measures": self.measures,
            "baseline": self.baseline,
            "correction": self.correction.value,
            "margin": self.margin,
            **({"groups": self.groups.json()} if self.groups else {}),
        }

    def with_groups(self) -> Comparison:
        """The same comparison with `groups`.

        Raises:
            InputError: The cache holds the collection of none of the results.
        """
        from pipeline.results.groups import compare_groups  # heavy, and not needed without groups

        names = [entry.name for entry in self.results]
        pairs = [(names.index(pair.a), names.index(pair.b)) for pair in self.pairs]
        rel = int(parse_measure(self.measure).settings.get("rel", 1))
        differences = query_differences(self.values, pairs)
        groups = compare_groups(
            self.sources, names, pairs, self.measure, self.query_ids, self.values, differences, rel
        )
        return replace(self, groups=groups)


def compare(
    folders: Sequence[PathLike[str] | str],
    measure: str | None = None,
    baseline: PathLike[str] | str | None = None,
    correction: Correction = Correction.both,
    margin: float | None = None,
    qrels: PathLike[str] | str | None = None,
) -> Comparison:
    """Compare finished results.

    Args:
        folders: Result folders, results of `run_benchmark`, or TREC run files; one or more.
        measure: A measure that all of them have; None takes the first one's first such.
        baseline: The result that the others are tested against, and only against it: one of the folders, or
            another, which is put before them, or the name of one of the results. None tests every pair.
        correction: What decides which differences are shown.
        margin: Within which two results count as equally good; None tests none.
        qrels: The judgments that run files are scored by.

    Raises:
        InputError: A folder has no complete result, the results were scored on different queries or by
            different judgments, or the measure is not in all of them.
    """
    judgments = None if qrels is None else Path(qrels)
    results = read_results([Path(folder) for folder in folders], judgments, measure)
    if baseline is None:
        return compare_results(results, measure, None, correction, margin)
    among = position_among(results, baseline)
    if among is None:
        results = read_results([Path(baseline), *map(Path, folders)], judgments, measure)
        among = 0
    return compare_results(results, measure, among, correction, margin)


class Saved(Protocol):
    """A result that was read, of one collection or of a suite."""

    @property
    def folder(self) -> Path:
        """Where it was read."""
        ...

    @property
    def record(self) -> Any:
        """Has its name."""
        ...


def position_among(results: Sequence[Saved], baseline: PathLike[str] | str) -> int | None:
    """The position of the baseline among the results: by its folder, or else by the only one of that name."""
    folder = Path(baseline).resolve()
    folders = [result.folder.resolve() for result in results]
    if folder in folders:
        return folders.index(folder)
    named = [number for number, result in enumerate(results) if result.record.name == str(baseline)]
    return named[0] if len(named) == 1 and not folder.exists() else None


def check_margin(margin: float | None) -> None:
    """Refuse a margin that is out of range."""
    if margin is not None and not 0 < margin < inf:
        raise InputError(f"--margin {margin}", allowed="a number above 0, such as 0.01")


def compare_results(
    results: Sequence[SavedResult],
    measure: str | None = None,
    baseline: int | None = None,
    correction: Correction = Correction.both,
    margin: float | None = None,
) -> Comparison:
    """Compare results that have been read; otherwise like `compare`. `baseline` is a position among them."""
    check_margin(margin)
    if not results:
        raise InputError("no result to compare", allowed="result folders", fix="name at least one")
    first = results[0]
    names = comparable.names_of(results)
    comparable.check(results, names)
    measures = [name for name in first.measures if all(name in result.measures for result in results)]
    chosen = _choose(results, names, measures, measure)
    values = np.stack([column_of(result, chosen, first.query_ids) for result in results], axis=1)
    pairs = tested_pairs(len(results), baseline)
    compared = compare_pairs(names, values, pairs, correction, margin)
    means = [result.record.metrics[chosen] for result in results]
    shown = [pair for pair, made in zip(pairs, compared, strict=True) if made.shown]
    letters = compact_letters(means, shown) if baseline is None else [None] * len(results)
    ranks: list[tuple[int, int]] | list[tuple[None, None]] = [(None, None)] * len(results)
    if baseline is None and correction is not Correction.bh:  # all pairs, with a family-wise error
        differences = [made.difference for made in compared if made.shown]
        better = [pair if d > 0 else pair[::-1] for pair, d in zip(shown, differences, strict=True)]
        ranks = rank_intervals(len(results), better)
    entries = []
    for interval, name, mean, group, result, rank in zip(
        shown_intervals(values), names, means, letters, results, ranks, strict=True
    ):
        low, high = interval or (None, None)
        entries.append(Entry(name, mean, low, high, len(values), group, *cost(result.record), *rank))
    notes = [
        *comparable.notes(results, names),
        *comparable.speed_notes([[result] for result in results], names),
        *comparable.unjudged_notes(results, names, chosen, pairs),
    ]
    return Comparison(
        chosen,
        entries,
        compared,
        [*notes, *many_queries_notes(compared, len(values))],
        measures,
        first.query_ids,
        values,
        sources=list(results),
        baseline=None if baseline is None else names[baseline],
        correction=correction,
        margin=margin,
    )


def _choose(
    results: Sequence[SavedResult], names: list[str], measures: list[str], measure: str | None
) -> str:
    """The measure to compare by."""
    chosen = str(parse_measure(measure)) if measure else next(iter(measures), None)
    if chosen in measures and chosen is not None:
        return chosen
    lacking = [n for n, result in zip(names, results, strict=True) if chosen not in result.measures]
    raise InputError(
        f"{chosen} is not among the measures of {', '.join(lacking)}"
        if chosen
        else f"no measure is in all of {', '.join(names)}",
        allowed=", ".join(measures) or "measures that all have",
        fix="add it to evaluate.measures and run again; nothing else is computed again",
    )


def column_of(result: SavedResult, measure: str, query_ids: list[str]) -> Float64:
    """float64 [queries], in the order of `query_ids`."""
    values: Float64 = result.values[:, result.measures.index(measure)]
    if result.query_ids == query_ids:
        return values
    rows = {query: row for row, query in enumerate(result.query_ids)}
    return values[[rows[query] for query in query_ids]]


def cost(record: Metrics) -> tuple[float | None, float | None, int | None, float | None]:
    """Passages and queries per second, bytes of the index, seconds; None where they were not measured.

    Where there is no index, the bytes are those of what is searched, the stored passages.
    """
    from pipeline.retrievers.texts import Chunking

    seconds = [row.seconds for row in record.all_stages if row.seconds is not None]
    encoded = _rate(record, "passages", "index")
    if encoded and (cut := record.section(Chunking)):  # these stages count chunks
        encoded *= record.passages / cut.chunks
    return (
        encoded,
        _queries_per_second(record),
        record.stage("index").bytes or record.stage("passages").bytes,
        sum(seconds) if seconds else None,
    )


def _queries_per_second(record: Metrics) -> float | None:
    """Queries encoded, searched and reranked per second; None where one of these was not measured."""
    from pipeline.retrievers.reranked import Reranking

    rate, reranking = _rate(record, "queries", "search"), record.section(Reranking)
    if reranking is None or rate is None:
        return rate
    seconds = reranking.seconds_per_query
    return None if seconds is None else 1 / (1 / rate + seconds)


def _rate(record: Metrics, first: str, then: str) -> float | None:
    """Items per second through two stages, one after the other; the second may not have been needed.

    A run that finished what others began, and found nothing left to do, timed nothing: its rate is unknown.
    """
    rows = [record.stage(first), record.stage(then)]
    rates = [row.items_per_second for row in rows if row is rows[0] or row.seconds is not None]
    return 1 / sum(1 / rate for rate in rates if rate) if all(rates) else None
