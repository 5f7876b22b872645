"""Means over strata, their intervals and tests: cases worked by hand, and the same by NumPy and SciPy."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from pipeline.metrics import (
    estimate,
    holm,
    over_collections,
    pool_draws,
    randomization_test,
    standings,
)


def ends(*arguments: object) -> np.ndarray:
    """The low and the high ends of intervals, float64 [2, columns]; NaN where none is shown."""
    return np.array(estimate(*arguments).ends, dtype=np.float64).T  # type: ignore[arg-type]


def test_the_interval_is_scipy_s() -> None:
    values = np.random.default_rng(1).beta(0.5, 0.7, size=(43, 3))
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert np.allclose(ends([values]), (theirs.low, theirs.high), rtol=1e-12)
    for power in (-900, 900):  # with which squares are no floats
        scaled = estimate([np.ldexp(values, power)])
        assert scaled.p.tolist() == estimate([values]).p.tolist()
        assert np.ldexp(ends([values]), power).tolist() == np.array(scaled.ends).T.tolist()
    with pytest.raises(ValueError, match="no query"):
        ends([np.empty((0, 2))])


def test_an_interval_is_shown_from_five_queries_on() -> None:
    values = np.linspace(0, 1, 43)[:, None]
    for strata in ([values[:5]], [values], [np.full((43, 1), 0.25)], [values[:3], values[3:6]]):
        weights = np.full(len(strata), 1 / len(strata))
        assert estimate(strata, weights).intervals != [None]
    for strata in ([values[:4]], [values[:1]], [values[:1], values[:40]]):
        assert estimate(strata, np.full(len(strata), 1 / len(strata))).intervals == [None]


def test_an_interval_is_fragile_that_reaches_less_than_one_query_can_move_the_mean() -> None:
    """Recalls near 1 say nothing of queries that fail; nor differences of which most are ties, of losses."""
    near_one = np.linspace(0.96, 1, 43)[:, None]
    failing = near_one.copy()
    failing[:3] = 0  # three that do fail say how many there may be
    cases = {0.9: True, 1.1: False}  # of the half width, in parts of the range over n
    for part, fragile in cases.items():
        values = np.resize([-1.0, 1.0], 44)[:, None]
        reach = np.diff(ends([values]), axis=0).item() / 2
        assert estimate([values * part / 44 / reach], low=-1, high=1).fragile == [fragile]
    assert estimate([near_one], low=0, high=1).fragile == [True]
    assert estimate([failing], low=0, high=1).fragile == [False]
    assert estimate([near_one, near_one], np.full(2, 0.5), low=0, high=1).fragile == [True]
    assert estimate([np.ones((43, 1))], low=0, high=1).fragile == [False]  # Wilson's
    assert estimate([np.zeros((43, 1))], low=-1, high=1).fragile == [True]


def test_values_of_0_and_1_have_the_score_interval() -> None:
    for wins, n_queries in ((0, 5), (29, 30), (30, 30), (7, 43)):
        values = (np.arange(n_queries) < wins).astype(float)[:, None]
        expected = stats.binomtest(wins, n_queries).proportion_ci(method="wilson")
        for highest in (1.0, 3.0):
            (found,) = estimate([highest * values], low=0, high=highest).intervals
            assert found == pytest.approx((highest * expected.low, highest * expected.high))
    halves = np.linspace(0, 1, 30)[:, None] > 0.5
    assert estimate([halves - 0.5], low=-1, high=1).ends != estimate([halves * 1.0], low=0, high=1).ends
    strata, weights = [np.ones((30, 1))] * 2, np.array([0.5, 0.5])
    assert estimate(strata, weights, low=0, high=1).ends == [(1, 1)]  # Wilson's is of one collection alone


def test_intervals_stay_within_the_range() -> None:
    def near_one(zeros: int) -> np.ndarray:
        return np.repeat([0, 0.99, 1], [zeros, 4, 26 - zeros])[:, None]

    wide, within = (
        [
            estimate(strata, np.full(len(strata), 1 / len(strata)), **ends).intervals[0]
            for strata in ([near_one(2)], [near_one(1)] * 2)
        ]
        for ends in ({}, {"low": 0, "high": 1})
    )
    for free, bounded in zip(wide, within, strict=True):
        assert free[1] > 1
        assert bounded == (free[0], 1)


def translations(collections: int, queries: int, samples: int) -> list[np.ndarray]:
    """nDCG-like values of the same questions in several languages, float64 [queries, samples] each."""
    random = np.random.default_rng(8)
    difficulty = random.normal(0, 1, (queries, samples))
    return [
        1 / (1 + np.exp(-difficulty - 0.7 * random.normal(0, 1, difficulty.shape)))
        for _ in range(collections)
    ]


def test_macro_intervals_of_translations_hold_the_mean_as_often_as_they_say() -> None:
    """As of 26 languages of one data set, of which they held it in 46%."""
    strata, weights = translations(26, 50, 500), np.full(26, 1 / 26)
    ids = [f"q{number}" for number in range(50)]
    made = estimate(*pool_draws(strata, weights, [ids] * 26), low=0, high=1)
    low, high = np.array(made.ends, dtype=np.float64).T
    assert 0.92 < ((low <= 0.5) & (high >= 0.5)).mean() < 0.98
    some = [values[start:] for start, values in enumerate(strata[:8])]  # each language lacks some
    made = estimate(*pool_draws(some, np.full(8, 1 / 8), [ids[start:] for start in range(8)]), low=0, high=1)
    low, high = np.array(made.ends, dtype=np.float64).T
    assert 0.92 < ((low <= 0.5) & (high >= 0.5)).mean() < 0.98
    differences = [one - other for one, other in zip(strata[:13], strata[13:], strict=True)]
    differences = [each + 0.3 * (strata[0] - strata[1]) for each in differences]
    found = randomization_test(
        *pool_draws([each[:, :200] for each in differences], np.full(13, 1 / 13), [ids] * 13)
    )
    assert (found < 0.05).mean() < 0.05 + 0.046


def test_intervals_and_tests_of_clusters_hold_as_often_as_they_say() -> None:
    """Of 26 questions of each of 40 documents, intervals over questions hold the mean in 34%."""
    random = np.random.default_rng(9)
    sizes = random.integers(1, 27, 40)
    ids = [number for number, size in enumerate(sizes) for _ in range(size)]
    documents = random.normal(0, 1, (3, 40, 500))[:, ids]
    noise = random.normal(0, 0.7, (2, len(ids), 500))
    ours, theirs = 1 / (1 + np.exp(-(documents[0] + 0.5 * documents[1:] + noise)))
    (means,), weights = pool_draws([ours], np.ones(1), [ids], of_means=True)
    assert means.shape == (40, 500)
    assert means.mean(axis=0) == pytest.approx(ours.mean(axis=0))
    low, high = np.array(estimate([means], weights, low=0, high=1).ends, dtype=np.float64).T
    assert 0.91 < ((low <= 0.5) & (high >= 0.5)).mean() < 0.98
    apart = np.array(estimate([ours], low=0, high=1).ends, dtype=np.float64).T
    assert ((apart[0] <= 0.5) & (apart[1] >= 0.5)).mean() < 0.6
    differences = pool_draws([ours - theirs], np.ones(1), [ids])
    assert (estimate(*differences).p < 0.05).mean() < 0.08
    assert (randomization_test(*differences) < 0.05).mean() < 0.08


def test_intervals_over_collections_are_of_student_and_hold_the_mean_of_all_such_collections() -> None:
    random = np.random.default_rng(10)
    centres = random.uniform(0.2, 0.8, (13, 500))
    strata = [random.beta(2 * each, 2 - 2 * each, (40, 500)) for each in centres]
    means = np.stack([values.mean(axis=0) for values in strata])
    low, high = np.array(over_collections(means, 0, 1)[0], dtype=np.float64).T
    assert 0.92 < ((low <= 0.5) & (high >= 0.5)).mean() < 0.98
    expected = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert np.array([low, high]) == pytest.approx(np.array(expected))
    these = np.array(estimate(strata, np.full(13, 1 / 13), low=0, high=1).ends, dtype=np.float64).T
    assert ((these[0] <= 0.5) & (these[1] >= 0.5)).mean() < 0.8  # which is of these collections alone
    assert over_collections(means[:7])[0] == [(None, None)] * 500
    assert over_collections(np.full((9, 1), 0.5))[0] == [(None, None)]


@pytest.mark.parametrize("skewed", [False, True])
def test_intervals_hold_the_mean_as_often_as_they_say(skewed: bool) -> None:
    generator = np.random.default_rng(6)
    values = generator.beta(2, 1.1, (43, 5_000))
    if skewed:  # differences that are ties in nine queries of ten
        values = generator.normal(0.1, 0.3, (200, 5_000)) * (generator.random((200, 5_000)) < 0.1)
    low, high = ends([values])
    mean = 0.01 if skewed else 2 / 3.1
    shown = ~np.isnan(low)
    assert shown.mean() > 0.95
    assert 0.93 < ((low <= mean) & (mean <= high))[shown].mean() < 0.97


@pytest.mark.parametrize("n_queries", [2, 5, 43, 6980])
def test_p_values_are_scipy_s(n_queries: int) -> None:
    """Of two graded measures, of one that is nearly the same, and of a binary one."""
    random = np.random.default_rng(n_queries)
    ours = random.beta(0.5, 0.7, (n_queries, 4))
    theirs = np.clip(ours + random.normal([0.02, 0.1, 0, 0], [0.2, 0.2, 1e-4, 0], ours.shape), 0, 1)
    ours[:, 3], theirs[:, 3] = random.integers(2, size=(2, n_queries))
    ours[0, 3], theirs[0, 3] = 1, 0  # SciPy has no p where nothing differs
    expected = stats.ttest_rel(ours, theirs, axis=0).pvalue
    assert estimate([ours - theirs]).p == pytest.approx(expected, rel=1e-9, abs=1e-9)
    if n_queries > 100:
        return
    expected = stats.permutation_test(
        (ours, theirs), lambda a, b, axis: np.mean(a - b, axis=axis), permutation_type="samples",
        vectorized=True, n_resamples=20_000, rng=1,
    ).pvalue  # fmt: skip
    found = randomization_test([ours - theirs])
    assert found == pytest.approx(expected, abs=1e-12 if n_queries < 14 else 0.02)  # exact where few


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.sampled_from([0.01, 0.05, 0.2]))
def test_holm_rejects_what_his_procedure_rejects(p_values: list[float], level: float) -> None:
    rejected, left = set(), sorted(range(len(p_values)), key=p_values.__getitem__)
    while left and p_values[left[0]] * len(left) < level:
        rejected.add(left.pop(0))
    corrected = holm(np.array(p_values))
    assert {i for i, p in enumerate(corrected) if p < level} == rejected
    assert np.all(corrected >= p_values)


def test_letters_and_ranks_by_hand() -> None:
    assert standings([0.1, 0.3, 0.2], [(1, 0)]) == (["b", "a", "ab"], [(2, 3), (1, 2), (1, 3)])
    assert standings([0.3, 0.1, 0.2], [(0, 1), (0, 2), (2, 1)]) == (["a", "c", "b"], [(1, 1), (3, 3), (2, 2)])
    assert standings([-i for i in range(28)], combinations(range(28), 2))[0][25:] == ["z", "a1", "b1"]


@given(st.data())
def test_a_shared_letter_means_no_difference_shown(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 7))
    pairs = list(combinations(range(count), 2))
    better = data.draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    means = data.draw(st.lists(st.floats(0, 9), min_size=count, max_size=count))
    letters, _ = standings(means, sorted(better))
    assert all(letters)
    assert "a" in letters[means.index(max(means))]
    for one, other in pairs:
        assert bool(set(letters[one]) & set(letters[other])) == ((one, other) not in better)


random = np.random.default_rng(7)
STRATA = [random.beta(2, 1, (queries, 3)) for queries in (40, 25, 90)]


def test_ties_may_hide_half_a_value_more() -> None:
    """Of 40 equal values half a one may differ, by the range of the others, 0.5: 0.5 · (0.5 / 40)² / 4."""
    spread, tied = np.linspace(0, 0.5, 90)[:, None], np.full((40, 1), 0.3)
    weights = np.array([0.5, 0.5])
    hidden = 0.5 * (0.5 / 40) ** 2 / 4
    known = spread.var(ddof=1) / 90 / 4
    freedom = (known + hidden) ** 2 / (known**2 / 89 + hidden**2 / 39)
    low, high = ends([spread, tied], weights)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, freedom) * (known + hidden) ** 0.5)
    few = tied.copy()
    few[:3] = 0.4  # 3 values differ: they say how much it is
    made = estimate([spread, few], weights)
    assert made.wide_errors == pytest.approx(made.errors)


def test_a_randomization_within_collections_counts_every_way_of_few_queries() -> None:
    strata = [np.array([[0.4], [0.1], [0.3], [-0.1]]), np.array([[0.2], [0.5], [0.1]])]
    weights = np.array([0.5, 0.5])
    flat = np.concatenate([values[:, 0] * w / len(values) for values, w in zip(strata, weights, strict=True)])
    sums = [abs(float(np.dot(signs, flat))) for signs in product((-1, 1), repeat=7)]
    expected = np.mean([each >= abs(flat.sum()) - 1e-12 for each in sums])
    assert randomization_test(strata, weights) == pytest.approx([expected], abs=1e-12)


def test_extreme_columns() -> None:
    equal, one = np.zeros((30, 1)), np.full((30, 1), 0.25)
    assert estimate([equal, equal], np.array([0.5, 0.5])).p == [1]
    assert estimate([one, one], np.array([0.5, 0.5])).p == [0]
    for nothing in (np.zeros((30, 2)), np.full((1, 2), 0.3)):
        assert estimate([nothing]).p.tolist() == [1, 1]
    assert estimate([STRATA[0]], np.ones(1)).freedom == pytest.approx([39] * 3)
    assert estimate([one, one[:1]], np.array([0.5, 0.5])).p == [1]  # its spread is not known
