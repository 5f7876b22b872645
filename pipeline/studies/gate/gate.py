"""Whether a result is as good as a baseline: a verdict for a build server.

gate_result("results/new", "results/released", ["ndcg@10"]).verdict
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil, inf, isfinite, log
from typing import Literal, NamedTuple

import numpy as np

from pipeline.comparison.inputs import ResultLike, read_results, shared_values
from pipeline.core.display import counted, figure
from pipeline.core.errors import InputError
from pipeline.core.records import Float64, JsonObject
from pipeline.core.table import Column, FilledColumn, Table, Tabular, no_interval, table_of
from pipeline.metrics.paired import holm, paired_differences, queries_to_decide
from pipeline.metrics.resampling import noninferiority
from pipeline.metrics.statistics import MIN_QUERIES, Ends, Strata, estimate
from pipeline.results.result import Result
from pipeline.results.tables import NO_MACRO_INTERVAL, slice_notes
from pipeline.studies.gate.betting import Bets

Verdict = Literal["pass", "fail", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 3, "undecided": 4}
MARGIN, ALPHA = 0.01, 0.05


@dataclass(frozen=True)
class GatedMeasure:
    """The verdict on one measure.

    Attributes:
        difference: Mean of the result minus mean of the baseline; of suites, of macro means.
        ci_low, ci_high: Ends of its t interval of 1 - 2 alpha; None where none is shown. With `guarantee`,
            betting bounds, each at alpha.
        margin: How far below the baseline the result may be.
        p_not_worse: One-sided p against "the result is `margin` or more below", by Holm's correction over
            the measures.
        verdict: "pass" where that is below alpha, "fail" where the opposite is shown, else "undecided".
        queries: How many were judged, in all collections.
        queries_needed: Of an undecided measure: with how many queries the difference, were it the true one,
            would be decided in 80% of cases; None where none would do, and where it is decided.
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


