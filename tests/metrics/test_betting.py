"""Betting bounds: by hand, by brute force, and how often they fail where one stops as soon as one likes."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from pipeline.metrics.betting import STAKES, Bets, BetsInOrder, growth, log_capital
from pipeline.metrics.statistics import ONE

RARE = "rare losses of everything"


def test_the_capital_by_hand() -> None:
    """Of the values 0 and 1/2, against a mean of -1/2: each share u makes (1 + u) (1 + 2 u)."""
    expected = np.mean((1 + STAKES) * (1 + 2 * STAKES))
    bets = Bets.of_one(np.array([0.0, 0.5]))
    assert bets.log_capital(-0.5) == pytest.approx(np.log(expected))
    assert bets.p_value(-0.5) == pytest.approx(1 / expected)
    assert bets.p_value(0.9) == 1
    assert STAKES.mean() == pytest.approx(0.5)  # as of Beta(1/2, 1/2), whose variance is 1/8
    assert STAKES.var() == pytest.approx(1 / 8)


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


@pytest.mark.parametrize("values", ["nDCG-like", "differences", RARE])
def test_bounds_hold_at_any_time_of_stopping(values: str) -> None:
    """Who looks after every query, and stops when the true mean is excluded, succeeds in 5% at most."""
    random = np.random.default_rng(11)
    draw, mean, low = {
        "nDCG-like": (lambda: random.beta(2, 1, 300), 2 / 3, 0.0),
        "differences": (lambda: np.clip(random.normal(0, 0.1, 300), -1, 1), 0.0, -1.0),
        RARE: (lambda: np.where(random.random(300) < 0.01, -1.0, 0.0), -0.01, -1.0),
    }[values]
    excluded = 0
    for _ in range(400):
        grown = np.cumsum([growth(np.array([value]), np.array([mean]), low)[0] for value in draw()], axis=0)
        excluded += bool(log_capital(grown).max() >= np.log(20))
    assert excluded <= 400 * 0.05 + 13  # three errors


def test_of_several_collections_the_least_capital_of_all_ways_to_share_a_mean_counts() -> None:
    random = np.random.default_rng(3)
    strata = [random.normal(0.02, 0.2, 60), random.normal(-0.01, 0.05, 40)]
    weights = np.array([0.3, 0.7])
    low, high = -np.ones(2), np.ones(2)
    bets = Bets(strata, weights, low, high)
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


def test_the_capital_falls_with_the_mean_and_does_not_depend_on_the_order() -> None:
    values = np.random.default_rng(4).uniform(-1, 1, 30)
    capital = log_capital(growth(values, np.linspace(-0.9, 0.9, 50), -1.0))
    assert (np.diff(capital) < 0).all()
    for part, mean in product((values[::-1], np.sort(values)), (-0.3, 0.2)):
        assert Bets.of_one(part).log_capital(mean) == pytest.approx(
            Bets([values], ONE, -ONE, ONE).log_capital(mean)
        )


@pytest.mark.parametrize("judge", [None, "right", "wrong", "of another scale"])
def test_in_every_order_of_drawing_few_reach_a_capital_against_the_true_mean(judge: str | None) -> None:
    """Of all 720 orders of six queries at most a share of alpha ever has a capital of 1 / alpha (Ville)."""
    values = np.array([0.9, -0.2, -0.3, 0.1, -0.4, -0.1])
    judged = {None: np.zeros(6), "right": values, "wrong": -values, "of another scale": 5 * values + 3}[judge]
    for above in (True, False):
        best = np.array(
            [
                BetsInOrder(values[rows], -1, 1, judged, rows).log_capital(values.mean(), above)[-1]
                for rows in map(np.array, permutations(range(6)))
            ]
        )
        for alpha in (0.8, 0.5, 0.2, 0.05):
            assert (best >= -np.log(alpha)).mean() <= alpha
        assert np.isfinite(best).all()


def test_a_winner_is_seldom_false_however_one_stops_and_a_good_judge_finds_it_sooner() -> None:
    random = np.random.default_rng(11)
    human = random.choice([-0.3, 0.0, 0.3], 1000, p=[0.3, 0.4, 0.3])
    ranges = np.where(human == 0, 0, -0.3), np.where(human == 0, 0, 0.3)
    equal, better = human - human.mean(), human + np.where(random.random(1000) < 0.4, 0.2, 0)
    judged = better + random.normal(0, 0.05, 1000)
    wrong, after = 0, {False: [], True: []}
    for number in range(100):
        drawn = random.permutation(1000)[:300]
        wrong += BetsInOrder(equal[drawn], -1, 1, -judged, drawn).decided(0.05)[1] != 0
        for by_judge in (False, True):
            ends = (ranges[0], ranges[1] + 0.2)
            of_all = judged if by_judge else np.zeros(1000)
            bets = BetsInOrder(better[drawn], *ends, of_all, drawn)
            decided, side = bets.decided(0.05)
            assert side >= 0
            after[by_judge].append(decided or 301)
        if number < 5:
            low, high = bets.interval(0.05)
            assert low < better.mean() < high
    assert wrong <= 0.05 * 100 + 4 * np.sqrt(0.05 * 0.95 * 100)
    assert np.mean(after[True]) < np.mean(after[False])
