"""Tests within groups of queries: by SciPy, and their error rates."""

from collections.abc import Callable

import numpy as np
import pytest
from inside import resize
from scipy import stats

from pipeline import metrics
from pipeline.studies import groups as groups_study


def test_differences_in_groups_are_tested_as_by_scipy_and_corrected_for_all() -> None:
    random = np.random.default_rng(3)
    differences = random.normal([0.0, 0.4], 0.3, (60, 2))
    groups = [np.arange(60) < 20, np.arange(60) >= 45, np.arange(60) < groups_study.SMALLEST - 1]
    _, found, corrected = groups_study.difference_tests(differences, groups, 1.0)
    assert np.isnan(found[2]).all()
    for row in range(2):
        chosen = differences[groups[row]]
        expected = stats.ttest_1samp(chosen, 0).pvalue
        assert (found[row] >= expected - 1e-12).all()  # or the randomization test's, which is larger
        assert found[row] == pytest.approx(expected, abs=0.02)
    assert corrected[:2].ravel() == pytest.approx(metrics.holm(found[:2].ravel()))
    assert np.isnan(corrected[2]).all()


def test_groups_that_could_not_show_a_difference_are_not_tested() -> None:
    assert groups_study.smallest_shown([40], 1) == 6  # 2 / 2^6 is 3%
    assert groups_study.smallest_shown([40, 6], 1) == 7  # twice that is 6%, and of the larger group alone 3%
    assert groups_study.smallest_shown([40] * 10 + [9], 1) == 9  # 11 · 2 / 2^9 = 4.3%
    assert groups_study.smallest_shown([40] * 10 + [8], 1) == 9
    assert groups_study.smallest_shown([40] * 10, 10) == 12
    assert groups_study.smallest_shown([], 1) == 6


def test_a_group_is_tested_against_the_rest_by_a_studentized_permutation_as_by_scipy() -> None:
    values = np.random.default_rng(4).beta(2, 1, (70, 2))
    values[:25, 0] -= 0.15
    values[:, 1] = 0.5
    inside = np.arange(70) < 25
    (p,) = groups_study.compare_with_rest(values, [inside])
    expected = stats.permutation_test(
        (values[inside, 0], values[~inside, 0]),
        lambda a, b, axis: stats.ttest_ind(a, b, axis=axis, equal_var=False).statistic,
        n_resamples=20_000, rng=1, vectorized=True,
    ).pvalue  # fmt: skip
    assert p == pytest.approx([expected, 1.0], abs=0.01)  # a column without spread takes no part
    few, all_but_few = np.arange(70) < 19, np.arange(70) >= 19
    assert np.isnan(groups_study.compare_with_rest(values, [few, all_but_few])).all()


def of_success(random: np.random.Generator, groups: np.ndarray) -> np.ndarray:
    """Values of a mean of 0.8 in all groups."""
    return (random.random(len(groups)) < 0.8) * 1.0


def of_unequal_spread(random: np.random.Generator, groups: np.ndarray) -> np.ndarray:
    """Values of a mean of 0.5 in all groups, and thrice the spread in the smallest."""
    return 0.5 + np.where(groups == 3, 0.45, 0.15) * random.choice([-1, 1], len(groups))


@pytest.mark.parametrize("draw", [of_success, of_unequal_spread])
def test_of_results_in_which_no_group_is_special_one_in_twenty_has_a_mark(
    draw: Callable[[np.random.Generator, np.ndarray], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of unequal spread, the difference of means by itself marks 25 of 100."""
    resize(monkeypatch, permutations=299)
    numbers = np.repeat(np.arange(4), (38, 31, 24, 21))
    groups = [numbers == number for number in range(4)]
    random = np.random.default_rng(5)
    marked = [
        (groups_study.compare_with_rest(draw(random, numbers)[:, None], groups) < metrics.LEVEL).any()
        for _ in range(300)
    ]
    assert np.mean(marked) <= 0.09  # 5% and three errors of 300 samples
    special = (random.random((114, 1)) < 0.9) & ~groups[1][:, None]
    found = groups_study.compare_with_rest(special * 1.0, groups)[:, 0] < metrics.LEVEL
    assert found[1]
