"""Changes of measures between two rankings of the same queries, with paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.names import Measure
from pipeline.metrics.randomization import randomization_test
from pipeline.metrics.statistics import holm, shown_intervals, t_test

SAME = (
    1e-12  # values that differ by no more are a tie; above 1, such as those of DCG, as a share of the highest
)


def with_ties(differences: Float64, highest: Float64) -> Float64:
    """The differences of values of one query, 0 where they are a tie, so that rounding decides nothing.

    Args:
        differences: float64 [queries, n].
        highest: float64, the largest magnitude of the values they are of; broadcast to `differences`.
    """
    return np.where(np.abs(differences) <= SAME * np.maximum(highest, 1), 0, differences)


def changes(measures: Sequence[Measure], before: Float64, after: Float64) -> dict[str, dict[str, Any]]:
    """What happened to each measure, by its name, as JSON.

    Args:
        measures: The columns.
        before: float64 [queries, measures].
        after: The same, of the other ranking.

    Returns:
        `before`, the mean; `difference`, the mean of after minus before, and the ends of its 95% interval,
        None where none is shown; `p_ttest` and `p_randomization` of the two-sided paired tests; `p_holm`, the
        first corrected for the number of measures; and the numbers of queries that rose, stayed and fell.
    """
    differences = with_ties(after - before, np.maximum(np.abs(before), np.abs(after)))
    p_ttest = t_test(differences)
    columns = {
        "before": before.mean(axis=0),
        "difference": differences.mean(axis=0),
        "p_ttest": p_ttest,
        "p_randomization": randomization_test(differences),
        "p_holm": holm(p_ttest),
        "wins": (differences > 0).sum(axis=0),
        "ties": (differences == 0).sum(axis=0),
        "losses": (differences < 0).sum(axis=0),
    }
    listed = {name: column.tolist() for name, column in columns.items()}
    ends = [interval or (None, None) for interval in shown_intervals(differences)]
    listed["ci_low"], listed["ci_high"] = map(list, zip(*ends, strict=True))
    return {
        str(measure): {name: column[number] for name, column in listed.items()}
        for number, measure in enumerate(measures)
    }
