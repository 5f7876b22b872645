"""Pairs of results: equivalence, and what Wilcoxon's test says beside the t-test."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pipeline.comparison import Correction
from pipeline.comparison.pairs import MANY, Pair, compare_pairs, many_queries_notes
from pipeline.metrics.resampling import equivalence
from pipeline.metrics.statistics import ONE


def pairs_of(values: np.ndarray, margin: float | None = None) -> list[Pair]:  # type: ignore[type-arg]
    names = [str(run) for run in range(values.shape[1])]
    return compare_pairs(
        names, [""], [values], ONE, list(combinations(range(len(names)), 2)), Correction.both, margin
    )


def test_equivalence_of_pairs_is_corrected_and_takes_queries() -> None:
    generator = np.random.default_rng(4)
    values = generator.random((60, 1)) + generator.normal(0, 0.01, (60, 3)) + [0, 0, 0.1]
    pairs = pairs_of(values, 0.02)
    alone = [equivalence([(values[:, a] - values[:, b])[:, None]], 0.02).item() for a, b in [(0, 1), (0, 2)]]
    assert [pair.equivalent for pair in pairs] == [True, False, False]
    assert pairs[0].p_equivalent == pytest.approx(3 * alone[0])
    assert [pair.equivalent for pair in pairs_of(values[:20], 0.02)] == [False] * 3
    assert pairs_of(values)[0].p_equivalent is None


def test_wilcoxon_is_not_gone_by_where_thousands_of_queries_are_skewed() -> None:
    """Equal means and other shapes: often a little better, rarely much worse."""
    rarely = np.random.default_rng(5).permutation(MANY) < MANY // 10
    values = np.stack([np.where(rarely, 0.1, 1), np.where(rarely, 1, 0.9)], axis=1)
    (pair,) = pairs_of(values)
    assert pair.p_ttest > 0.99
    assert pair.p_wilcoxon is not None
    assert pair.p_wilcoxon < 1e-6
    assert "0 - 1: Wilcoxon's test has p below 0.05" in next(many_queries_notes([pair], MANY))
    assert not list(many_queries_notes([pair], MANY - 1))
