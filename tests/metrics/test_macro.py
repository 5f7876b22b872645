"""Macro means: cases worked by hand, and the same by plain NumPy and SciPy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from pipeline.metrics import macro as macros
from pipeline.metrics.macro import (
    macro,
    macro_decides,
    macro_intervals,
    macro_shown,
    macro_t_test,
    weights_of,
)
from pipeline.metrics.randomization import randomization_test

random = np.random.default_rng(7)
STRATA = [random.beta(2, 1, (queries, 3)) for queries in (40, 25, 90)]


def test_collections_count_alike_and_a_group_counts_as_one() -> None:
    assert weights_of([None, None]).tolist() == [0.5, 0.5]
    assert weights_of([None, "cqa", "cqa", None]) == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 3])


def test_a_macro_mean_by_hand() -> None:
    """Means 2 and 6; variances of the values 1 and 4, of the means 1/3 and 4/2; M = (2 + 6) / 2."""
    strata = [np.array([[1.0], [2.0], [3.0]]), np.array([[6 - 2**0.5], [6 + 2**0.5]])]
    made = macro(strata, np.array([0.5, 0.5]))
    assert made.means == pytest.approx([4])
    shares = np.array([1 / 3, 4 / 2]) / 4
    assert made.errors == pytest.approx([shares.sum() ** 0.5])
    assert made.freedom == pytest.approx([shares.sum() ** 2 / (shares[0] ** 2 / 2 + shares[1] ** 2 / 1)])


def test_of_one_collection_it_is_the_t_test_of_one_sample() -> None:
    values = STRATA[0] - 0.6
    made = macro([values], np.ones(1))
    assert made.freedom == pytest.approx([39] * 3)
    assert macro_t_test([values], np.ones(1)) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-12)


def test_of_two_collections_the_t_test_is_welch_s() -> None:
    """M = (m1 + m2) / 2 is 0 just where m1 = -m2, which Welch's test of two samples tests."""
    one, two = STRATA[0] - 0.7, STRATA[1] - 0.65
    expected = stats.ttest_ind(one, -two, equal_var=False).pvalue
    assert macro_t_test([one, two], np.array([0.5, 0.5])) == pytest.approx(expected, abs=1e-12)


def test_intervals_are_those_of_plain_numpy() -> None:
    weights = np.array([0.5, 0.2, 0.3])
    low, high = macro_intervals(STRATA, weights)
    variances = np.array(
        [(w**2 * v.var(axis=0, ddof=1) / len(v)) for w, v in zip(weights, STRATA, strict=True)]
    )
    below = (variances**2 / np.array([[39], [24], [89]])).sum(axis=0)
    errors = variances.sum(axis=0) ** 0.5
    reach = stats.t.ppf(0.975, variances.sum(axis=0) ** 2 / below) * errors
    means = sum(w * v.mean(axis=0) for w, v in zip(weights, STRATA, strict=True))
    assert low == pytest.approx(means - reach, abs=1e-12)
    assert high == pytest.approx(means + reach, abs=1e-12)
    drawn = macros.resampled_macro(STRATA, weights)
    assert drawn.std(axis=0) == pytest.approx(errors, rel=0.03)  # n - 1 draws: not too small by (n - 1) / n


def test_ties_may_hide_half_a_value_more() -> None:
    """Of 40 equal values half a one may differ, by the range of the others, 0.5: 0.5 · (0.5 / 40)² / 4."""
    spread, tied = np.linspace(0, 0.5, 90)[:, None], np.full((40, 1), 0.3)
    weights = np.array([0.5, 0.5])
    hidden = 0.5 * (0.5 / 40) ** 2 / 4
    known = spread.var(ddof=1) / 90 / 4
    freedom = (known + hidden) ** 2 / (known**2 / 89 + hidden**2 / 39)
    low, high = macro_intervals([spread, tied], weights)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, freedom) * (known + hidden) ** 0.5)
    few = tied.copy()
    few[:3] = 0.4  # 3 values differ: they say how much it is
    assert macro([spread, few], weights, 0.5).errors == pytest.approx(macro([spread, few], weights).errors)


