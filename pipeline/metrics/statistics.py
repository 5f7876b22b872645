"""How sure is a mean over queries?"""

from __future__ import annotations

import numpy as np

from pipeline.records import Float64

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 20190
BLOCK_DRAWS = 1 << 17  # queries drawn at once


def bootstrap_interval(values: Float64, confidence: float = CONFIDENCE) -> tuple[Float64, Float64]:
    """Percentile bootstrap interval of each mean over queries (Efron and Tibshirani 1993, section 13.3).

    Queries are drawn with replacement, as many as there are, 10,000 times, from a fixed seed: the same for
    every measure, so an interval does not depend on which other measures are asked for.

    Args:
        values: float64 [queries, measures], at least one query.
        confidence: The share of resampled means inside the interval.

    Returns:
        float64 [measures] each: the low and the high end.

    Raises:
        ValueError: There is no query.
    """
    n_queries = len(values)
    if not n_queries:
        raise ValueError("no query to resample")
    generator = np.random.default_rng(SEED)
    rows = max(BLOCK_DRAWS // n_queries, 1)
    means = np.empty((RESAMPLES, values.shape[1]))
    for start in range(0, RESAMPLES, rows):
        block = means[start : start + rows]
        drawn = generator.integers(n_queries, size=(len(block), n_queries), dtype=np.int32)
        drawn += np.arange(len(block), dtype=np.int32)[:, None] * n_queries
        times = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        block[:] = times.astype(np.float64) @ values / n_queries
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, (tail, 1 - tail), axis=0)
    return low, high
