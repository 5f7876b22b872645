"""Pairs of results: equivalence."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pipeline.comparison import Correction
from pipeline.comparison.pairs import Pair, compare_pairs
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
