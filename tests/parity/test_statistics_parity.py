"""p-values against SciPy's, over values as measures give them: graded, binary, tied, few and many."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline.core.records import Float64
from pipeline.metrics.resampling import randomize
from pipeline.metrics.statistics import t_test

SHAPES = [2, 5, 43, 6980]


def pairs(n_queries: int) -> tuple[Float64, Float64]:
    """float64 [queries, 4] twice: two graded measures, one nearly the same, a binary one."""
    random = np.random.default_rng(n_queries)
    ours = random.beta(0.5, 0.7, (n_queries, 4))
    theirs = np.clip(ours + random.normal([0.02, 0.1, 0, 0], [0.2, 0.2, 1e-4, 0], ours.shape), 0, 1)
    ours[:, 3], theirs[:, 3] = random.integers(2, size=(2, n_queries))
    return ours, theirs


@pytest.mark.parametrize("n_queries", SHAPES)
def test_t_test_is_scipy_s(n_queries: int) -> None:
    ours, theirs = pairs(n_queries)
    ours[0, 3], theirs[0, 3] = 1, 0  # SciPy has no p where nothing differs
    expected = stats.ttest_rel(ours, theirs, axis=0).pvalue
    assert t_test([ours - theirs]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("n_queries", SHAPES[:-1])
def test_randomization_test_is_scipy_s_within_noise(n_queries: int) -> None:
    ours, theirs = pairs(n_queries)
    expected = stats.permutation_test(
        (ours, theirs),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=1,
    ).pvalue
    positions = [(column, column + 4) for column in range(4)]
    shown = np.ones(4, dtype=bool)
    found = randomize(np.hstack([ours, theirs]), positions, ours - theirs, shown).p
    assert found == pytest.approx(expected, abs=1e-12 if n_queries < 14 else 0.02)  # exact where few