@dataclass(frozen=True, repr=False)
class Gate(Tabular):
    """Verdicts on the measures of a result, and on the whole.

    Attributes:
        unseen: The share of the queries of the smallest collection that could lose everything without one of
            them being among those judged, with a probability of `alpha`: ln(1 / alpha) / queries, by the rule
            of three. A pass does not exclude it, unless it is by `guarantee` or `same`.
        smallest: The queries and the name of that collection; no name of a result of one collection.
        guarantee: Whether betting bounds decide.
        same: Whether result and baseline are of the same settings and data, and have the same values.
        slices: What slices of a corpus do to the measures, a sentence each.
    """

    result: str
    baseline: str
    measures: list[GatedMeasure]
    alpha: float = ALPHA
    unseen: float = 0.0
    smallest: tuple[int, str] = (0, "")
    guarantee: bool = False
    same: bool = False
    slices: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Fail if anything fails; else undecided if anything is; else pass."""
        found = {each.verdict for each in self.measures}
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"

    @property
    def message(self) -> str:
        """What the verdict means; what a pass does not exclude; how many queries an undecided one takes."""
        if self.same:
            return f"pass: {self.result} and {self.baseline} have the same settings, data and values"
        if self.verdict == "pass":
            passed = f"pass: {self.result} {self._no_loss} {self.baseline} in {self._named('pass')}"
            if self.guarantee:
                return f"{passed}, whatever the distribution of the differences"
            queries, collection = self.smallest
            share = f"{figure(100 * self.unseen, '.2g')}% of the queries"
            share += f" of {collection}" if collection else ""
            share += f" ({figure(-log(self.alpha), '.2g')} / {queries:,})"
            return f"{passed}; not excluded: up to {share} losing everything (--guarantee excludes it)"
        named, margin = self._named(self.verdict), self.measures[0].margin
        if self.verdict == "fail":
            more = f" by more than {margin:g}" if margin else ""
            return f"fail: {self.result} is worse than {self.baseline}{more} in {named}"
        needed = [each.queries_needed for each in self.measures if each.verdict == self.verdict]
        if None in needed:
            said = (
                f"undecided: {named} of {self.result} is so near the margin below {self.baseline} "
                "that no number of queries would decide"
            )
        else:
            most = max(number for number in needed if number is not None)
            power = "" if self.guarantee else " with 80% power"
            said = (
                f"undecided: {counted(self.measures[0].queries, 'query', 'queries')} are too few for "
                f"{named}; about {most:,} would decide{power}, if the difference stays the same"
            )
        if self.guarantee and margin:
            least = ceil(log(1 / self.alpha) / margin)
            bound = f"ln(1 / {self.alpha:g}) / {margin:g} = {least:,}"
            said += f". Even if no query differs, a guarantee takes at least {bound} queries"
        return said

    @property
    def _no_loss(self) -> str:
        margin = self.measures[0].margin
        return f"loses less than {margin:g} against" if margin else "is not below"

    def _named(self, verdict: Verdict) -> str:
        return ", ".join(each.measure for each in self.measures if each.verdict == verdict)

    def json(self) -> JsonObject:
        """The document that `gate --json` prints."""
        measures = [asdict(each) for each in self.measures]
        return {
            "measures": measures, "verdict": self.verdict, "result": self.result, "baseline": self.baseline,
            "unseen": self.unseen, "guarantee": self.guarantee, "same": self.same,
        }  # fmt: skip

    def tables(self) -> list[Table]:
        """A measure a row."""
        measures = self.measures
        right = partial(Column, align="right", wrap="never")
        columns: list[FilledColumn] = [
            (Column("measure"), [each.measure for each in measures]),
            (Column("verdict"), [each.verdict for each in measures]),
            (right("difference", form="+.4f"), [each.difference for each in measures]),
            (
                right(f"{1 - 2 * self.alpha:.0%} interval", form="+.4f"),
                [(each.ci_low, each.ci_high) for each in measures],
            ),
            (right("margin", form="g"), [each.margin for each in measures]),
            (right("p", form="p"), [each.p_not_worse for each in measures]),
            (right("queries", form=","), [each.queries for each in measures]),
            (right("needed", form=","), [each.queries_needed for each in measures]),
        ]
        title = f"{self.result} against {self.baseline}"
        notes = [] if self.same else [BETTING if self.guarantee else LEGEND]
        if any(each.ci_low is None for each in measures) and not self.same:
            notes.append(NO_MACRO_INTERVAL if self.smallest[1] else no_interval(measures[0].queries))
        return [table_of(title, columns, [f"{self.message}.", *notes, *self.slices])]


LEGEND = "p: one-sided test against a loss of the margin or more, Holm over the measures (docs/compare.md)."
BETTING = (
    "p: test against a loss of the margin or more by betting bounds, which hold for every distribution and "
    "however often queries are added; Holm over the measures (docs/compare.md)."
)


def gate_result(
    result: ResultLike,
    baseline: ResultLike,
    measures: Sequence[str] = (),
    margin: float = MARGIN,
    alpha: float = ALPHA,
    guarantee: bool = False,
) -> Gate:
    """Whether a result is no more than a margin below a baseline, measure by measure.

    Args:
        result: The result, of one collection or of a suite, whose macro means are compared.
        baseline: What it is compared with.
        measures: Names of measures that both have; none takes the baseline's first that both have.
        margin: How far below the baseline a mean may be.
        alpha: Significance level: the probability, at most, of passing a result that is worse by the margin,
            over all measures together.
        guarantee: Decide by betting bounds, which hold for every distribution of differences, also of rare
            losses that no query shows, and at any time of stopping. It takes more queries.

    Raises:
        InputError: They were scored on other queries or judgments, a measure is not in both, or a setting is
            out of range; or there is no bound of a measure that has no highest value.
    """
    for value, name, low, high, allowed in (
        (margin, "--margin", 0, inf, "0 or more"),
        (alpha, "--alpha", 1e-6, 0.5, "a share from 0.000001 to 0.5"),
    ):
        if not low <= value <= high or not isfinite(value):
            raise InputError(f"{name} {value}", allowed=allowed)
    suites, _ = read_results([baseline, result])
    first = suites[0]
    chosen, values, _ = shared_values(suites, measures)
    differences = [paired_differences(each[:, 1], each[:, 0]) for each in values]
    sample = Sample(*first.pool_shared_queries(differences), _most_lost(first, chosen, values), margin, alpha)
    same = first.same_as(suites[1])
    if guarantee:
        if unbounded := [name for name in chosen if not isfinite(first.highest([name])[0])]:
            raise InputError(
                f"--guarantee with {', '.join(unbounded)}, which have no highest value",
                allowed="measures from 0 to 1, such as ndcg@10",
                fix="name another --measure, or leave out --guarantee",
            )
        (ones, _) = first.pool_shared_queries([np.ones((len(each), 1)) for each in differences])
        scales = np.array([each.max() for each in ones])
        tested = _by_bets(sample, scales)
    else:
        tested = _by_tests(sample, first.highest(chosen))
    queries = sum(map(len, differences))
    gated = []
    for measure, i in zip(chosen, range(len(chosen)), strict=True):
        decided = same or (tested.decides and min(tested.p_not_worse[i], tested.p_worse[i]) < alpha)
        verdict: Verdict = "undecided"
        if decided:
            verdict = "pass" if same or tested.p_not_worse[i] < alpha else "fail"
        needed = inf if decided else tested.needed(i)
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
                queries_needed=max(ceil(needed), MIN_QUERIES, queries + 1) if isfinite(needed) else None,
            )
        )
    names = [each.name if first.suite else "" for each in first.collections]
    smallest = min(zip(map(len, differences), names, strict=True))
    unseen = min(-log(alpha) / smallest[0], 1)
    return Gate(
        suites[1].name,
        first.name,
        gated,
        alpha,
        unseen,
        smallest,
        guarantee,
        same,
        tuple(slice_notes([each.record for suite in suites for each in suite.collections])),
    )


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


class Tested(NamedTuple):
    """What tests say of each measure; `needed` gives the number of queries that decides on one."""

    means: Float64
    ends: Sequence[Ends]
    decides: bool
    p_not_worse: Float64
    p_worse: Float64
    needed: Callable[[int], float]


def _by_tests(sample: Sample, highest: Float64) -> Tested:
    """By t-tests and the bootstrap, or by counting losses."""
    strata, weights, most_lost, margin, alpha = sample
    made = estimate(strata, weights, confidence=1 - 2 * alpha, low=-highest, high=highest)
    margins = np.full(len(most_lost), margin)
    tests = noninferiority(strata, margins, weights, highest=most_lost)

    def needed(i: int) -> float:
        alone = [values[:, i : i + 1] for values in strata]
        return queries_to_decide(alone, margin, alpha / len(margins), weights, float(most_lost[i]))

    not_worse, is_worse = map(holm, tests)
    return Tested(made.means, made.ends, sample.queries >= MIN_QUERIES, not_worse, is_worse, needed)


def _by_bets(sample: Sample, scales: Float64) -> Tested:
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

    def needed(i: int) -> float:
        bets, mean = (better[i], -margin) if means[i] > -margin else (worse[i], margin)
        return bets.times_needed(mean, alpha / len(columns)) * sample.queries

    return Tested(means, ends, True, not_worse, is_worse, needed)
