from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.metrics import statistics
from pipeline.metrics.statistics import bootstrap_interval, compact_letters, holm, randomization_test, t_test


@pytest.mark.parametrize("n_queries", [5, 43, 400])
def test_agrees_with_scipy(n_queries: int) -> None:
    values = np.random.default_rng(1).beta(0.5, 0.7, size=(n_queries, 3))
    low, high = bootstrap_interval(values)
    theirs = stats.bootstrap((values,), np.mean, axis=0, method="percentile", n_resamples=20_000, rng=2)
    noise = 0.05 * (high - low)
    assert np.all(np.abs(low - theirs.confidence_interval.low) < noise)
    assert np.all(np.abs(high - theirs.confidence_interval.high) < noise)


def test_same_every_time_and_for_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((30, 4))
    together = bootstrap_interval(values)
    alone = [bootstrap_interval(values[:, [column]]) for column in range(4)]
    assert np.allclose(together[0], [low.item() for low, _ in alone], rtol=1e-12)
    assert np.allclose(together[1], [high.item() for _, high in alone], rtol=1e-12)
    assert np.array_equal(together, bootstrap_interval(values))


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((32, 2))
    whole = bootstrap_interval(values)
    monkeypatch.setattr(statistics, "BLOCK_DRAWS", 64)
    assert np.allclose(whole, bootstrap_interval(values), rtol=1e-12)


def test_equal_values_have_no_width() -> None:
    low, high = bootstrap_interval(np.full((7, 1), 0.25))
    assert (low.item(), high.item()) == (0.25, 0.25)


def test_confidence_widens() -> None:
    values = np.random.default_rng(1).random((50, 1))
    (low, high), (lower, higher) = bootstrap_interval(values), bootstrap_interval(values, confidence=0.99)
    assert lower < low < values.mean() < high < higher


def test_no_query_is_refused() -> None:
    with pytest.raises(ValueError, match="no query"):
        bootstrap_interval(np.empty((0, 2)))


def test_no_difference_shows_nothing() -> None:
    none, one = np.zeros((30, 2)), np.full((1, 2), 0.3)
    for differences in (none, one):
        assert t_test(differences).tolist() == [1, 1]
        assert randomization_test(differences).tolist() == [1, 1]


def test_a_constant_difference_is_no_error() -> None:
    constant = np.full((40, 1), 0.25)
    assert t_test(constant).item() == 0
    assert randomization_test(constant).item() == 1 / (1 + statistics.PERMUTATIONS)


def test_t_test_by_hand() -> None:
    # mean 2, deviation 1: t = 2 sqrt(3), and p = 1 - t / sqrt(t^2 + 2) with two degrees of freedom
    assert t_test(np.array([[1.0], [2.0], [3.0]])).item() == pytest.approx(1 - np.sqrt(12 / 14))


@pytest.mark.parametrize("power", [-600, 600])  # whose square is no longer a float
def test_t_test_does_not_depend_on_the_scale(power: int) -> None:
    differences = np.random.default_rng(5).normal(0.05, 0.2, (50, 4))
    assert t_test(np.ldexp(differences, power)).tolist() == t_test(differences).tolist()


def test_rounding_makes_no_way_less_extreme() -> None:
    tenths = np.random.default_rng(4).choice([1.0, 2.0, 3.0, -1.0], (12, 100))  # sums of these are exact
    assert randomization_test(tenths / 10).tolist() == randomization_test(tenths).tolist()


def test_randomization_counts_every_way_of_few_queries() -> None:
    differences = np.array([[1.0, 1.0], [2.0, -2.0], [4.0, 4.0]])
    # 8 ways: sums of 7 and -7 reach 7; sums of 3, 5 and 7 and their negatives reach 3
    assert randomization_test(differences) == pytest.approx([2 / 8, 6 / 8], abs=0.02)


def test_p_values_do_not_depend_on_the_company() -> None:
    differences = np.random.default_rng(3).normal(0.05, 0.2, (50, 4))
    together = randomization_test(differences)
    assert together.tolist() == [randomization_test(differences[:, [i]]).item() for i in range(4)]
    assert together.tolist() == randomization_test(differences).tolist()
    assert np.allclose(t_test(differences), [t_test(differences[:, [i]]).item() for i in range(4)])


def test_blocks_of_swaps_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(3).normal(0.05, 0.2, (64, 3))
    whole = randomization_test(differences)
    monkeypatch.setattr(statistics, "BLOCK_SWAPS", 64 * 999)
    assert np.array_equal(whole, randomization_test(differences))


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.5, times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.5
    assert holm(np.array([0.02, 0.5, 0.01, 0.03])) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm(np.array([0.9, 0.8])).tolist() == [1, 1]
    assert holm(np.array([0.3])).tolist() == [0.3]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_what_his_procedure_rejects(p_values: list[float], level: float) -> None:
    rejected, left = set(), sorted(range(len(p_values)), key=p_values.__getitem__)
    while left and p_values[left[0]] * len(left) < level:
        rejected.add(left.pop(0))
    corrected = holm(np.array(p_values))
    assert {i for i, p in enumerate(corrected) if p < level} == rejected
    assert np.all(corrected >= p_values)


def test_letters_by_hand() -> None:
    assert compact_letters([0.1, 0.3, 0.2], []) == ["a", "a", "a"]
    assert compact_letters([0.1, 0.3, 0.2], [(0, 1)]) == ["b", "a", "ab"]
    assert compact_letters([0.1, 0.3, 0.2], [(0, 1), (0, 2), (1, 2)]) == ["c", "a", "b"]
    assert compact_letters([0.1, 0.3, 0.2], [(0, 1), (0, 2)]) == ["b", "a", "a"]
    assert compact_letters([-i for i in range(28)], combinations(range(28), 2))[25:] == ["z", "a1", "b1"]


@given(st.data())
def test_a_shared_letter_means_no_difference_shown(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    pairs = list(combinations(range(count), 2))
    different = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    means = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    given_letters = compact_letters([float(mean) for mean in means], sorted(different))
    assert all(given_letters)
    assert "a" in given_letters[means.index(max(means))]
    for one, other in pairs:
        shared = set(given_letters[one]) & set(given_letters[other])
        assert bool(shared) == ((one, other) not in different)
