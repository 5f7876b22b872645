"""What an approximate index loses: its ranking against that of exact search."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from pipeline.core.records import Facts, Float64, Int64
from pipeline.metrics.names import Measure
from pipeline.metrics.paired import changes


def overlap(approximate: Int64, exact: Int64, cutoff: int) -> float:
    """The share of the exact top `cutoff` hits that are among the top `cutoff` found; mean over queries.

    Both rankings are int64 [queries, k], rows of passages, -1 for padding.
    """
    approximate, exact = approximate[:, :cutoff], exact[:, :cutoff]
    # query * width + passage: one number for each pair of a query and a passage
    width = int(max(approximate.max(initial=0), exact.max(initial=0))) + 1
    offset = np.arange(len(exact))[:, None] * width
    exact_pairs, approximate_pairs = (offset + exact)[exact >= 0], (offset + approximate)[approximate >= 0]
    shared = np.intersect1d(exact_pairs, approximate_pairs, assume_unique=True) // width
    n_exact = np.maximum((exact >= 0).sum(axis=1), 1)
    return float((np.bincount(shared, minlength=len(exact)) / n_exact).mean())


def compare_with_exact(
    found: Int64,
    exact: Int64,
    measures: Sequence[Measure],
    values: Float64,
    exact_values: Float64,
    draws: Sequence[Hashable],
) -> Facts:
    """The section `against_exact` of `metrics.json`.

    `found` and `exact` are rankings as in `overlap`, `values` and `exact_values` the measures of each,
    float64 [queries, measures]. Queries of which `draws` are equal count as one in intervals.

    Returns:
        `overlap` at each cutoff of the measures and at the ranking's depth; `change` from exact search, as of
        `pipeline.metrics.paired.changes`.
    """
    cutoffs = sorted({measure.cutoff for measure in measures if measure.cutoff} | {exact.shape[1]})
    overlaps = {str(cutoff): overlap(found, exact, cutoff) for cutoff in cutoffs}
    return {"overlap": overlaps, "change": changes(measures, exact_values, values, draws)}
