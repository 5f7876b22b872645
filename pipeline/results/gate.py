"""Whether a result is as good as a baseline: a verdict for a build server.

gate(read_result("results/new"), read_baseline(Path("baseline.json")), ["ndcg@10"]).verdict
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import inf, isfinite
from typing import Any, Literal, Protocol

import numpy as np

from pipeline.core.display import counted, p, rate, signed, signed_interval
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Float64
from pipeline.core.table import Cell, Column, Displayed, Table, table_of
from pipeline.metrics.noninferiority import noninferiority, queries_to_decide
from pipeline.metrics.statistics import MIN_QUERIES, ends, holm, mean_interval
from pipeline.results import comparable
from pipeline.results.comparison import column_of, cost
from pipeline.results.folder import SavedResult
from pipeline.results.main_measures import canonical_measure
from pipeline.results.pairs import query_differences

Verdict = Literal["pass", "fail", "undecided"]
EXIT_CODES: dict[Verdict, int] = {"pass": 0, "fail": 3, "undecided": 4}
MARGIN, ALPHA = 0.01, 0.05


class HasMeasures(Protocol):
    """A result that was read, of one collection or of a suite."""

    @property
    def measures(self) -> list[str]:
        """Its measures, in order."""
        ...


@dataclass(frozen=True)
class GatedMeasure:
    """The verdict on one measure.

    Attributes:
        difference: Mean of the result minus mean of the baseline.
        ci_low, ci_high: Ends of its t interval of 1 - 2 alpha; None where none is shown.
        margin: How far below the baseline the result may be.
        p_not_worse: One-sided p against "the result is `margin` or more below", by Holm's correction over
            the measures.
        verdict: "pass" where that is below alpha, "fail" where the opposite is shown, else "undecided".
        queries: How many were judged.
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


@dataclass(frozen=True)
class GatedSpeed:
    """The verdict on a speed: it fails where it is more than `allowed`, a share, below the baseline's."""

    speed: str
    baseline: float
    result: float
    slowdown: float
    allowed: float
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Gate(Displayed):
    """Verdicts on the measures and speeds of a result, and on the whole."""

    result: str
    baseline: str
    measures: list[GatedMeasure]
    speeds: list[GatedSpeed] = field(default_factory=list)
    alpha: float = ALPHA

    @property
    def verdict(self) -> Verdict:
        """Fail if anything fails; else undecided if anything is; else pass."""
        found = {each.verdict for each in self.measures} | {each.verdict for each in self.speeds}
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"

    @property
    def message(self) -> str:
        """What the verdict means, in a sentence; how many queries an undecided one takes."""
        if self.verdict == "pass":
            return f"pass: {self.result} is as good as {self.baseline}, within the margin"
        named = [each.measure for each in self.measures if each.verdict == self.verdict]
        named += [each.speed for each in self.speeds if each.verdict == self.verdict]
        if self.verdict == "fail":
            return f"fail: {self.result} is worse than {self.baseline} in {', '.join(named)}"
        needed = [each.queries_needed for each in self.measures if each.verdict == "undecided"]
        if None in needed:
            return (
                f"undecided: {', '.join(named)} of {self.result} is so near the margin below {self.baseline} "
                "that no number of queries would decide"
            )
        most = max(number for number in needed if number is not None)
        return (
            f"undecided: {counted(self.measures[0].queries, 'query', 'queries')} are too few for "
            f"{', '.join(named)}; about {most:,} would decide with 80% power, if the difference stays so"
        )

    def json(self) -> dict[str, Any]:
        """The document that `gate --json` prints."""
        document: dict[str, Any] = {"measures": [asdict(each) for each in self.measures]}
        if self.speeds:
            document["speeds"] = [asdict(each) for each in self.speeds]
        return {**document, "verdict": self.verdict, "result": self.result, "baseline": self.baseline}

    def tables(self) -> list[Table]:
        """A measure a row, and a speed a row where speeds are gated."""
        rows = [
            (
                each.measure,
                each.verdict,
                Cell(signed(each.difference), each.difference),
                Cell(signed_interval(each.ci_low, each.ci_high), each.ci_low),
                Cell(f"{each.margin:g}", each.margin),
                Cell(p(each.p_not_worse), each.p_not_worse),
                Cell(f"{each.queries:,}", each.queries),
                Cell("" if each.queries_needed is None else f"{each.queries_needed:,}", each.queries_needed),
            )
            for each in self.measures
        ]
        heads = ("difference", f"{1 - 2 * self.alpha:.0%} interval", "margin", "p", "queries", "needed")
        columns = [Column("measure"), Column("verdict"), *(Column(name, "right", "never") for name in heads)]
        filled = [(column, [row[number] for row in rows]) for number, column in enumerate(columns)]
        title = f"{self.result} against {self.baseline}"
        tables = [table_of(title, filled, [f"{self.message}.", LEGEND])]
        if self.speeds:
            tables.append(_speed_table(self.speeds))
        return tables


