"""How near two runs are: values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.metrics.reproduction import (
    effect_ratio,
    kendall_tau_union,
    rank_biased_overlap,
    root_mean_square_error,
    same_rankings,
)

ORIGINAL = np.array([[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3], [5, 6, -1, -1], [7, -1, -1, -1], [-1] * 4])
AGAIN = np.array([[0, 1, 2, 3], [1, 0, 2, 3], [3, 2, 1, 0], [5, 8, 9, -1], [9, -1, -1, -1], [-1] * 4])


def test_equal_rankings_are_found_whatever_their_width() -> None:
    assert same_rankings(ORIGINAL, AGAIN).tolist() == [True, False, False, False, False, True]
    assert same_rankings(ORIGINAL[5:], np.zeros((1, 0), dtype=np.int64)).all()


def test_kendall_s_tau() -> None:
    # second: 1 of 6 pairs is discordant, (5 - 1) / 6; third: all are; fourth: the ranks that both have, 5 and
    # 6 beside 5 and 8, in the same order; fifth: one rank, another document
    assert kendall_tau_union(ORIGINAL, AGAIN) == pytest.approx([1, 4 / 6, -1, 1, 0, 1])


def test_rank_biased_overlap() -> None:
    # shares of the first i documents in both, of the second: 0, 1, 1, 1; of the third: 0, 0, 2/3, 1; of the
    # fourth: 1, 1/2, 1/3
    weights = np.array([1, 0.5, 0.25, 0.125])
    second, third = (weights @ [0, 1, 1, 1] / weights.sum(), weights @ [0, 0, 2 / 3, 1] / weights.sum())
    fourth = weights[:3] @ [1, 1 / 2, 1 / 3] / weights[:3].sum()
    assert rank_biased_overlap(ORIGINAL, AGAIN, 0.5) == pytest.approx([1, second, third, fourth, 0, 1])


def test_errors_and_effects() -> None:
    ours, theirs = np.array([[0.5, 1.0], [0.1, 0.0]]), np.array([[0.8, 1.0], [0.5, 0.0]])
    assert root_mean_square_error(ours, theirs) == pytest.approx([np.sqrt((0.09 + 0.16) / 2), 0])
    effects = np.array([[0.2, 0.1, 0.1], [0.0, 0.1, -0.1]])
    ratios = effect_ratio(effects, np.array([[0.1, -0.2, 0], [0, 0, 1]]))
    assert ratios[:2] == pytest.approx([0.5, -1])
    assert np.isnan(ratios[2])  # the original has no effect
