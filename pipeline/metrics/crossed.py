"""Means over queries and prompts, both of which vary; and the score of the best of several prompts.

Values are float64 [queries, prompts], every query with every prompt. Both are samples: of the queries and of
the wordings that there could be. By the two-way random model without replication (Searle, Casella and
McCulloch, Variance Components, 1992, chapter 4; Brennan, Generalizability Theory, 2001), the variance of the
mean is (MS_queries + MS_prompts - MS_rest) / (queries * prompts), with Satterthwaite's degrees of freedom.
Where prompts vary less than the rest does, their part is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.statistics import CONFIDENCE, MIN_QUERIES

FOLDS, REPEATS, SEED = 5, 100, 1


class CrossedMean(NamedTuple):
    """A mean over queries and prompts, and its 95% interval; None where queries or prompts are too few."""

    mean: float
    low: float | None
    high: float | None


def crossed_mean(values: Float64) -> CrossedMean:
    """The mean of values, [queries, prompts], and its interval over both."""
    from scipy import stats

    queries, prompts = values.shape
    mean = float(values.mean())
    if queries < MIN_QUERIES or prompts < 2:
        return CrossedMean(mean, None, None)
    by_query, by_prompt = values.mean(axis=1), values.mean(axis=0)
    rest = values - by_query[:, None] - by_prompt + mean
    of_queries = prompts * by_query.var(ddof=1)
    of_prompts = queries * by_prompt.var(ddof=1)
    of_rest = (rest**2).sum() / ((queries - 1) * (prompts - 1))
    total, freedom = of_queries, float(queries - 1)
    if of_prompts > of_rest:
        total = of_queries + of_prompts - of_rest
        parts = of_queries**2 / (queries - 1) + of_prompts**2 / (prompts - 1)
        freedom = total**2 / (parts + of_rest**2 / ((queries - 1) * (prompts - 1)))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(total / values.size))
    return CrossedMean(mean, mean - half, mean + half)


def best_without_optimism(values: Float64) -> float:
    """The mean of the best prompt where other queries choose it, by cross-validation over queries.

    The highest of several means is too high as an estimate of its prompt, because its own queries chose it
    (Varma and Simon, BMC Bioinformatics 7:91, 2006). Here four fifths of the queries choose, and the others
    score; mean over `REPEATS` random divisions.
    """
    drawn, found = np.random.default_rng(SEED), []
    folds = min(FOLDS, len(values))
    for _ in range(REPEATS):
        fold_of = drawn.permutation(len(values)) % folds
        for fold in range(folds):
            held = fold_of == fold
            found.append(values[held, values[~held].mean(axis=0).argmax()].sum())
    return float(np.sum(found) / (REPEATS * len(values)))
