"""Tests in groups of queries: worked by hand and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline.metrics import resampling
from pipeline.metrics.paired import (
    LEVEL,
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
    values[:15, 0] -= 0.15
    values[:, 1] = 0.5
    inside = np.arange(50) < 15
    (p,) = compare_with_rest(values, [inside])
    expected = stats.permutation_test(
        (values[inside, 0], values[~inside, 0]), lambda a, b: a.mean() - b.mean(), n_resamples=20_000, rng=1
    ).pvalue
    assert p == pytest.approx([expected, 1.0], abs=0.01)  # a column without spread takes no part
    assert np.isnan(compare_with_rest(values, [np.arange(50) < 2, np.arange(50) < 48])).all()


def test_of_results_in_which_no_group_is_special_one_in_twenty_has_a_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Success with mean 0.8 in a partition of 114 queries; Welch's test marks 79 of 100."""
    monkeypatch.setattr(resampling, "PERMUTATIONS", 499)
    sizes = (19, 12, 12, 11, 11, 9, 9, 9, 8, 8, 6)
    groups = [np.repeat(np.arange(11), sizes) == number for number in range(11)]
    random = np.random.default_rng(5)
    marked = [
        (compare_with_rest((random.random((114, 1)) < 0.8) * 1.0, groups) < LEVEL).any() for _ in range(300)
    ]
    assert np.mean(marked) <= 0.08  # 5% and three errors of 300 samples
    special = (random.random((114, 1)) < 0.9) & ~groups[1][:, None]
    found = compare_with_rest(special * 1.0, groups)[:, 0] < LEVEL
    assert found.tolist() == [number == 1 for number in range(11)]