def test_intervals_hold_the_mean_as_often_as_they_say_with_many_ties() -> None:
    """Differences that are 0 in nine queries of ten, in collections of 43, 114 and 300 queries."""
    generator = np.random.default_rng(11)
    strata = [
        np.where(generator.random((size, 2000)) < 0.1, generator.normal(0.1, 0.3, (size, 2000)), 0)
        for size in (43, 114, 300)
    ]
    weights = weights_of([None] * 3)
    low, high = macro_intervals(strata, weights)
    shown = macro_shown(strata, weights)
    assert shown.mean() > 0.99
    assert 0.93 < ((low <= 0.01) & (high >= 0.01))[shown].mean() < 0.975


def test_blocks_of_resamples_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = macros.resampled_macro(STRATA[:1], np.ones(1))
    monkeypatch.setattr(macros, "BLOCK_DRAWS", 40 * 999)
    assert macros.resampled_macro(STRATA[:1], np.ones(1)) == pytest.approx(whole, abs=1e-12)


def test_means_of_many_queries_are_drawn_as_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    strata = [np.column_stack([STRATA[2], STRATA[2][:, 0]])]  # one column twice
    whole = macros.resampled_macro(strata, np.ones(1))
    monkeypatch.setattr(macros, "MOST_DRAWN", 89)
    normal = macros.resampled_macro(strata, np.ones(1))
    error = whole.std(axis=0)
    assert normal.mean(axis=0) == pytest.approx(whole.mean(axis=0), abs=0.05 * error.max())
    assert np.cov(normal.T) == pytest.approx(np.cov(whole.T), abs=0.06 * error.max() ** 2)
    for tail in (0.025, 0.975):
        there, here = np.quantile(whole, tail, axis=0), np.quantile(normal, tail, axis=0)
        assert (np.abs(there - here) < 0.15 * error).all()
    assert normal[:, 3] == pytest.approx(normal[:, 0], abs=1e-7)


def test_a_randomization_within_collections_counts_every_way_of_few_queries() -> None:
    strata = [np.array([[0.4], [0.1], [0.3], [-0.1]]), np.array([[0.2], [0.5], [0.1]])]
    weights = np.array([0.5, 0.5])
    flat = np.concatenate([values[:, 0] * w / len(values) for values, w in zip(strata, weights, strict=True)])
    sums = [abs(float(np.dot(signs, flat))) for signs in product((-1, 1), repeat=7)]
    expected = np.mean([each >= abs(flat.sum()) - 1e-12 for each in sums])
    assert randomization_test(macros.weighted_values(strata, weights)) == pytest.approx([expected], abs=1e-12)


def test_no_interval_where_few_queries_decide() -> None:
    weights = np.array([0.5, 0.5])
    tied = np.zeros((40, 3))
    assert macro_shown(STRATA, weights_of([None] * 3)).all()
    assert not macro_shown([STRATA[0], STRATA[1][:2]], weights).any()  # 2 queries count half
    assert not macro_shown([STRATA[0], STRATA[1][:1]], weights).any()
    assert not macro_shown([tied, tied], weights).any()
    assert not macro_shown([STRATA[2], tied[:12]], weights).any()  # ties of 12 queries can hide much
    assert macro_shown([STRATA[2], tied], weights).all()
    assert not macro_decides([STRATA[2], tied], weights).any()  # a gate demands more
    assert macro_decides([STRATA[2], np.zeros((400, 3))], weights).all()  # ties of 400 queries hide little
    assert np.isnan(macro_intervals([STRATA[0], STRATA[1][:1]], weights)[0]).all()


def test_extreme_columns() -> None:
    equal, one = np.zeros((30, 1)), np.full((30, 1), 0.25)
    assert macro_t_test([equal, equal], np.array([0.5, 0.5])) == [1]
    assert macro_t_test([one, one], np.array([0.5, 0.5])) == [0]
    assert macro_t_test([one, one[:1]], np.array([0.5, 0.5])) == [1]  # its spread is not known
    tiny = [values * 1e-200 for values in STRATA]
    weights = weights_of([None] * 3)
    assert macro_t_test(tiny, weights) == pytest.approx(macro_t_test(STRATA, weights))
    assert (macro(tiny, weights).errors > 0).all()
