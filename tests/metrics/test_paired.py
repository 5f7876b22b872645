"""Tests in groups of queries: worked by hand and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline.metrics.paired import (
    SMALLEST,
    compare_with_rest,
    difference_tests,
    holm,
    smallest_shown,
)


def test_differences_in_groups_are_tested_as_by_scipy_and_corrected_for_all() -> None:
    random = np.random.default_rng(3)
    differences = random.normal([0.0, 0.4], 0.3, (60, 2))
    groups = [np.arange(60) < 20, np.arange(60) >= 45, np.arange(60) < SMALLEST - 1]
    found, corrected = difference_tests(differences, groups)
    assert np.isnan(found[2]).all()
    for row in range(2):
        chosen = differences[groups[row]]
        expected = stats.ttest_1samp(chosen, 0).pvalue
        assert (found[row] >= expected - 1e-12).all()  # or the randomization test's, which is larger
        assert found[row] == pytest.approx(expected, abs=0.02)
    assert corrected[:2].ravel() == pytest.approx(holm(found[:2].ravel()))
    assert np.isnan(corrected[2]).all()


def test_groups_that_could_not_show_a_difference_are_not_tested() -> None:
    assert smallest_shown([40], 1) == 6  # 2 / 2^6 is 3%
    assert smallest_shown([40, 6], 1) == 7  # twice that is 6%, and of the larger group alone 3%
    assert smallest_shown([40] * 10 + [9], 1) == 9  # 11 · 2 / 2^9 = 4.3%
    assert smallest_shown([40] * 10 + [8], 1) == 9
    assert smallest_shown([40] * 10, 10) == 12
    assert smallest_shown([], 1) == 6


def test_a_group_is_tested_against_the_rest_as_by_scipy() -> None:
    values = np.random.default_rng(4).beta(2, 1, (50, 2))
    values[:, 1] = 0.5
    inside = np.arange(50) < 15
    (p,) = compare_with_rest(values, [inside])
    expected = stats.ttest_ind(values[inside, 0], values[~inside, 0], equal_var=False).pvalue
    assert p == pytest.approx(holm(np.array([expected, 1.0])))
    assert np.isnan(compare_with_rest(values, [np.arange(50) < 2, np.arange(50) < 48])).all()
