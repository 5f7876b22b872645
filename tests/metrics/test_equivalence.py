"""Equivalence, Wilcoxon's test and intervals of ranks: by hand, by SciPy, and how often they err."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from pipeline.metrics import noninferiority
from pipeline.metrics.equivalence import equivalence, macro_wilcoxon, rank_intervals, wilcoxon
from pipeline.results.correction import Correction
from pipeline.results.pairs import MANY, Pair, compare_pairs, many_queries_notes


def test_equivalence_is_the_larger_of_two_one_sided_tests() -> None:
    differences = np.random.default_rng(1).normal([0.0, 0.008, -0.03], 0.03, (60, 3))
    above = stats.ttest_1samp(differences, -0.01, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, 0.01, alternative="less").pvalue
    found = equivalence(differences, 0.01)
    assert np.all(found >= np.maximum(above, below) - 1e-12)  # or the bootstrap's, which is near
    assert found == pytest.approx(np.maximum(above, below), abs=0.02)
    assert equivalence(-differences, 0.01) == pytest.approx(found, abs=0.02)
    same, apart = np.zeros((30, 1)), np.full((30, 1), 0.02)
    assert (equivalence(same, 0.01).item() < 0.05, equivalence(apart, 0.01).item() > 0.9) == (True, True)


def test_what_differs_by_the_margin_is_equivalent_in_at_most_one_of_twenty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noninferiority, "RESAMPLES", 500)
    generator = np.random.default_rng(3)
    same = generator.random((43, 3000)) < 0.4  # ties, as between precisions of one model
    for side in (-1, 1):
        differences = np.where(same, 0, generator.normal(side * 0.01 / 0.6, 0.02, (43, 3000)))
        assert (equivalence(differences, 0.01) < 0.05).mean() <= 0.06


def test_wilcoxon_is_scipy_s_and_by_hand() -> None:
    # ranks 1 to 5, of which 1 is of the negative one: sums 14 and 1; of 32 ways, 4 are as extreme
    assert wilcoxon(np.array([[-0.1], [0.2], [0.3], [0.4], [0.5]])).item() == 4 / 32
    drawn = np.random.default_rng(2).normal(0.1, 1, (200, 3))
    assert wilcoxon(drawn) == pytest.approx(stats.wilcoxon(drawn).pvalue)
    with_ties = np.vstack([drawn, np.zeros((50, 3))])
    assert wilcoxon(with_ties) == pytest.approx(wilcoxon(drawn))
    assert wilcoxon(np.zeros((30, 2))).tolist() == [1, 1]
    one = np.ones(1)
    assert macro_wilcoxon([with_ties], one) == pytest.approx(stats.wilcoxon(drawn, method="approx").pvalue)
    assert macro_wilcoxon([np.zeros((30, 2)), np.zeros((9, 2))], np.array([0.5, 0.5])).tolist() == [1, 1]
    few = np.random.default_rng(6).choice([-0.5, 0.25, 0.5, 0.75], (9, 6))  # with equal differences
    for count in (9, 5, 1):
        assert wilcoxon(few[:count]) == pytest.approx(stats.wilcoxon(few[:count]).pvalue)


def test_ranks_by_hand() -> None:
    assert rank_intervals(3, []) == [(1, 3)] * 3
    assert rank_intervals(3, [(0, 1), (0, 2), (2, 1)]) == [(1, 1), (3, 3), (2, 2)]
    assert rank_intervals(4, [(3, 0), (3, 1)]) == [(2, 4), (2, 4), (1, 4), (1, 2)]


def pairs_of(values: np.ndarray, margin: float | None = None) -> list[Pair]:  # type: ignore[type-arg]
    names = [str(run) for run in range(values.shape[1])]
    return compare_pairs(names, values, list(combinations(range(len(names)), 2)), Correction.both, margin)


def test_equivalence_of_pairs_is_corrected_and_takes_queries() -> None:
    generator = np.random.default_rng(4)
    values = generator.random((60, 1)) + generator.normal(0, 0.01, (60, 3)) + [0, 0, 0.1]
    pairs = pairs_of(values, 0.02)
    alone = [equivalence((values[:, a] - values[:, b])[:, None], 0.02).item() for a, b in ((0, 1), (0, 2))]
    assert [pair.equivalent for pair in pairs] == [True, False, False]
    assert pairs[0].p_equivalent == pytest.approx(3 * alone[0])
    assert [pair.equivalent for pair in pairs_of(values[:20], 0.02)] == [False] * 3
    assert pairs_of(values)[0].p_equivalent is None


def test_wilcoxon_is_not_gone_by_where_thousands_of_queries_are_skewed() -> None:
    """Equal means and other shapes: often a little better, rarely much worse."""
    rarely = np.random.default_rng(5).permutation(MANY) < MANY // 10
    values = np.stack([np.where(rarely, 0.1, 1), np.where(rarely, 1, 0.9)], axis=1)
    (pair,) = pairs_of(values)
    assert pair.p_ttest > 0.99
    assert pair.p_wilcoxon is not None
    assert pair.p_wilcoxon < 1e-6
    assert "0 - 1: Wilcoxon's test has p below 0.05" in next(many_queries_notes([pair], MANY))
    assert not list(many_queries_notes([pair], MANY - 1))
