"""Betting bounds: by hand, by brute force, and how often they fail where one stops as soon as one likes."""

import numpy as np
import pytest

from pipeline.studies.gate import Bets, growth, log_capital
from pipeline.studies.shared import STAKES


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