LEGEND = (
    "p is one-sided, against being worse by the margin or more: the larger of the t-test's and the paired "
    "bootstrap's, by Holm's correction over the measures."
)


def _speed_table(speeds: Sequence[GatedSpeed]) -> Table:
    rows = [
        (
            each.speed,
            each.verdict,
            Cell(rate(each.baseline), each.baseline),
            Cell(rate(each.result), each.result),
            Cell(f"{each.slowdown:.1%}", each.slowdown),
            Cell(f"{each.allowed:.1%}", each.allowed),
        )
        for each in speeds
    ]
    heads = (Column(name, "right") for name in ("baseline", "result", "slower by", "allowed"))
    return Table("speed", [Column("speed"), Column("verdict"), *heads], rows)


def gate(
    result: SavedResult,
    baseline: SavedResult,
    measures: Sequence[str] = (),
    margin: float = MARGIN,
    alpha: float = ALPHA,
    max_slowdown: float | None = None,
) -> Gate:
    """Whether a result is no more than a margin below a baseline, measure by measure.

    Args:
        result: The result.
        baseline: What it is compared with.
        measures: Names of measures that both have; none takes the baseline's first that both have.
        margin: How far below the baseline a mean may be.
        alpha: The chance, at most, to pass a result that is worse by the margin, over all measures together.
        max_slowdown: The share by which passages and queries per second may be below the baseline's; None
            does not look at speed.

    Raises:
        InputError: They were scored on other queries or judgments, a measure is not in both, a setting is out
            of range, or speeds are gated that were measured on different hardware.
    """
    check_settings(margin, alpha, max_slowdown)
    names = comparable.names_of([baseline, result])
    comparable.check([baseline, result], names)
    chosen = choose_measures(baseline, result, measures, names)
    differences = np.stack([_differences(result, baseline, measure) for measure in chosen], axis=1)
    gated = gate_measures(chosen, GateFigures.of(differences, margin, alpha), margin, alpha)
    speeds = [] if max_slowdown is None else _gate_speeds(result, baseline, names, max_slowdown)
    return Gate(names[1], names[0], gated, speeds, alpha)


def check_settings(margin: float, alpha: float, max_slowdown: float | None) -> None:
    """Refuse settings that are out of range."""
    for value, name, low, high, allowed in (
        (margin, "--margin", 0, float("inf"), "0 or more"),
        (alpha, "--alpha", 1e-6, 0.5, "a share from 0.000001 to 0.5"),
        (max_slowdown or 0, "--max-slowdown", 0, 1, "a share from 0 to 1, such as 0.1"),
    ):
        if not low <= value <= high or not isfinite(value):
            raise InputError(f"{name} {value}", allowed=allowed)


def choose_measures(
    first: HasMeasures, other: HasMeasures, measures: Sequence[str], names: Sequence[str]
) -> list[str]:
    """The measures by their canonical names, all of which both results have."""
    if not measures:
        measures = [name for name in first.measures if name in other.measures][:1]
    chosen = list(dict.fromkeys(map(canonical_measure, measures)))
    for result, name in zip((first, other), names, strict=True):
        lacking = [measure for measure in chosen if measure not in result.measures]
        if lacking or not chosen:
            raise InputError(
                f"{', '.join(lacking) or 'no measure'} is not among the measures of {name}",
                allowed=", ".join(result.measures),
                fix="add it to evaluate.measures and run again; nothing else is computed again",
            )
    return chosen


