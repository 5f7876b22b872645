"""What an approximate ranking loses: overlap by hand, intervals of paired differences."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.metrics.names import parse_measures
from pipeline.metrics.statistics import estimate
from pipeline.search import exact

EXACT = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
FOUND = np.array([[2, 1, 9, 3], [8, 0, -1, -1]])


@pytest.mark.parametrize(
    ("cutoff", "expected"),
    [(1, 0.0), (2, (2 / 2 + 0) / 2), (3, (2 / 3 + 0) / 2), (4, (3 / 4 + 1 / 4) / 2), (9, 0.5)],
)
def test_overlap_is_the_share_of_exact_hits_found(cutoff: int, expected: float) -> None:
    assert exact.overlap(FOUND, EXACT, cutoff) == pytest.approx(expected)


def test_overlap_of_short_rankings_is_of_what_there_is() -> None:
    short = np.array([[3, 1, -1], [2, -1, -1]])
    assert exact.overlap(short, short, 3) == 1
    assert exact.overlap(np.array([[3, -1, -1], [-1, -1, -1]]), short, 3) == pytest.approx((1 / 2 + 0) / 2)


def test_change_is_of_means_and_its_interval_of_pairs() -> None:
    generator = np.random.default_rng(0)
    best = generator.random((200, 2))
    values = best - [0.1, 0]  # one measure loses 0.1 for every query: no interval without a width
    measures = parse_measures("ndcg@2,map")
    made = exact.compare_with_exact(FOUND, EXACT, measures, values, best)
    assert list(made["overlap"]) == ["2", "4"]
    change = made["change"]["ndcg@2"]
    assert change["exact"] == pytest.approx(best[:, 0].mean())
    assert change["difference"] == pytest.approx(-0.1)
    assert made["change"]["map"]["difference"] == 0
    noisy = values + generator.normal(0, 0.1, values.shape)
    _, (low, high) = estimate([noisy - best]).ends
    change = exact.compare_with_exact(FOUND, EXACT, measures, noisy, best)["change"]["map"]
    assert (change["ci_low"], change["ci_high"]) == (low, high)
    assert change["ci_low"] < change["difference"] < change["ci_high"]
