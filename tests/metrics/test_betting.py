"""Betting bounds: by hand, by brute force, and how often they fail where one stops as soon as one likes."""

from itertools import permutations

import numpy as np
import pytest

from pipeline.metrics import STAKES, Bets, BetsInOrder, growth, log_capital


def test_the_capital_by_hand() -> None:
    """Of the values 0 and 1/2, against a mean of -1/2: each share u makes (1 + u) (1 + 2 u)."""
    expected = np.mean((1 + STAKES) * (1 + 2 * STAKES))
    for values in ([0.0, 0.5], [0.5, 0.0]):
        bets = Bets.of_one(np.array(values))
        assert bets.log_capital(-0.5) == pytest.approx(np.log(expected))
        assert bets.p_value(-0.5) == pytest.approx(1 / expected)
        assert bets.p_value(0.9) == 1
    assert STAKES.mean() == pytest.approx(0.5)  # as of Beta(1/2, 1/2), whose variance is 1/8
    assert STAKES.var() == pytest.approx(1 / 8)
    values = np.random.default_rng(4).uniform(-1, 1, 30)
    capital = log_capital(growth(values, np.linspace(-0.9, 0.9, 50), -1.0))
    assert (np.diff(capital) < 0).all()  # it falls with the mean


def test_no_loss_takes_as_many_queries_as_the_rule_of_three_and_the_price_of_the_shares() -> None:
    assert Bets.of_one(np.zeros(298)).p_value(-0.01) > 0.05  # ln 20 / 0.01
    assert Bets.of_one(np.zeros(430)).p_value(-0.01) < 0.05
    assert 100 * Bets.of_one(np.zeros(100)).times_needed(-0.01, 0.05) == pytest.approx(418, abs=2)


def test_the_bound_is_where_the_capital_reaches_one_over_alpha() -> None:
    values = np.random.default_rng(2).beta(2, 1, 80)
    bets = Bets.of_one(values, 0, 1)
    bound = bets.lower_bound(0.05)
    assert 0.5 < bound < values.mean()
    assert bets.p_value(bound) == pytest.approx(0.05)
    assert Bets.of_one(np.zeros(9), 0, 1).lower_bound(0.05) == 0


@pytest.mark.parametrize(
    ("values", "chances", "low"),
    [
        ([0.0, 0.25, 0.5, 0.75, 1.0], [0.05, 0.1, 0.15, 0.3, 0.4], 0.0),  # as of nDCG
        ([-0.3, -0.1, 0.0, 0.1, 0.3], [0.1, 0.2, 0.4, 0.2, 0.1], -1.0),  # differences
        ([-1.0, 0.0], [0.01, 0.99], -1.0),  # rare losses of everything
    ],
)
def test_bounds_hold_at_any_time_of_stopping(values: list[float], chances: list[float], low: float) -> None:
    """Who looks after every query, and stops when the true mean is excluded, succeeds in 5% at most."""
    random, mean = np.random.default_rng(11), np.dot(values, chances)
    each = np.concatenate([growth(np.array([value]), np.array([mean]), low) for value in values])
    drawn = random.choice(len(values), (400, 300), p=chances)
    excluded = sum(log_capital(np.cumsum(each[rows], axis=0)).max() >= np.log(20) for rows in drawn)
    assert excluded <= 400 * 0.05 + 13  # three errors


def test_of_several_collections_the_least_capital_of_all_ways_to_share_a_mean_counts() -> None:
    random = np.random.default_rng(3)
    strata = [random.normal(0.02, 0.2, 60), random.normal(-0.01, 0.05, 40)]
    weights = np.array([0.3, 0.7])
    bets = Bets(strata, weights, -np.ones(2), np.ones(2))
    means = np.linspace(-0.9995, 1, 4000)
    each = [log_capital(growth(values, means, -1.0)) for values in strata]
    for mean in (-0.2, -0.05):
        other = (mean - weights[0] * means) / weights[1]
        possible = (other > -0.9995) & (other <= 1)
        sums = each[0][possible] + np.interp(other[possible], means, each[1])
        assert bets.log_capital(mean) == pytest.approx(sums.min(), abs=0.01)
    assert bets.p_value(bets.lower_bound(0.05) - 0.005) < 0.05 < bets.p_value(bets.lower_bound(0.05) + 0.005)
    zeros = Bets([np.zeros(50)] * 13, np.full(13, 1 / 13), -np.ones(13), np.ones(13))
    shared_evenly = 13 * Bets.of_one(np.zeros(50)).log_capital(-0.01)
    assert zeros.log_capital(-0.01) == pytest.approx(shared_evenly, abs=1e-3)


VALUES = np.array([0.9, -0.2, -0.3, 0.1, -0.4, -0.1])


@pytest.mark.parametrize(
    "judged", [np.zeros(6), -VALUES, 5 * VALUES + 3], ids=["no judge", "wrong", "of another scale"]
)
def test_in_every_order_of_drawing_few_reach_a_capital_against_the_true_mean(judged: np.ndarray) -> None:
    """Of all 720 orders of six queries at most a share of alpha ever has a capital of 1 / alpha (Ville)."""
    orders = list(map(np.array, permutations(range(6))))
    for above in (True, False):
        best = np.array(
            [
                BetsInOrder(VALUES[rows], -1, 1, judged, rows).log_capital(VALUES.mean(), above)[-1]
                for rows in orders
            ]
        )
        for alpha in (0.8, 0.5, 0.2, 0.05):
            assert (best >= -np.log(alpha)).mean() <= alpha
        assert np.isfinite(best).all()


def test_a_winner_is_seldom_false_however_one_stops_and_a_good_judge_finds_it_sooner() -> None:
    random = np.random.default_rng(11)
    human = random.choice([-0.3, 0.0, 0.3], 1000, p=[0.3, 0.4, 0.3])
    low, high = np.where(human == 0, 0, -0.3), np.where(human == 0, 0, 0.3) + 0.2
    equal, better = human - human.mean(), human + np.where(random.random(1000) < 0.4, 0.2, 0)
    judged = better + random.normal(0, 0.05, 1000)
    wrong, after = 0, {False: [], True: []}
    for number in range(60):
        drawn = random.permutation(1000)[:300]
        wrong += BetsInOrder(equal[drawn], -1, 1, -judged, drawn).decided(0.05)[1] != 0
        for by_judge in (False, True):
            of_all = judged if by_judge else np.zeros(1000)
            bets = BetsInOrder(better[drawn], low, high, of_all, drawn)
            decided, side = bets.decided(0.05)
            assert side >= 0
            after[by_judge].append(decided or 301)
        if number < 5:
            interval = bets.interval(0.05)
            assert interval[0] < better.mean() < interval[1]
    assert wrong <= 0.05 * 60 + 4 * np.sqrt(0.05 * 0.95 * 60)
    assert np.mean(after[True]) < np.mean(after[False])
