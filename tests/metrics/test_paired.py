"""Bootstrap and randomization tests, and power: by hand, by SciPy, and their error rates."""

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
