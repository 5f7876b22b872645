"""Whether a suite's macro means are as good as a baseline's: the gate of a build server, for suites."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.metrics.macro import macro, macro_decides, macro_intervals, macro_noninferiority
from pipeline.metrics.noninferiority import queries_for_power
from pipeline.results import comparable
from pipeline.results.gate import (
    ALPHA,
    MARGIN,
    Gate,
    GateFigures,
    check_settings,
    choose_measures,
    gate_measures,
)
from pipeline.results.pairs import query_differences
from pipeline.results.suite_comparison import check_suites, strata_of
from pipeline.results.suite_folder import SavedSuite, is_suite, read_suite_result


def gate_suites(
    result: SavedSuite,
    baseline: SavedSuite,
    measures: Sequence[str] = (),
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> Gate:
    """Whether macro means are no more than a margin below a baseline's; like `pipeline.results.gate.gate`.

    `queries_needed` of a measure is that of all collections together, each with as many times more.

    Raises:
        InputError: As of `pipeline.results.suite_comparison.compare_suites`; or a setting is out of range.
    """
    check_settings(margin, alpha, None)
    suites = [baseline, result]
    names = comparable.distinct_names([each.record.name for each in suites], [each.folder for each in suites])
    check_suites(suites, names)
    chosen = choose_measures(baseline, result, measures, names)
    figures = _figures(_differences(result, baseline, chosen), baseline.weights, margin, alpha)
    return Gate(names[1], names[0], gate_measures(chosen, figures, margin, alpha), alpha=alpha)


def _differences(result: SavedSuite, baseline: SavedSuite, measures: Sequence[str]) -> list[Float64]:
    """For each collection float64 [queries, measures]: the result minus the baseline."""
    by_measure = [
        [query_differences(values, [(1, 0)])[:, 0] for values in strata_of([baseline, result], measure)]
        for measure in measures
    ]
    return [np.stack(columns, axis=1) for columns in zip(*by_measure, strict=True)]


def _figures(strata: list[Float64], weights: Float64, margin: float, alpha: float) -> GateFigures:
    made = macro(strata, weights)
    not_worse, worse = macro_noninferiority(strata, weights, np.full(len(made.means), margin))
    low, high = macro_intervals(strata, weights, 1 - 2 * alpha)
    queries = sum(map(len, strata))

    def needed(measure: int, level: float) -> float:
        """By the noncentral t distribution; the standard error falls as more queries would make it."""
        distance = abs(float(made.means[measure]) + margin)
        deviation = float(made.errors[measure]) * sqrt(queries)
        return queries_for_power(distance / deviation, level) if deviation and distance else inf

    return GateFigures(
        queries=queries,
        decides=macro_decides(strata, weights) | (made.errors == 0),
        not_worse=not_worse,
        worse=worse,
        means=made.means,
        low=low,
        high=high,
        needed=needed,
    )


def read_both(folder: Path, baseline: Path | None) -> tuple[SavedSuite, SavedSuite | None]:
    """A suite and its baseline, which is a suite too.

    Raises:
        InputError: One of them is not, or is not finished.
    """
    for path in (folder, baseline):
        if path is not None and not is_suite(path):
            raise InputError(
                f"{path} is not the folder of a suite",
                allowed="a suite against a suite, or a result of one collection against another",
                fix="name the folder of a collection inside the suite, or another baseline",
            )
    return read_suite_result(folder), None if baseline is None else read_suite_result(baseline)
