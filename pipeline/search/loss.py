"""What does an approximate index lose against exact search? Hits, and the measures that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.names import Measure
from pipeline.metrics.statistics import bootstrap_interval


def overlap(found: Int64, exact: Int64, cutoff: int) -> float:
    """The share of the exact top `cutoff` hits that were found among as many, as a mean over queries.

    Args:
        found: int64 [queries, k], rows of passages, -1 where there is no hit.
        exact: int64 [queries, k], likewise.
        cutoff: Ranks looked at.
    """
    found, exact = found[:, :cutoff], exact[:, :cutoff]
    width = int(max(found.max(initial=0), exact.max(initial=0))) + 1
    own = np.arange(len(exact))[:, None] * width
    wanted, among = (own + exact)[exact >= 0], (own + found)[found >= 0]
    shared = np.intersect1d(wanted, among, assume_unique=True) // width
    there = np.maximum((exact >= 0).sum(axis=1), 1)
    return float((np.bincount(shared, minlength=len(exact)) / there).mean())


def against(
    found: Int64, exact: Int64, measures: Sequence[Measure], values: Float64, exact_values: Float64
) -> dict[str, Any]:
    """Both, as `metrics.json` has them.

    Args:
        found: int64 [queries, k], rows of passages in the approximate ranking.
        exact: int64 [queries, k], those in the exact one.
        measures: What was measured.
        values: float64 [queries, measures], of the approximate ranking.
        exact_values: float64 [queries, measures], of the exact one.

    Returns:
        `overlap` by cutoff, those of the measures and the ranking's depth; `change` by measure, with its
        `exact` mean, the `difference` to it, and the ends of that difference's 95% interval: of means of
        differences, so that queries are resampled in pairs.
    """
    cutoffs = sorted({measure.cutoff for measure in measures if measure.cutoff} | {exact.shape[1]})
    differences = values - exact_values
    low, high = bootstrap_interval(differences)
    rows = zip(measures, exact_values.mean(axis=0), differences.mean(axis=0), low, high, strict=True)
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
