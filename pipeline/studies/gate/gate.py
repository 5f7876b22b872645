"""Whether a result is as good as a baseline: a verdict for a build server.

gate_result("results/new", "results/released", ["ndcg@10"]).verdict
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf, isfinite
from typing import Literal, NamedTuple

import numpy as np

from pipeline.comparison.inputs import ALL_DATA, ResultLike, comparable, read_results, shared_values
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Float64, JsonObject
from pipeline.core.table import Column, FilledColumn, Table, Tabular, right, table_of
from pipeline.metrics.paired import LEVEL, holm, paired_differences
from pipeline.metrics.resampling import randomization_test
from pipeline.metrics.statistics import CONFIDENCE, Ends, Strata, estimate
from pipeline.results.result import Result, refuse_edited
from pipeline.results.tables import collection_notes
from pipeline.studies.gate.betting import Bets
from pipeline.studies.gate.margin_tests import detectable, needed, noninferiority, one_more_undoes

Verdict = Literal["pass", "fail", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 3, "undecided": 4}
MARGIN, ALPHA = 0.01, 0.05


@dataclass(frozen=True)
class GatedMeasure:
    """The verdict on one measure.

    Attributes:
        difference: Mean of the result minus mean of the baseline; of suites, of macro means.
        ci_low, ci_high: Ends of the difference's 95% interval; by `guarantee` bounds, each at alpha.
        margin: How far below the baseline the result may be.
        p_not_worse: One-sided p against "the result is `margin` or more below", by Holm's correction over
            the measures.
        verdict: "pass" where that is below alpha, "fail" where the opposite is shown, else "undecided".
        queries: How many were judged, in all collections.
        queries_needed: Of an undecided measure: how many queries exclude a loss of the margin in 80% of
            cases, if there is no loss; None where no number does, and where it is decided.
        detectable: The smallest loss that `queries` exclude in 80% of cases, if there is no loss; None where
            no loss is.
        p: That of the verdict's own test: of a loss beyond the margin where it fails, else `p_not_worse`.
        fragile: Whether it passes, and one query more that loses everything would undo it.
        p_lower: Where the mean is lower than the baseline's: the larger p of the paired t-test and the paired
            randomization test; None where it is not.
    """

    measure: str
    difference: float
    ci_low: float | None
    ci_high: float | None
    margin: float
    p_not_worse: float
    verdict: Verdict
    queries: int
    queries_needed: int | None
    detectable: float | None
    p: float
    fragile: bool
    p_lower: float | None

    @property
    def mark(self) -> str:
        """The verdict, with "~" where it is fragile."""
        return f"{self.verdict}{'~' * self.fragile}"


@dataclass(frozen=True, repr=False)
class Gate(Tabular):
    """Verdicts on the measures of a result, and on the whole.

    Attributes:
        guarantee: Whether betting bounds decide.
        same: Whether result and baseline are of the same settings and data, and have the same values.
        slices: What slices of a corpus do to the measures, a sentence each.
        since: The gate against a release of record, with a margin of its own.
    """

    result: str
    baseline: str
    measures: list[GatedMeasure]
    alpha: float = ALPHA
    guarantee: bool = False
    same: bool = False
    slices: tuple[str, ...] = ()
    since: Gate | None = None

    @property
    def verdict(self) -> Verdict:
        """Fail if anything fails; else undecided if anything is; else pass."""
        verdicts = {each.verdict for each in self.measures} | ({self.since.verdict} if self.since else set())
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"

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
            return f"pass{'~' * self.fragile}: {self.result} {loss} {self.baseline} in {named}{whatever}"
        if self.verdict == "fail":
            more = f" by more than {margin:g}" if margin else ""
            return f"fail: {self.result} is worse than {self.baseline}{more} in {named}"
        undecided = [each for each in self.measures if each.verdict == "undecided"]
        lower = [each for each in undecided if each.p_lower is not None and each.p_lower < LEVEL]
        opening = f"undecided: {self.result} in {named}"
        if lower:
            p = max(each.p_lower or 0 for each in lower)
            return f"{opening}: lower than {self.baseline} (p = {p:.3f}), but maybe by less than {margin:g}"
        queries = undecided[0].queries
        said = f"{opening}: too few queries: {queries:,}"
        if losses := [each.detectable for each in undecided if each.detectable is not None]:
            said += f" exclude a loss of {max(losses):.2g}"
        enough = max((each.queries_needed or 0 for each in undecided), default=0)
        return f"{said}, and about {enough:,} one of {margin:g}" if enough > queries else said

    @property
    def fragile(self) -> bool:
        """Whether it passes, and one query more that loses everything would undo that."""
        parts: list[GatedMeasure | Gate] = [*self.measures, *([self.since] if self.since else [])]
        return self.verdict == "pass" and any(each.fragile for each in parts)

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
        if self.since:
            return [*replace(self, since=None).tables(), *self.since.tables()]
        measures = self.measures
        columns: list[FilledColumn] = [
            (Column("measure"), [each.measure for each in measures]),
            (Column("verdict"), [each.mark for each in measures]),
            (right("difference", form="+.4f"), [each.difference for each in measures]),
            (
                right(f"{1 - 2 * self.alpha:.0%} bounds" if self.guarantee else "95% interval", form="+.4f"),
                [(each.ci_low, each.ci_high) for each in measures],
            ),
            (right("margin", form="g"), [each.margin for each in measures]),
            (right("p", form="p"), [each.p for each in measures]),
            (right("queries", form=","), [each.queries for each in measures]),
            (right("detects"), [each.detectable for each in measures]),
            (right("needed", form=","), [each.queries_needed for each in measures]),
        ]
        title = f"{self.result} against {self.baseline}"
        notes = [] if self.same else [BETTING if self.guarantee else LEGEND]
        notes += [FRAGILE] if any(each.fragile for each in measures) else []
        return [table_of(title, columns, [f"{self.message}.", *notes, *self.slices])]


LEGEND = "p is that of the verdict's test, corrected for the number of measures (docs/compare.md)."
FRAGILE = "pass~: one query more that loses everything would undo it."
BETTING = (
    "p is that of a test by betting against a loss of the margin or more. It holds for every distribution "
    "and however often queries are added, and is corrected for the number of measures (docs/compare.md)."
)


def gate_result(
    result: ResultLike,
    baseline: ResultLike,
    measures: Sequence[str] = (),
    margin: float = MARGIN,
    alpha: float = ALPHA,
    guarantee: bool = False,
    since: ResultLike | None = None,
    since_margin: float | None = None,
    other_data: bool = False,
) -> Gate:
    """Whether a result is no more than a margin below a baseline, measure by measure.

    Args:
        result: The result, of one collection or of a suite, whose macro means are compared.
        baseline: What it is compared with.
        measures: Names of measures that all have; none takes the baseline's first that all have.
        margin: How far below the baseline a mean may be.
        alpha: Significance level: the probability, at most, of passing a result that is worse by the margin,
            over all measures together.
        guarantee: Decide by betting bounds, which hold for every distribution of differences, also of rare
            losses that no query shows, and at any time of stopping. It takes more queries.
        since: A release of record, against which the result must pass as well: small losses against one
            baseline after another add up.
        since_margin: How far below that a mean may be; None is `margin`.
        other_data: Compare results of other passages, query texts, judgments or `data.ignored` all the same.

    Raises:
        InputError: They searched other passages, have other queries or judgments, a measure is not in all, or
            a setting is out of range; or there is no bound of a measure that has no highest value.
    """
    if since is None and since_margin is not None:
        raise InputError(
            "--since-margin without --since", allowed="both", fix="name the release with --since"
        )
    since_margin = margin if since_margin is None else since_margin
    for value, name, low, high, allowed in (
        (margin, "--margin", 0, inf, "0 or more"),
        (since_margin, "--since-margin", 0, inf, "0 or more"),
        (alpha, "--alpha", 1e-6, 0.5, "a share from 0.000001 to 0.5"),
    ):
        if not low <= value <= high or not isfinite(value):
            raise InputError(f"{name} {value}", allowed=allowed)
    named = [baseline, result, *([] if since is None else [since])]
    results, _ = read_results(named, same=() if other_data else ALL_DATA)
    for one in results:
        refuse_edited(one)
    chosen, values, _ = shared_values(results, measures)
    first, new, *of_record = results
    slices = collection_notes([each.record for one in results for each in one.collections])
    for one in results[1:]:
        for ours, theirs in zip(results[0].collections, one.collections, strict=True):
            slices += [
                f"{results[0].name} and {one.name} {each}." for each in comparable(ours, theirs).values()
            ]
    gate = _against(first, new, chosen, [each[:, :2] for each in values], margin, alpha, guarantee)
    if of_record:
        pairs = [each[:, [2, 1]] for each in values]
        record = _against(of_record[0], new, chosen, pairs, since_margin, alpha, guarantee)
        gate = replace(gate, since=record)
    return replace(gate, slices=tuple(slices))


def _against(
    first: Result,
    new: Result,
    chosen: Sequence[str],
    values: Sequence[Float64],
    margin: float,
    alpha: float,
    guarantee: bool,
) -> Gate:
    """The gate against one baseline; of each collection float64 [queries, baseline and result, measures]."""
    differences = [paired_differences(each[:, 1], each[:, 0]) for each in values]
    sample = Sample(*first.pool_draws(differences), _most_lost(first, chosen, values), margin, alpha)
    same = first.same_as(new)
    if guarantee:
        if unbounded := [name for name in chosen if not isfinite(first.highest([name])[0])]:
            raise InputError(
                f"--guarantee with {', '.join(unbounded)}, which have no highest value",
                allowed="measures from 0 to 1, such as ndcg@10",
                fix="name another --measure, or leave out --guarantee",
            )
        (ones, _) = first.pool_draws([np.ones((len(each), 1)) for each in differences])
        tested = _by_bets(sample, np.array([each.max() for each in ones]))
    else:
        tested = _by_tests(sample)
    queries = sum(map(len, differences))
    lower = np.maximum(estimate(sample.strata, sample.weights).p, randomization_test(*sample[:2]))
    queries_of_a_draw = queries / sample.queries if any(each.clusters for each in first.collections) else 1
    gated = []
    for i, measure in enumerate(chosen):
        decided = same or min(tested.p_not_worse[i], tested.p_worse[i]) < alpha
        verdict: Verdict = "undecided"
        if decided:
            verdict = "pass" if same or tested.p_not_worse[i] < alpha else "fail"
        needed_queries = inf if decided else tested.needed(i)
        loss = float(tested.detectable[i])
        gated.append(
            GatedMeasure(
                measure=measure,
                difference=float(tested.means[i]),
                ci_low=tested.ends[i][0],
                ci_high=tested.ends[i][1],
                margin=margin,
                p_not_worse=0.0 if same else float(tested.p_not_worse[i]),
                verdict=verdict,
                queries=queries,
                # of clusters, as many queries as they have
                queries_needed=ceil(needed_queries * queries_of_a_draw) if isfinite(needed_queries) else None,
                detectable=loss if isfinite(loss) else None,
                p=0.0 if same else float((tested.p_worse if verdict == "fail" else tested.p_not_worse)[i]),
                fragile=verdict == "pass" and not same and bool(tested.fragile[i]),
                p_lower=float(lower[i]) if tested.means[i] < 0 else None,
            )
        )
    return Gate(new.name, first.name, gated, alpha, guarantee, same)


def _most_lost(result: Result, measures: Sequence[str], values: Sequence[Float64]) -> Float64:
    """float64 [measures]: how much a query can lose, of values as of `shared_values`.

    That is the highest value of a measure; where it has none, the highest that was seen.
    """
    highest, seen = result.highest(measures), np.max([each.max(axis=(0, 1)) for each in values], axis=0)
    return np.where(np.isfinite(highest), highest, seen)


class Sample(NamedTuple):
    """What is tested: strata of differences float64 [queries, measures], and how much a query can lose."""

    strata: Strata
    weights: Float64
    most_lost: Float64
    margin: float
    alpha: float

    @property
    def queries(self) -> int:
        """The independent queries."""
        return sum(map(len, self.strata))


class MeasureTests(NamedTuple):
    """What tests say of each measure; `needed` gives the number of queries that excludes the margin."""

    means: Float64
    ends: Sequence[Ends]
    p_not_worse: Float64
    p_worse: Float64
    fragile: BoolArray
    detectable: Float64
    needed: Callable[[int], float]


def _by_tests(sample: Sample) -> MeasureTests:
    """By t-tests and the bootstrap."""
    from scipy.special import stdtrit

    strata, weights, most_lost, margin, alpha = sample
    margins = np.full(len(most_lost), margin)
    not_worse, is_worse = map(holm, noninferiority(strata, margins, weights))
    level = alpha / len(margins)  # as Holm's first step
    estimated = estimate(strata, weights)
    freedom = np.maximum(estimated.wide_freedom, 1)
    reach = stdtrit(freedom, (1 + CONFIDENCE) / 2) * estimated.wide_errors
    bounds = np.clip([estimated.means - reach, estimated.means + reach], -most_lost, most_lost)
    return MeasureTests(
        estimated.means,
        list(zip(*bounds.tolist(), strict=True)),
        not_worse,
        is_worse,
        one_more_undoes(strata, margins, weights, most_lost, alpha),
        detectable(strata, weights, level),
        needed(strata, weights, margin, level).__getitem__,
    )


def _by_bets(sample: Sample, scales: Float64) -> MeasureTests:
    """By betting bounds; a query can lose `scales`, float64 [strata], times what one collection's can."""
    strata, weights, most_lost, margin, alpha = sample
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
    not_worse = holm(np.array([bets.p_value(-margin) for bets in better]))
    is_worse = holm(np.array([bets.p_value(margin) for bets in worse]))
    means = weights @ np.stack([values.mean(axis=0) for values in strata])
    ends = [(better[i].lower_bound(alpha), -worse[i].lower_bound(alpha)) for i in columns]

    level = alpha / len(columns)
    detectable = means - [bets.lower_bound(level) for bets in better]

    def needed(i: int) -> float:
        return better[i].times_needed(means[i] - margin, level) * sample.queries

    never = np.zeros(len(columns), np.bool_)
    return MeasureTests(means, ends, not_worse, is_worse, never, detectable, needed)
