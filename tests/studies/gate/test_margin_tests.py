"""Tests against a margin: by SciPy, and their error rates where losses are rare."""

import numpy as np
import pytest
from inside import resize
from scipy import stats

from pipeline.studies.gate import noninferiority, with_one_more


def p_values(differences: np.ndarray, margin: float = 0.01) -> tuple[np.ndarray, np.ndarray]:
    return noninferiority([differences], np.full(differences.shape[1], margin))


def test_is_the_stricter_of_t_test_and_bootstrap() -> None:
    differences = np.random.default_rng(1).normal(0.01, 0.05, (150, 3))
    for found, side in zip(p_values(differences), ("greater", "less"), strict=True):
        by_t = stats.ttest_1samp(differences, -0.01, alternative=side).pvalue
        assert np.all(found >= by_t - 1e-12)
        assert found == pytest.approx(by_t, abs=0.02)  # values are symmetric, so both nearly agree
    few = np.zeros((43, 1))
    few[:5, 0] = 0.001, -0.002, 0.001, 0.003, -0.001  # too few to resample
    assert p_values(few)[0] == pytest.approx(stats.ttest_1samp(few, -0.01, alternative="greater").pvalue)


def seldom(queries: int, share: float, loss: float, deviation: float) -> np.ndarray:
    """Differences of which few lose much and the others gain a little; worse by 0.01 on average."""
    generator = np.random.default_rng(queries)
    lost = generator.random((queries, 2000)) < share
    others = generator.normal((share * loss - 0.01) / (1 - share), deviation, lost.shape)
    return np.where(lost, -loss, others)


def by_rates(queries: int, wins: float, samples: int) -> np.ndarray:
    """Differences of a binary measure with one loss in a hundred more than wins."""
    drawn = np.random.default_rng(queries).random((queries, samples))
    return np.where(drawn < wins, 1.0, np.where(drawn < 2 * wins + 0.01, -1.0, 0.0))


def with_ties(samples: int, deviation: float) -> np.ndarray:
    """As between precisions of one model."""
    generator = np.random.default_rng(3)
    same = generator.random((43, samples)) < 0.4
    return np.where(same, 0, generator.normal(-0.01 / 0.6, deviation, (43, samples)))


LITTLE = np.random.default_rng(2).normal(-0.018, 0.045, 42)
CARRIED = np.append(LITTLE, -0.58)
"""One query carries the loss, as of recall@100 of two systems on DL 2019."""
AT_THE_MARGIN: dict[str, tuple[float, np.ndarray]] = {
    "wins of 43": (0.01, by_rates(43, 0.1, 2000)),
    "many ties": (0.01, with_ties(4000, 0.05)),
}


@pytest.mark.parametrize("case", AT_THE_MARGIN)
def test_what_is_worse_by_the_margin_passes_in_at_most_one_of_twenty(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resize(monkeypatch, resamples=500)
    margin, differences = AT_THE_MARGIN[case]
    most = 0.05 + 3 * (0.05 * 0.95 / differences.shape[1]) ** 0.5 + 0.01
    assert (p_values(differences, margin)[0] < 0.05).mean() <= most
    assert (p_values(-differences, -margin)[1] < 0.05).mean() <= most
    half = len(differences) // 2
    halves, margins = [differences[:half], differences[half:]], np.full(differences.shape[1], margin)
    assert (noninferiority(halves, margins, np.array([0.5, 0.5]))[0] < 0.05).mean() <= most


def test_a_pass_on_which_a_rare_loss_would_tell_is_fragile(monkeypatch: pytest.MonkeyPatch) -> None:
    resize(monkeypatch, resamples=1000)
    carried = np.random.default_rng(3).choice(CARRIED, (43, 500))
    for differences, margin in (
        (seldom(114, 0.01, 1, 0.001), 0.01),
        (seldom(43, 0.05, 0.9, 0.01), 0.01),
        (carried, -CARRIED.mean()),
    ):
        passes = p_values(differences, margin)[0] < 0.05
        undone = with_one_more([differences], np.full(differences.shape[1], margin), ONE, 1.0)[0] >= 0.05
        assert passes.mean() > 0.1  # a loss that is in none of the queries
        assert (passes & ~undone).mean() <= 0.09
        gained = with_one_more([-differences], np.full(differences.shape[1], -margin), ONE, 1.0)[1]
        assert np.array_equal(gained >= 0.05, undone)  # of fails by rare gains the same holds
    assert with_one_more([np.zeros((300, 1))], MARGIN, ONE, 1.0)[0] < 0.05
    assert with_one_more([np.zeros((260, 1))], MARGIN, ONE, 1.0)[0] >= 0.05


MARGIN, ONE = np.full(1, 0.01), np.ones(1)


def test_no_difference_at_all_is_not_worse_and_one_at_the_margin_is_undecided() -> None:
    same, at_margin, one = np.zeros((300, 1)), np.full((43, 1), -0.01), np.zeros((1, 1))
    assert [p.item() for p in p_values(same)] == [0, 1]
    assert [p.item() for p in p_values(same, 0)] == [0, 1]
    assert [p.item() < 0.05 for p in p_values(at_margin)] == [False, False]
    assert [p.item() for p in p_values(one)] == [1, 1]
    strata = [np.full((40, 1), 0.1), np.full((1, 1), 0.1)]  # one query of a collection shows nothing
    found = noninferiority(strata, np.array([0.01]), np.array([0.5, 0.5]))
    assert [p.tolist() for p in found] == [[1], [1]]
