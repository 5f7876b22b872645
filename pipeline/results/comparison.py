"""Which of several results is better, and by more than chance? Computed from the result folders alone.

comparison = compare(["results/fp32", "results/bf16"], "ndcg@10")
comparison.pairs[0].p_holm
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.results import comparable
from pipeline.core.display import Displayed, View, counted, interval, p, rounded, signed, signed_interval
from pipeline.core.errors import InputError
from pipeline.metrics.names import parse_measure
from pipeline.metrics.statistics import bootstrap_interval, holm, compact_letters, randomization_test, t_test
from pipeline.core.records import Float64
from pipeline.results.folder import SavedResult, read_result

LEVEL = 0.05
"""A difference counts as shown where Holm's p and the randomization test's are below this."""
SAME = 1e-12
"""Two values of one query that differ by no more are a tie: rounding wins nothing. Of values above 1, such as
those of DCG, it is the share of the query's highest."""


@dataclass(frozen=True)
class Entry:
    """One result.

    Attributes:
        name: Its benchmark's; with a part of its path where two have the same.
        mean: Of the measure, as in `metrics.json`.
        ci_low: The low end of the mean's 95% interval.
        ci_high: The high end.
        queries: How many were judged.
        letters: Two results that share a letter were not shown to differ; "a" goes with the highest mean.
        passages_per_second: Encoded and then indexed, loading the model not counted; None where the run that
            finished the encoding found all of it done by interrupted ones.
        queries_per_second: Encoded and then searched, likewise.
        index_bytes: Size of the index on disk.
        seconds: Of all stages, in the runs that finished them: what it costs with an empty cache, unless a
            run was interrupted and resumed.
    """

    name: str
    mean: float
    ci_low: float
    ci_high: float
    queries: int
    letters: str
    passages_per_second: float | None
    queries_per_second: float | None
    index_bytes: int | None
    seconds: float | None


@dataclass(frozen=True)
class Pair:
    """Two results, query by query.

    Attributes:
        a: The first's name.
        b: The second's.
        difference: Mean of a less mean of b.
        ci_low: The low end of the difference's 95% interval.
        ci_high: The high end.
        p_ttest: Of the two-sided paired t-test.
        p_randomization: Of the two-sided paired randomization test.
        p_holm: `p_ttest` by Holm's correction over all pairs.
        wins: Queries where a has the higher value.
        ties: Queries where both have the same.
        losses: Queries where b has the higher value.
    """

    a: str
    b: str
    difference: float
    ci_low: float
    ci_high: float
    p_ttest: float
    p_randomization: float
    p_holm: float
    wins: int
    ties: int
    losses: int

    @property
    def shown(self) -> bool:
        """Whether the difference is shown: at 5% over all pairs by the t-test, and by randomization as well.

        The t-test alone takes two queries that differ by the same for proof.
        """
        return self.p_holm < LEVEL and self.p_randomization < LEVEL


@dataclass(frozen=True, repr=False)
class Comparison(Displayed):
    """Results side by side, by one measure.

    Attributes:
        measure: The measure.
        results: In the order given.
        pairs: Every two of them, the earlier one as `a`.
        notes: What to know before believing it, a sentence each: other passages, other hardware.
        measures: Those that all results have, in the first one's order.
        query_ids: The queries, in the first result's order.
        values: float64 [queries, results]: the measure, query by query.
        sources: The results as read, in the order given; not part of the JSON form.
    """

    measure: str
    results: list[Entry]
    pairs: list[Pair]
    notes: list[str]
    measures: list[str]
    query_ids: list[str]
    values: Float64
    sources: list[SavedResult]

    def views(self) -> list[View]:
        """The results, a row each, and every two of them."""
        results = [
            (entry.name, rounded(entry.mean), interval(entry.ci_low, entry.ci_high), entry.letters)
            for entry in self.results
        ]
        title = f"{self.measure} of {counted(len(self.query_ids), 'query', 'queries')}"
        shown = [View(title, ("result", "mean", "95% interval", "group"), results, self.notes)]
        pairs = [
            (
                f"{pair.a} less {pair.b}",
                signed(pair.difference),
                signed_interval(pair.ci_low, pair.ci_high),
                p(pair.p_holm),
                f"{pair.wins}/{pair.ties}/{pair.losses}",
            )
            for pair in self.pairs
        ]
        header = ("pair", "difference", "95% interval", "p (Holm)", "wins/ties/losses")
        return [*shown, View("differences, query by query", header, pairs)] if pairs else shown

    def json(self) -> dict[str, Any]:
        """The document that `compare --json` prints."""
        return {
            "measure": self.measure,
            "results": [asdict(entry) for entry in self.results],
            "pairs": [asdict(pair) for pair in self.pairs],
            "notes": self.notes,
            "measures": self.measures,
        }


