"""Whether a result is as good as a baseline: a verdict for a build server.

gate("results/new", "results/released", ["ndcg@10"]).verdict
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, isfinite
from typing import Literal

import numpy as np

from pipeline.comparison.inputs import Given, check, read_all, shared_values
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.records import JsonObject
from pipeline.core.table import Column, Displayed, FilledColumn, Table, table_of
from pipeline.metrics.paired import holm, paired_differences
from pipeline.metrics.power import queries_to_decide
from pipeline.metrics.resampling import noninferiority
from pipeline.metrics.statistics import MIN_QUERIES, estimate, gate_decides

Verdict = Literal["pass", "fail", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 3, "undecided": 4}
MARGIN, ALPHA = 0.01, 0.05


@dataclass(frozen=True)
class GatedMeasure:
    """The verdict on one measure.

    Attributes:
        difference: Mean of the result minus mean of the baseline; of suites, of macro means.
        ci_low, ci_high: Ends of its t interval of 1 - 2 alpha; None where none is shown.
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
class Gate(Displayed):
    """Verdicts on the measures of a result, and on the whole."""

    result: str
    baseline: str
    measures: list[GatedMeasure]
    alpha: float = ALPHA

    @property
    def verdict(self) -> Verdict:
        """Fail if anything fails; else undecided if anything is; else pass."""
        found = {each.verdict for each in self.measures}
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"

    @property
    def message(self) -> str:
        """What the verdict means, in a sentence; how many queries an undecided one takes."""
        if self.verdict == "pass":
            return f"pass: {self.result} is as good as {self.baseline}, within the margin"
        of_verdict = [each for each in self.measures if each.verdict == self.verdict]
        named = ", ".join(each.measure for each in of_verdict)
        if self.verdict == "fail":
            return f"fail: {self.result} is worse than {self.baseline} in {named}"
        needed = [each.queries_needed for each in of_verdict]
        if None in needed:
            return (
                f"undecided: {named} of {self.result} is so near the margin below {self.baseline} "
                "that no number of queries would decide"
            )
        most = max(number for number in needed if number is not None)
        return (
            f"undecided: {counted(self.measures[0].queries, 'query', 'queries')} are too few for "
            f"{named}; about {most:,} would decide with 80% power, if the difference stays so"
        )

    def json(self) -> JsonObject:
        """The document that `gate --json` prints."""
        measures = [asdict(each) for each in self.measures]
        return {
            "measures": measures, "verdict": self.verdict, "result": self.result, "baseline": self.baseline,
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
        return [table_of(title, columns, [f"{self.message}.", LEGEND])]


LEGEND = (
    "p is one-sided, against being worse by the margin or more: the larger of the t-test's and the paired "
    "bootstrap's, by Holm's correction over the measures."
)


def gate(
    result: Given,
    baseline: Given,
    measures: Sequence[str] = (),
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> Gate:
    """Whether a result is no more than a margin below a baseline, measure by measure.

    Args:
        result: The result, of one collection or of a suite, whose macro means are compared.
        baseline: What it is compared with.
        measures: Names of measures that both have; none takes the baseline's first that both have.
        margin: How far below the baseline a mean may be.
        alpha: Significance level: the probability, at most, of passing a result that is worse by the margin,
            over all measures together.

    Raises:
        InputError: They were scored on other queries or judgments, a measure is not in both, or a setting is
            out of range.
    """
    for value, name, low, high, allowed in (
        (margin, "--margin", 0, inf, "0 or more"),
        (alpha, "--alpha", 1e-6, 0.5, "a share from 0.000001 to 0.5"),
    ):
        if not low <= value <= high or not isfinite(value):
            raise InputError(f"{name} {value}", allowed=allowed)
    suites, _ = read_all([baseline, result])
    check(suites)
    chosen, values, _ = shared_values(suites, measures)
    strata, weights = [paired_differences(each[:, 1], each[:, 0]) for each in values], suites[0].weights
    made = estimate(strata, weights, confidence=1 - 2 * alpha)
    decides = gate_decides(strata, weights)
    tests = noninferiority(strata, np.full(len(chosen), margin), weights)
    p_not_worse, p_worse = map(holm, tests)
    queries = sum(map(len, strata))
    gated = []
    for i, measure in enumerate(chosen):
        verdict: Verdict = "undecided"
        if decides[i] and min(p_not_worse[i], p_worse[i]) < alpha:
            verdict = "pass" if p_not_worse[i] < alpha else "fail"
        needed = inf
        if verdict == "undecided":
            needed = queries_to_decide(
                [values[:, i : i + 1] for values in strata], margin, alpha / len(chosen), weights
            )
        gated.append(
            GatedMeasure(
                measure=measure,
                difference=float(made.means[i]),
                ci_low=made.ends[i][0],
                ci_high=made.ends[i][1],
                margin=margin,
                p_not_worse=float(p_not_worse[i]),
                verdict=verdict,
                queries=queries,
                queries_needed=max(int(needed), MIN_QUERIES, queries + 1) if isfinite(needed) else None,
            )
        )
    return Gate(suites[1].name, suites[0].name, gated, alpha)
