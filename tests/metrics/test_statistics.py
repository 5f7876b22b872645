from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.core.table import NO_INTERVAL
from pipeline.metrics.statistics import (
    MIN_OTHERS,
    MIN_QUERIES,
    benjamini_hochberg,
    compact_letters,
    holm,
    mean_interval,
    shown_intervals,
    t_test,
)


def test_the_interval_is_scipy_s() -> None:
    values = np.random.default_rng(1).beta(0.5, 0.7, size=(43, 3))
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert np.allclose(mean_interval(values), (theirs.low, theirs.high), rtol=1e-12)
    assert (
        np.ldexp(mean_interval(values), 900).tolist()
        == np.array(mean_interval(np.ldexp(values, 900))).tolist()
    )  # whose squares are no floats


def test_confidence_widens() -> None:
    values = np.random.default_rng(1).random((50, 1))
    (low, high), (lower, higher) = mean_interval(values), mean_interval(values, confidence=0.99)
    assert lower < low < values.mean() < high < higher


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.25] * 43, False),  # an interval without width would claim certainty
        ([0.5], False),
        (list(np.linspace(0, 1, MIN_QUERIES - 1)), False),
        (list(np.linspace(0, 1, MIN_QUERIES)), True),
        ([1.0] * 39 + [0.0, 0.1, 0.2, 0.3], False),
        ([1.0] * 38 + [0.0, 0.1, 0.2, 0.3, 0.4], True),
        ([0.0] * 38 + [-1.0, -0.5, 0.1, 0.2, 0.4], True),
        ([0.0] * 39 + [-1.0, -0.5, 0.2, 0.4], False),
    ],
)
def test_no_interval_without_enough_queries_or_values(values: list[float], shown: bool) -> None:
    (interval,) = shown_intervals(np.array(values)[:, None])
    assert (interval is not None) == shown
    assert f"{MIN_QUERIES} queries, or where fewer than {MIN_OTHERS} " in NO_INTERVAL


@pytest.mark.parametrize("skewed", [False, True])
def test_intervals_hold_the_mean_as_often_as_they_say(skewed: bool) -> None:
    generator = np.random.default_rng(6)
    values = generator.beta(2, 1.1, (43, 20_000))
    if skewed:  # differences that are ties in nine queries of ten
        values = generator.normal(0.1, 0.3, (200, 20_000)) * (generator.random((200, 20_000)) < 0.1)
    low, high = mean_interval(values)
    mean = 0.01 if skewed else 2 / 3.1
    shown = ~np.isnan(low)
    assert shown.mean() > 0.95
    assert 0.93 < ((low <= mean) & (mean <= high))[shown].mean() < 0.97


def test_no_query_is_refused() -> None:
    with pytest.raises(ValueError, match="no query"):
        mean_interval(np.empty((0, 2)))


def test_no_difference_shows_nothing() -> None:
    none, one = np.zeros((30, 2)), np.full((1, 2), 0.3)
    for differences in (none, one):
        assert t_test(differences).tolist() == [1, 1]


def test_t_test_by_hand() -> None:
    # mean 2, deviation 1: t = 2 sqrt(3), and p = 1 - t / sqrt(t^2 + 2) with two degrees of freedom
    assert t_test(np.array([[1.0], [2.0], [3.0]])).item() == pytest.approx(1 - np.sqrt(12 / 14))


@pytest.mark.parametrize("power", [-600, 600])  # whose square is no longer a float
def test_t_test_does_not_depend_on_the_scale(power: int) -> None:
    differences = np.random.default_rng(5).normal(0.05, 0.2, (50, 4))
    assert t_test(np.ldexp(differences, power)).tolist() == t_test(differences).tolist()


def test_holm_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.5, times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.5
    assert holm(np.array([0.02, 0.5, 0.01, 0.03])) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm(np.array([0.9, 0.8])).tolist() == [1, 1]
    assert holm(np.array([0.3])).tolist() == [0.3]


def test_benjamini_and_hochberg_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.5, times 4/1, 4/2, 4/3, 1: 0.04, 0.04, 0.04, 0.5
    assert benjamini_hochberg(np.array([0.02, 0.5, 0.01, 0.03])) == pytest.approx([0.04, 0.5, 0.04, 0.04])
    p_values = np.random.default_rng(2).random(30) ** 3
    assert benjamini_hochberg(p_values) == pytest.approx(stats.false_discovery_control(p_values))


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
