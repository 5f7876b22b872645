"""Whether results are as good as a baseline: a verdict for a build server.

gate_result("results/new", "results/released", ["ndcg@10"]).verdict
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np

from pipeline.comparison.inputs import ALL_DATA, ResultLike, read_results, shared_values
from pipeline.comparison.notes import data_notes
from pipeline.comparison.pairs import known, rows_of
from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import ColumnGroup
from pipeline.core.display import FRAGILE, interval
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Float64, JsonObject
from pipeline.core.result_records import columns_of
from pipeline.core.table import Column, FilledColumn, Table, Tabular, right, table_of
from pipeline.metrics.paired import (
    LEVEL,
    detectable_difference,
    holm,
    most_lost_of,
    paired_differences,
    paired_tests,
    queries_needed,
)
from pipeline.metrics.statistics import Estimate, Interval, Strata
from pipeline.results.result import Result, refuse_edited
from pipeline.results.tables import collection_notes
from pipeline.studies.gate.betting import Bets
from pipeline.studies.gate.margin_tests import noninferiority, with_one_more

Verdict = Literal["pass", "fail", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "undecided": 4, "fail": 3}
"""By verdict, the best first."""
MARGIN, ALPHA = 0.01, 0.05


def worst(verdicts: Collection[Verdict]) -> Verdict:
    """Fail if anything fails; else undecided if anything is; else pass."""
    return max(verdicts, key=list(EXIT_CODES).index)


@dataclass(frozen=True)
class GatedMeasure:
    """The verdict on one measure."""

    measure: str
    difference: float  # mean of the result minus mean of the baseline; of suites, of macro means
    # ci_low, ci_high: Ends of the difference's 95% interval; by `guarantee` bounds, each at alpha.
    ci_low: float | None
    ci_high: float | None
    margin: float  # how far below the baseline the result may be
    # One-sided p against "the result is `margin` or more below", by Holm's correction over the measures.
    p_not_worse: float
    verdict: Verdict  # "pass" where that is below alpha, "fail" where the opposite is shown, else "undecided"
    queries: int  # how many were judged, in all collections
    # Of an undecided measure: how many queries exclude a loss of the margin in 80% of cases, if there is no
    # loss; None where no number does, and where it is decided.
    queries_needed: int | None
    # The smallest loss that `queries` exclude in 80% of cases, if there is no loss; None where no loss is.
    detectable: float | None
    p: float  # that of the verdict's own test: of a loss beyond the margin where it fails, else `p_not_worse`
    # Whether it passes, and one query more that loses everything would undo it; or it fails, and one more
    # that gains everything would.
    fragile: bool
    # Where the mean is lower than the baseline's: the larger p of the paired t-test and the paired
    # randomization test; None where it is not.
    p_lower: float | None
    interval_fragile: bool  # the mark of the interval, as in a comparison

    @property
    def mark(self) -> str:
        """The verdict, with "~" where it is fragile."""
        return f"{self.verdict}{'~' * self.fragile}"


@dataclass(frozen=True, repr=False)
class Gate(Tabular):
    """Verdicts on the measures of a result, and on the whole."""

    result: str
    baseline: str
    measures: list[GatedMeasure]
    alpha: float = ALPHA
    guarantee: bool = False  # whether betting bounds decide
    # Whether result and baseline are of the same settings and data, and have the same values.
    same: bool = False
    slices: tuple[str, ...] = ()  # what slices of a corpus do to the measures, a sentence each
    since: Gate | None = None  # the gate against a release of record, with a margin of its own

    @property
    def parts(self) -> list[GatedMeasure | Gate]:
        """What the verdict is made of: the measures, and the gate against a release of record."""
        return [*self.measures, *([self.since] if self.since else [])]

    @property
    def verdict(self) -> Verdict:
        """The worst of the parts' verdicts."""
        return worst([each.verdict for each in self.parts])

    @property
    def message(self) -> str:
        """What the verdict means; of an undecided one what the queries can show, and how many it takes."""
        if self.since:
            return f"{replace(self, since=None).message}. {self.since.message}"
        if self.same:
            return f"pass: {self.result} and {self.baseline} have the same settings, data and values"
        named, margin = self._named(self.verdict), self.measures[0].margin
        if self.verdict == "pass":
            loss = f"does not lose {margin:g} or more against" if margin else "is above"
            whatever = ", whatever the distribution of the differences" if self.guarantee else ""
            said = f"pass{'~' * self.fragile}: {self.result} {loss} {self.baseline} in {named}{whatever}"
            return f"{said}, unless one query more loses everything" if self.fragile else said
        if self.verdict == "fail":
            more = f" by more than {margin:g}" if margin else ""
            said = f"fail{'~' * self.fragile}: {self.result} is worse than {self.baseline}{more} in {named}"
            return f"{said}, unless one query more gains everything" if self.fragile else said
        undecided = [each for each in self.measures if each.verdict == "undecided"]
        lower = [each for each in undecided if each.p_lower is not None and each.p_lower < LEVEL]
        opening = f"undecided: {self.result} in {named}"
        if lower:
            p = max(each.p_lower or 0 for each in lower)
            return f"{opening}: lower than {self.baseline} (p = {p:.3f}), but maybe by less than {margin:g}"
        queries = undecided[0].queries
        said = f"{opening}: too few queries: {queries:,}"
        if losses := [each.detectable for each in undecided if each.detectable is not None]:
            said += f" can exclude a loss of {max(losses):.2g}"
        enough = max((each.queries_needed or 0 for each in undecided), default=0)
        return (
            f"{said}, and a loss of {margin:g} takes about {enough:,} queries" if enough > queries else said
        )

    @property
    def fragile(self) -> bool:
        """Whether one query more would undo its pass or its fail: any of its passes, or all of its fails."""
        marks = [each.fragile for each in self.parts if each.verdict == self.verdict]
        return all(marks) if self.verdict == "fail" else any(marks)

    def _named(self, verdict: Verdict) -> str:
        return ", ".join(each.measure for each in self.measures if each.verdict == verdict)

    def json(self) -> JsonObject:
        """The document that `gate --json` prints."""
        measures = [asdict(each) for each in self.measures]
        since = {"since": self.since.json()} if self.since else {}
        return {
            "measures": measures, "verdict": self.verdict, "result": self.result, "baseline": self.baseline,
            "guarantee": self.guarantee, "same": self.same, **since,
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """A measure a row, against each baseline."""
        return Gates([self]).tables()


@dataclass(frozen=True, repr=False)
class Gates(Tabular):
    """Gates of results against one baseline."""

    gates: list[Gate]

    @property
    def verdict(self) -> Verdict:
        """The worst of the gates' verdicts."""
        return worst([gate.verdict for gate in self.gates])

    def exit_code(self, allow_undecided: bool = False, no_fragile: bool = False) -> int:
        """The code of the worst verdict; with `no_fragile` a pass with "~" is undecided."""
        verdicts: list[Verdict] = [
            "undecided" if no_fragile and gate.fragile and gate.verdict == "pass" else gate.verdict
            for gate in self.gates
        ]
        code = EXIT_CODES[worst(verdicts)]
        return 0 if allow_undecided and code == EXIT_CODES["undecided"] else code

    def json(self) -> JsonObject:
        """The document that `gate --json` prints: that of the only gate, or a list of several."""
        documents = [gate.json() for gate in self.gates]
        return documents[0] if len(documents) == 1 else {"results": documents, "verdict": self.verdict}

    def tables(self) -> list[Table]:
        """One table, a measure a row, of each result and against each baseline."""
        first, several = self.gates[0], len(self.gates) > 1
        gates = [one for gate in self.gates for one in (gate, gate.since) if one]
        rows = [(gate, each) for gate in gates for each in gate.measures]
        measures = [each for _, each in rows]
        bounds = f"{1 - 2 * first.alpha:.0%} bounds" if first.guarantee else "95% interval"
        ends = [interval(each.ci_low, each.ci_high, each.interval_fragile, "+.4f") for each in measures]
        columns: list[FilledColumn] = [
            (Column("result"), [gate.result if several else "" for gate, _ in rows]),
            (Column("against"), [gate.baseline if first.since else "" for gate, _ in rows]),
            *columns_of(measures, [("measure", "measure", ""), ("verdict", "mark", "")]),
            *columns_of(measures, [("difference", "difference", "+.4f")]),
            (right(bounds), ends),
            *columns_of(measures, [("margin", "margin", "g"), ("p", "p", "p"), ("queries", "queries", ",")]),
            *columns_of(measures, [("detects", "detectable", ".4f"), ("needed", "queries_needed", ",")]),
        ]
        said = [f"{gate.message}." for gate in self.gates]
        title = f"{len(said)} results against {first.baseline}: {self.verdict}" if several else said.pop()
        notes = [FRAGILE] if any(each.interval_fragile for each in measures) else []
        notes = [*said, *notes, *first.slices]
        return [table_of(title, columns, notes)]


def gate_result(result: ResultLike, baseline: ResultLike, *settings: Any, **named: Any) -> Gate:
    """The gate of a single result; the settings are those of `gate_results`."""
    return gate_results([result], baseline, *settings, **named).gates[0]


def margin_column(comparison: Comparison, values: Mapping[str, float | None]) -> ColumnGroup | None:
    """The verdict of each compared result, with a margin, against the first or the baseline, by Holm."""
    margin, names = values.get("margin"), [entry.name for entry in comparison.results]
    if margin is None or len(names) < 2:
        return None
    first = names.index(comparison.baseline) if comparison.baseline else 0
    others = [*comparison.loaded]
    baseline = others.pop(first)
    gates = gate_results(others, baseline, [comparison.measure], margin, corrected=True).gates
    cells, documents = [gate.measures[0].mark for gate in gates], [asdict(gate.measures[0]) for gate in gates]
    cells.insert(first, "")
    title = Column(f"within {margin:g} of {names[first]}", wrap="words")
    return ColumnGroup("gate", [*documents[:first], None, *documents[first:]], [(title, cells)], [])


def gate_results(
    results: Sequence[ResultLike],
    baseline: ResultLike,
    measures: Sequence[str] = (),
    margin: float = MARGIN,
    alpha: float = ALPHA,
    guarantee: bool = False,
    since: ResultLike | None = None,
    other_data: bool = False,
    corrected: bool = False,
) -> Gates:
    """Whether results are no more than a margin below a baseline, measure by measure.

    Args:
        results: One or more, of one collection or of a suite, whose macro means are compared.
        baseline: What they are compared with.
        measures: Names of measures that all have; none takes the baseline's first that all have.
        margin: How far below the baseline a mean may be.
        alpha: Significance level: the probability, at most, of passing a result that is worse by the margin,
            over all its measures together.
        guarantee: Decide by betting bounds, which hold for every distribution of differences, also of rare
            losses that no query shows, and at any time of stopping. It takes more queries.
        since: A release of record, against which results must pass as well: small losses against one
            baseline after another add up.
        other_data: Compare results of other passages, query texts, judgments or `data.ignored` all the same.
        corrected: Whether `alpha` is over all results together, and not over each.

    Raises:
        InputError: They searched other passages, have other queries or judgments, a measure is not in all, or
            a setting is out of range; or there is no bound of a measure that has no highest value.
    """
    for value, name, low, high, allowed in (
        (margin, "--margin", 0, inf, "0 or more"),
        (alpha, "--alpha", 1e-6, 0.5, "a share from 0.000001 to 0.5"),
    ):
        if not low <= value <= high or not isfinite(value):
            raise InputError(f"{name} {value}", allowed=allowed)
    named = [baseline, *results, *([] if since is None else [since])]
    loaded, _ = read_results(named, same=() if other_data else ALL_DATA)
    for one in loaded:
        refuse_edited(one)
    chosen, values, _ = shared_values(loaded, measures)
    slices = collection_notes([each.record for one in loaded for each in one.collections])
    slices += [f"{note}." for note in data_notes(loaded)]
    first, new, number = loaded[0], loaded[1 : 1 + len(results)], 1 + len(results)
    settings = alpha, guarantee, corrected
    gates = _against(first, new, chosen, [each[:, :number] for each in values], margin, *settings)
    if since is not None:
        order = [number, *range(1, number)]
        of_record = _against(loaded[-1], new, chosen, [each[:, order] for each in values], margin, *settings)
        gates = [replace(gate, since=record) for gate, record in zip(gates, of_record, strict=True)]
    return Gates([replace(gate, slices=tuple(slices)) for gate in gates])


def _against(
    first: Result,
    candidates: Sequence[Result],
    chosen: Sequence[str],
    values: Sequence[Float64],
    margin: float,
    alpha: float,
    guarantee: bool,
    corrected: bool,
) -> list[Gate]:
    """The gates against one baseline; of each collection float64 [queries, baseline and results, measures].

    A column of what is tested is a measure of a result, one result after the other.
    """
    differences = [paired_differences(each[:, 1:], each[:, :1]).reshape(len(each), -1) for each in values]
    seen = np.max([np.maximum(each[:, 1:], each[:, :1]).max(axis=0) for each in values], axis=0)
    highest = first.highest(chosen)
    most_lost = most_lost_of(highest, seen).ravel()
    families = 1 if corrected else len(candidates)
    sample = Sample(*first.pool_draws(differences), most_lost, margin, alpha, families)
    estimated, p_randomization = paired_tests(sample.strata, sample.weights, most_lost)
    if guarantee:
        if unbounded := [name for name, most in zip(chosen, highest, strict=True) if not isfinite(most)]:
            raise InputError(
                f"--guarantee with {', '.join(unbounded)}, which have no highest value",
                allowed="measures from 0 to 1, such as ndcg@10",
                fix="name another --measure, or leave out --guarantee",
            )
        (ones, _) = first.pool_draws([np.ones((len(each), 1)) for each in differences])
        tested = _by_bets(sample, estimated, np.array([each.max() for each in ones]))
    else:
        tested = _by_tests(sample, estimated)
    shown, queries = tested.estimated, sum(map(len, differences))
    # of clusters, as many queries as they have
    clustered = any(each.clusters for each in first.collections)
    needed = tested.needed * (queries / sample.queries if clustered else 1)
    same = [first.same_as(each) for each in candidates]
    equal = np.repeat(same, len(chosen))
    p_not_worse = np.where(equal, 0, tested.p_not_worse)
    passes = p_not_worse < alpha
    fails = ~passes & (tested.p_worse < alpha)
    undone = np.where(passes, ~equal & tested.pass_undone, fails & tested.fail_undone)
    lower = np.where(shown.means < 0, np.maximum(estimated.p, p_randomization), inf)
    columns = {
        "measure": [*chosen] * len(candidates),
        "difference": shown.means.tolist(),
        "ci_low": [low for low, _ in shown.ends],
        "ci_high": [high for _, high in shown.ends],
        "margin": [margin] * len(equal),
        "p_not_worse": p_not_worse.tolist(),
        "verdict": np.select([passes, fails], ["pass", "fail"], "undecided").tolist(),
        "queries": [queries] * len(equal),
        "queries_needed": known(np.where(passes | fails, inf, np.ceil(needed)), int),
        "detectable": known(tested.detectable),
        "p": np.where(fails, tested.p_worse, p_not_worse).tolist(),
        "fragile": undone.tolist(),
        "p_lower": known(lower),
        "interval_fragile": shown.fragile.tolist(),
    }
    measures = [GatedMeasure(**row) for row in rows_of(columns)]
    parts = [measures[start : start + len(chosen)] for start in range(0, len(measures), len(chosen))]
    return [
        Gate(new.name, first.name, part, alpha, guarantee, is_same)
        for new, part, is_same in zip(candidates, parts, same, strict=True)
    ]


class Sample(NamedTuple):
    """What is tested: strata of differences float64 [queries, columns], and how much a query can lose.

    `families` says into how many parts of as many columns p is corrected by itself.
    """

    strata: Strata
    weights: Float64
    most_lost: Float64
    margin: float
    alpha: float
    families: int

    def corrected(self, p_values: Float64) -> Float64:
        """Correct p-values by Holm, each family by itself."""
        return np.concatenate([holm(part) for part in np.split(p_values, self.families)])

    @property
    def level(self) -> float:
        """That of the first step of Holm's correction."""
        return self.alpha * self.families / len(self.most_lost)

    @property
    def queries(self) -> int:
        """The independent queries."""
        return sum(map(len, self.strata))


class MeasureTests(NamedTuple):
    """What tests say of each column; `needed` queries exclude the margin where that is undecided.

    `pass_undone` and `fail_undone` say whether one query more would undo a verdict.
    """

    estimated: Estimate  # whose means and intervals are shown
    p_not_worse: Float64
    p_worse: Float64
    pass_undone: BoolArray
    fail_undone: BoolArray
    detectable: Float64
    needed: Float64


def _by_tests(sample: Sample, estimated: Estimate) -> MeasureTests:
    """By t-tests and the bootstrap."""
    strata, weights, most_lost, margin, alpha, _ = sample
    margins = np.full(len(most_lost), margin)
    not_worse, is_worse = map(sample.corrected, noninferiority(strata, margins, weights))
    more_lost, more_gained = map(sample.corrected, with_one_more(strata, margins, weights, most_lost))
    spreads = estimated.wide_errors * sqrt(sample.queries)
    effects = np.divide(margin, spreads, out=np.zeros(len(spreads)), where=spreads > 0)
    return MeasureTests(
        estimated,
        not_worse,
        is_worse,
        more_lost >= alpha,
        more_gained >= alpha,
        detectable_difference(estimated.wide_errors, estimated.wide_freedom, sample.level),
        queries_needed(effects, sample.level),
    )


def _by_bets(sample: Sample, estimated: Estimate, scales: Float64) -> MeasureTests:
    """By betting bounds; a query can lose `scales`, float64 [strata], times what one collection's can."""
    strata, weights, most_lost, margin, alpha, _ = sample
    columns = range(len(most_lost))
    better, worse = (
        [
            Bets(
                [sign * values[:, i] for values in strata],
                weights,
                -most_lost[i] * scales,
                most_lost[i] * scales,
            )
            for i in columns
        ]
        for sign in (1, -1)
    )
    not_worse = sample.corrected(np.array([bets.p_value(-margin) for bets in better]))
    is_worse = sample.corrected(np.array([bets.p_value(margin) for bets in worse]))
    means = estimated.means
    ends: list[Interval] = [(better[i].lower_bound(alpha), -worse[i].lower_bound(alpha)) for i in columns]
    detectable = means - [bets.lower_bound(sample.level) for bets in better]
    needed = np.full(len(columns), inf)
    for i in np.flatnonzero(np.minimum(not_worse, is_worse) >= alpha).tolist():
        needed[i] = better[i].times_needed(means[i] - margin, sample.level) * sample.queries
    never = np.zeros(len(columns), np.bool_)
    bounded = replace(estimated, intervals=ends, fragile=never)
    return MeasureTests(bounded, not_worse, is_worse, never, never, detectable, needed)
