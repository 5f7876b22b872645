"""What an approximate index loses against exact search: hits, and the change of the measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.names import Measure
from pipeline.metrics.statistics import bootstrap_interval


def overlap(found: Int64, exact: Int64, cutoff: int) -> float:
    """The share of the exact top `cutoff` hits that are among the top `cutoff` found; mean over queries.

    Args:
        found: int64 [queries, k], rows of passages, -1 for padding.
        exact: int64 [queries, k], likewise.
        cutoff: Ranks compared.
    """
    found, exact = found[:, :cutoff], exact[:, :cutoff]
    # query * width + passage: one number for each pair of a query and a passage
    width = int(max(found.max(initial=0), exact.max(initial=0))) + 1
    offset = np.arange(len(exact))[:, None] * width
    exact_pairs, found_pairs = (offset + exact)[exact >= 0], (offset + found)[found >= 0]
    shared = np.intersect1d(exact_pairs, found_pairs, assume_unique=True) // width
    n_exact = np.maximum((exact >= 0).sum(axis=1), 1)
    return float((np.bincount(shared, minlength=len(exact)) / n_exact).mean())


def compare_with_exact(
    found: Int64, exact: Int64, measures: Sequence[Measure], values: Float64, exact_values: Float64
) -> dict[str, Any]:
    """The section `against_exact` of `metrics.json`.

    Args:
        found: int64 [queries, k], rows of passages in the approximate ranking.
        exact: int64 [queries, k], those in the exact one.
        measures: The measures of the columns of `values`.
        values: float64 [queries, measures], of the approximate ranking.
        exact_values: float64 [queries, measures], of the exact one.

    Returns:
        `overlap` at each cutoff of the measures and at the ranking's depth; `change` by measure: the `exact`
        mean, the `difference` to it, and `ci_low` and `ci_high`, the 95% interval of the difference. That is
        a bootstrap of the queries' differences, so queries are resampled in pairs.
    """
    cutoffs = sorted({measure.cutoff for measure in measures if measure.cutoff} | {exact.shape[1]})
    differences = values - exact_values
    low, high = bootstrap_interval(differences)
    columns = (exact_values.mean(axis=0), differences.mean(axis=0), low, high)
    rows = zip(measures, *(column.tolist() for column in columns), strict=True)
    return {
        "overlap": {str(cutoff): overlap(found, exact, cutoff) for cutoff in cutoffs},
        "change": {
            str(measure): {
                "exact": float(mean),
                "difference": float(change),
                "ci_low": float(a),
                "ci_high": float(b),
            }
            for measure, mean, change, a, b in rows
        },
    }