def _differences(result: SavedResult, baseline: SavedResult, measure: str) -> Float64:
    """float64 [queries]: the result minus the baseline."""
    values = [column_of(each, measure, baseline.query_ids) for each in (result, baseline)]
    return query_differences(np.stack(values, axis=1), [(0, 1)])[:, 0]


@dataclass(frozen=True)
class GateFigures:
    """What verdicts are made of, float64 [measures] each.

    Attributes:
        queries: How many were judged.
        decides: Bool: whether there are queries enough for a verdict.
        not_worse, worse: One-sided p, of `pipeline.metrics.noninferiority.noninferiority`.
        means: Of the differences.
        low, high: Ends of their intervals of 1 - 2 alpha, NaN where none is shown.
        needed: For the number of a measure and the level of a single test, how many queries would decide; see
            `pipeline.metrics.noninferiority.queries_to_decide`.
    """

    queries: int
    decides: BoolArray
    not_worse: Float64
    worse: Float64
    means: Float64
    low: Float64
    high: Float64
    needed: Callable[[int, float], float]

    @classmethod
    def of(cls, differences: Float64, margin: float, alpha: float) -> GateFigures:
        """The figures of differences, float64 [queries, measures]."""
        decides = np.full(differences.shape[1], len(differences) >= MIN_QUERIES)
        tests = noninferiority(differences, np.full(differences.shape[1], margin))
        interval = mean_interval(differences, 1 - 2 * alpha)

        def needed(measure: int, level: float) -> float:
            return queries_to_decide(differences[:, measure], margin, level)

        return cls(len(differences), decides, *tests, differences.mean(axis=0), *interval, needed)


def gate_measures(
    measures: Sequence[str], figures: GateFigures, margin: float, alpha: float
) -> list[GatedMeasure]:
    """The verdicts on measures; none is made where the figures do not decide."""
    n_queries, means, low, high = figures.queries, figures.means, figures.low, figures.high
    p_not_worse, p_worse = holm(figures.not_worse), holm(figures.worse)
    gated = []
    for i, measure in enumerate(measures):
        verdict: Verdict = "undecided"
        if figures.decides[i] and min(p_not_worse[i], p_worse[i]) < alpha:
            verdict = "pass" if p_not_worse[i] < alpha else "fail"
        needed = inf
        if verdict == "undecided":
            needed = figures.needed(i, alpha / len(measures))
        gated.append(
            GatedMeasure(
                measure=measure,
                difference=float(means[i]),
                ci_low=(ends(low[i], high[i]) or (None, None))[0],
                ci_high=(ends(low[i], high[i]) or (None, None))[1],
                margin=margin,
                p_not_worse=float(p_not_worse[i]),
                verdict=verdict,
                queries=n_queries,
                queries_needed=max(int(needed), MIN_QUERIES, n_queries + 1) if isfinite(needed) else None,
            )
        )
    return gated


def _gate_speeds(
    result: SavedResult, baseline: SavedResult, names: Sequence[str], allowed: float
) -> list[GatedSpeed]:
    """Verdicts on the speeds that both results have."""
    if apart := comparable.computed_elsewhere(baseline, result):
        raise InputError(
            f"{names[0]} and {names[1]} computed {', '.join(apart)} on different hardware "
            "or with other numbers of threads",
            allowed="--max-slowdown between results of equal hardware",
            fix="leave --max-slowdown out, or run the baseline on this machine",
        )
    speeds = []
    for number, speed in enumerate(("passages/s", "queries/s")):
        before, now = cost(baseline.record)[number], cost(result.record)[number]
        if before is None or now is None:
            continue
        slowdown = float(1 - now / before)
        verdict: Verdict = "fail" if slowdown > allowed else "pass"
        speeds.append(GatedSpeed(speed, float(before), float(now), slowdown, allowed, verdict))
    if not speeds:
        raise InputError(
            f"no speed was measured in both {names[0]} and {names[1]}",
            allowed="--max-slowdown between results whose runs did the work themselves",
            fix="run with --fresh, or leave --max-slowdown out",
        )
    return speeds
