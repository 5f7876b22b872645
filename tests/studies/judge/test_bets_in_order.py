"""Bets on labels in the order of drawing: how often they fail where one stops as soon as one likes."""

from itertools import permutations

import numpy as np
import pytest

from pipeline.studies.judge import BetsInOrder

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


def test_it_holds_where_queries_are_drawn_in_proportion_to_weights() -> None:
    orders, weights = list(map(np.array, permutations(range(6)))), np.array([3.0, 1, 1, 0.5, 2, 0.3])
    left = np.array([np.cumsum(weights[rows][::-1])[::-1] for rows in orders])
    chances = np.array([(weights[rows] / rest).prod() for rows, rest in zip(orders, left, strict=True)])
    assert chances.sum() == pytest.approx(1)
    low, high = VALUES - 0.1, VALUES + 0.2
    for above, judged in ((True, -VALUES), (False, VALUES**2)):
        bets = [BetsInOrder(VALUES[rows], low, high, judged, rows, weights) for rows in orders]
        best = np.array([each.log_capital(VALUES.mean(), above)[-1] for each in bets])
        for alpha in (0.8, 0.5, 0.2, 0.05):
            assert chances[best >= -np.log(alpha)].sum() <= alpha


def test_a_winner_is_seldom_false_however_one_stops_and_a_good_judge_finds_it_sooner() -> None:
    random = np.random.default_rng(11)
    human = random.choice([-0.3, 0.0, 0.3], 1000, p=[0.3, 0.4, 0.3])
    low, high = np.where(human == 0, 0, -0.3), np.where(human == 0, 0, 0.3) + 0.2
    equal, better = human - human.mean(), human + np.where(random.random(1000) < 0.4, 0.2, 0)
    judged = better + random.normal(0, 0.05, 1000)
    wrong, after = 0, {False: [], True: []}
    for _ in range(60):
        drawn = random.permutation(1000)[:300]
        wrong += BetsInOrder(equal[drawn], -1, 1, -judged, drawn).decided(0.05)[1] != 0
        for by_judge in (False, True):
            of_all = judged if by_judge else np.zeros(1000)
            bets = BetsInOrder(better[drawn], low, high, of_all, drawn)
            decided, side = bets.decided(0.05)
            assert side >= 0
            after[by_judge].append(decided or 301)
    assert wrong <= 0.05 * 60 + 4 * np.sqrt(0.05 * 0.95 * 60)
    assert np.mean(after[True]) < np.mean(after[False])
