"""Bootstrap and randomization tests, and power: by hand, by SciPy, and their error rates."""

from collections.abc import Callable

import numpy as np
import pytest
from inside import resize
from scipy import stats

from pipeline import metrics


def test_power_is_that_of_simulated_tests() -> None:
    generator = np.random.default_rng(4)
    for effect, needed in zip(
        (0.1, 0.5), metrics.queries_needed(np.array([0.1, 0.5]), 0.05).astype(int), strict=True
    ):
        drawn = generator.normal(effect, 1, (2000, needed))
        p = stats.ttest_1samp(drawn, 0, axis=1, alternative="greater").pvalue
        assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.035)
        fewer, power = (
            stats.nct.sf(stats.t.ppf(0.95, n - 1), n - 1, effect * n**0.5) for n in (needed - 1, needed)
        )
        assert fewer < 0.8 <= power


def test_numbers_of_queries_by_published_tables() -> None:
    # two-sided 5% and 80% power of a paired test at d = 0.5: 34 (Cohen 1988; G*Power 3.1); one-sided: 27
    assert metrics.queries_needed([0.5, np.inf, 0, -1], 0.025).tolist() == [34, 2, np.inf, np.inf]
    small = ((1.644854 + 0.841621) / 1e-3) ** 2
    assert metrics.queries_needed([0.5, 1e-3], 0.05) == pytest.approx([27, small], rel=1e-5)


def test_the_detectable_difference_is_found_in_four_of_five_samples() -> None:
    generator = np.random.default_rng(6)
    for n_queries, alpha in ((6, 0.025), (43, 0.05), (43, 0.025 / 15), (20_000, 0.01)):
        error, freedom = 0.3 / n_queries**0.5, n_queries - 1
        difference = metrics.detectable_difference(error, freedom, alpha)
        t = stats.nct.rvs(freedom, difference / error, size=4000, random_state=generator)
        assert (t > stats.t.ppf(1 - alpha, freedom)).mean() == pytest.approx(0.8, abs=0.025)
        assert metrics.queries_needed(difference / 0.3, alpha) == pytest.approx(n_queries, abs=1)
    assert metrics.detectable_difference([0.0, 0.1], [42, 0], 0.05).tolist() == [np.inf, np.inf]


def test_no_difference_shows_nothing_and_a_constant_one_is_no_error() -> None:
    for differences in (np.zeros((30, 2)), np.full((1, 2), 0.3)):
        assert metrics.randomization_test([differences]).tolist() == [1, 1]
    assert metrics.randomization_test([np.full((40, 1), 0.25)]) == 1 / (1 + metrics.PERMUTATIONS)


def test_rounding_makes_no_way_less_extreme() -> None:
    tenths = np.random.default_rng(4).choice([1.0, 2.0, 3.0, -1.0], (18, 100))  # sums of these are exact
    p = [metrics.randomization_test([values]).tolist() for values in (tenths / 10, tenths)]
    assert p[0] == p[1]


def test_every_way_of_few_queries_is_counted() -> None:
    # 8 ways: sums of 7 and -7 reach 7; sums of 3, 5 and 7 and their negatives reach 3
    differences = np.array([[1.0, 1.0], [2.0, -2.0], [4.0, 4.0]])
    assert metrics.randomization_test([differences]).tolist() == [2 / 8, 6 / 8]


def test_p_values_do_not_depend_on_the_company_or_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(3).normal(0.05, 0.2, (64, 4))
    together = metrics.randomization_test([differences]).tolist()
    assert together == [metrics.randomization_test([differences[:, [i]]]).item() for i in range(4)]
    resize(monkeypatch, swaps=64 * 999)
    assert metrics.randomization_test([differences]).tolist() == together


def test_differences_in_groups_are_tested_as_by_scipy_and_corrected_for_all() -> None:
    random = np.random.default_rng(3)
    differences = random.normal([0.0, 0.4], 0.3, (60, 2))
    groups = [np.arange(60) < 20, np.arange(60) >= 45, np.arange(60) < metrics.SMALLEST - 1]
    found, corrected = metrics.difference_tests(differences, groups)
    assert np.isnan(found[2]).all()
    for row in range(2):
        chosen = differences[groups[row]]
        expected = stats.ttest_1samp(chosen, 0).pvalue
        assert (found[row] >= expected - 1e-12).all()  # or the randomization test's, which is larger
        assert found[row] == pytest.approx(expected, abs=0.02)
    assert corrected[:2].ravel() == pytest.approx(metrics.holm(found[:2].ravel()))
    assert np.isnan(corrected[2]).all()


def test_groups_that_could_not_show_a_difference_are_not_tested() -> None:
    assert metrics.smallest_shown([40], 1) == 6  # 2 / 2^6 is 3%
    assert metrics.smallest_shown([40, 6], 1) == 7  # twice that is 6%, and of the larger group alone 3%
    assert metrics.smallest_shown([40] * 10 + [9], 1) == 9  # 11 · 2 / 2^9 = 4.3%
    assert metrics.smallest_shown([40] * 10 + [8], 1) == 9
    assert metrics.smallest_shown([40] * 10, 10) == 12
    assert metrics.smallest_shown([], 1) == 6


def test_a_group_is_tested_against_the_rest_by_a_studentized_permutation_as_by_scipy() -> None:
    values = np.random.default_rng(4).beta(2, 1, (70, 2))
    values[:25, 0] -= 0.15
    values[:, 1] = 0.5
    inside = np.arange(70) < 25
    (p,) = metrics.compare_with_rest(values, [inside])
    expected = stats.permutation_test(
        (values[inside, 0], values[~inside, 0]),
        lambda a, b, axis: stats.ttest_ind(a, b, axis=axis, equal_var=False).statistic,
        n_resamples=20_000, rng=1, vectorized=True,
    ).pvalue  # fmt: skip
    assert p == pytest.approx([expected, 1.0], abs=0.01)  # a column without spread takes no part
    few, all_but_few = np.arange(70) < 19, np.arange(70) >= 19
    assert np.isnan(metrics.compare_with_rest(values, [few, all_but_few])).all()


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
        (metrics.compare_with_rest(draw(random, numbers)[:, None], groups) < metrics.LEVEL).any()
        for _ in range(300)
    ]
    assert np.mean(marked) <= 0.09  # 5% and three errors of 300 samples
    special = (random.random((114, 1)) < 0.9) & ~groups[1][:, None]
    found = metrics.compare_with_rest(special * 1.0, groups)[:, 0] < metrics.LEVEL
    assert found[1]