def compare(folders: Sequence[Path | str], measure: str | None = None) -> Comparison:
    """Compare finished results.

    Args:
        folders: Result folders, one or more.
        measure: A measure that all of them have; None takes the first one's first such.

    Raises:
        InputError: A folder holds no whole result, the results were scored on different queries or by
            different judgments, or the measure is not in all of them.
    """
    return compare_results([read_result(folder) for folder in folders], measure)


def compare_results(results: Sequence[SavedResult], measure: str | None = None) -> Comparison:
    """Compare results that are read already; as `compare` otherwise."""
    if not results:
        raise InputError("no result to compare", allowed="result folders", fix="name at least one")
    first, names = results[0], comparable.names_of(results)
    comparable.check(results, names)
    measures = [name for name in first.measures if all(name in result.measures for result in results)]
    chosen = _choose(results, names, measures, measure)
    values = np.stack([_column(result, chosen, first.query_ids) for result in results], axis=1)
    pairs = list(combinations(range(len(results)), 2))
    differences = np.empty((len(values), len(pairs)))
    for column, (a, b) in enumerate(pairs):
        differences[:, column] = values[:, a] - values[:, b]
    highest = np.abs(values).max(axis=1, keepdims=True)
    differences[np.abs(differences) <= SAME * np.maximum(highest, 1)] = 0
    low, high = bootstrap_interval(np.hstack([values, differences]))
    compared = _pairs(names, pairs, differences, low[len(results) :], high[len(results) :])
    means = [float(result.metrics["metrics"][chosen]) for result in results]
    shown = [pair for pair, made in zip(pairs, compared, strict=True) if made.shown]
    groups = compact_letters(means, shown)
    entries = [
        Entry(name, mean, float(low[i]), float(high[i]), len(values), groups[i], *_cost(result))
        for i, (name, mean, result) in enumerate(zip(names, means, results, strict=True))
    ]
    notes = list(comparable.notes(results, names))
    return Comparison(
        chosen, entries, compared, notes, measures, first.query_ids, values, sources=list(results)
    )


def _pairs(
    names: list[str], pairs: list[tuple[int, int]], differences: Float64, low: Float64, high: Float64
) -> list[Pair]:
    """What each pair's differences, float64 [queries, pairs], say."""
    if not pairs:
        return []
    p_ttest, p_randomization = t_test(differences), randomization_test(differences)
    p_holm = holm(p_ttest)
    return [
        Pair(
            a=names[a],
            b=names[b],
            difference=float(differences[:, i].mean()),
            ci_low=float(low[i]),
            ci_high=float(high[i]),
            p_ttest=float(p_ttest[i]),
            p_randomization=float(p_randomization[i]),
            p_holm=float(p_holm[i]),
            wins=int((differences[:, i] > 0).sum()),
            ties=int((differences[:, i] == 0).sum()),
            losses=int((differences[:, i] < 0).sum()),
        )
        for i, (a, b) in enumerate(pairs)
    ]


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
        fix="add it to evaluate.measures and run again; nothing else is computed anew",
    )


def _column(result: SavedResult, measure: str, query_ids: list[str]) -> Float64:
    """float64 [queries], in the order of `query_ids`."""
    values: Float64 = result.values[:, result.measures.index(measure)]
    if result.query_ids == query_ids:
        return values
    rows = {query: row for row, query in enumerate(result.query_ids)}
    return values[[rows[query] for query in query_ids]]


def _cost(result: SavedResult) -> tuple[float | None, float | None, int | None, float | None]:
    """Passages and queries per second, bytes of the index, seconds; None where nobody measured it."""
    stages: dict[str, dict[str, Any]] = {row["stage"]: row for row in result.metrics["stages"]}
    seconds = [row["seconds"] for row in stages.values() if row.get("seconds") is not None]
    return (
        _rate(stages, "passages", "index"),
        _rate(stages, "queries", "search"),
        stages.get("index", {}).get("bytes"),
        sum(seconds) if seconds else None,
    )


def _rate(stages: dict[str, dict[str, Any]], first: str, then: str) -> float | None:
    """Items per second through two stages, one after the other; the second may not have been needed.

    A run that finished what others began, and found nothing left to do, timed nothing: its rate is unknown.
    """
    needed = stages.get(then, {}).get("seconds") is not None
    rates = [stages.get(name, {}).get("items_per_second") for name in ((first, then) if needed else (first,))]
    return 1 / sum(1 / rate for rate in rates if rate) if all(rates) else None
