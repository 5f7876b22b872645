"""Bootstrap tests and power: by hand, by SciPy, their error rate, and the power of a number of queries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline.core.records import Float64
from pipeline.metrics import resampling
from pipeline.metrics.power import solve_power
from pipeline.metrics.resampling import equivalence, noninferiority


def p_values(differences: Float64, margin: float = 0.01) -> tuple[Float64, Float64]:
    return noninferiority([differences], np.full(differences.shape[1], margin))


def p_with_unseen(differences: Float64, margin: float = 0.01) -> Float64:
    """By t, with a quarter of a query more that lost everything."""
    n = len(differences)
    error = np.sqrt(differences.var(axis=0, ddof=1) / n + 0.25 / n**2)
    return np.asarray(stats.t.sf((differences.mean(axis=0) + margin - 0.25 / n) / error, n - 1))


def test_is_the_stricter_of_t_tests_and_the_bootstrap() -> None:
    differences = np.random.default_rng(1).normal(0.004, 0.05, (43, 3))
    not_worse, worse = p_values(differences)
    by_t = stats.ttest_1samp(differences, -0.01, alternative="less").pvalue
    for found, expected in ((not_worse, p_with_unseen(differences)), (worse, by_t)):
        assert np.all(found >= expected - 1e-12)
        assert found == pytest.approx(expected, abs=0.02)  # values are symmetric, so both nearly agree
    larger = np.maximum(p_with_unseen(differences), p_with_unseen(-differences))
    found = equivalence([differences], 0.01)
    assert np.all(found >= larger - 1e-12)
    assert found == pytest.approx(larger, abs=0.02)


def by_rates(queries: int, wins: float, samples: int) -> Float64:
    """Differences of a binary measure with one loss in a hundred more than wins."""
    drawn = np.random.default_rng(queries).random((queries, samples))
    return np.where(drawn < wins, 1.0, np.where(drawn < 2 * wins + 0.01, -1.0, 0.0))


def with_ties(samples: int, deviation: float) -> Float64:
    """As between precisions of one model."""
    generator = np.random.default_rng(3)
    same = generator.random((43, samples)) < 0.4
    return np.where(same, 0, generator.normal(-0.01 / 0.6, deviation, (43, samples)))


LITTLE = np.random.default_rng(2).normal(-0.018, 0.045, 42)
CARRIED = np.append(LITTLE, -0.58)
"""One query carries the loss, as of recall@100 of two systems on DL 2019: 15% passed by the spread alone."""
AT_THE_MARGIN: dict[str, tuple[float, Float64]] = {
    # of a binary measure with rare losses 45, 32 and 12 in a hundred passed by their spread alone
    "no win of 25": (0.01, by_rates(25, 0, 2000)),
    "wins of 43": (0.01, by_rates(43, 0.1, 2000)),
    "a win of 114": (0.01, by_rates(114, 0.01, 2000)),
    "no win of 300": (0.01, by_rates(300, 0, 2000)),
    "many ties": (0.01, with_ties(4000, 0.05)),
    "many ties, little spread": (0.01, with_ties(3000, 0.02)),
    "one query carries the loss": (
        float(-CARRIED.mean()),
        np.random.default_rng(3).choice(CARRIED, (43, 2000)),
    ),
}


@pytest.mark.parametrize("case", AT_THE_MARGIN)
def test_what_is_worse_by_the_margin_passes_in_at_most_one_of_twenty(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "RESAMPLES", 500)
    margin, differences = AT_THE_MARGIN[case]
    most = 0.05 + 3 * (0.05 * 0.95 / differences.shape[1]) ** 0.5 + 0.01
    assert (p_values(differences, margin)[0] < 0.05).mean() <= most
    assert (p_values(-differences, margin)[1] < 0.05).mean() <= most
    for sign in (1, -1):
        assert (equivalence([sign * differences], margin) < 0.05).mean() <= most
    half = len(differences) // 2
    halves, margins = [differences[:half], differences[half:]], np.full(differences.shape[1], margin)
    assert (noninferiority(halves, margins, np.array([0.5, 0.5]))[0] < 0.05).mean() <= most


def test_no_difference_at_all_is_not_worse_and_one_at_the_margin_is_undecided() -> None:
    same, at_margin, one = np.zeros((300, 1)), np.full((43, 1), -0.01), np.zeros((1, 1))
    assert [p.item() for p in p_values(same)] == [pytest.approx(np.exp(-3)), 1]  # the rule of three
    assert p_values(same[:43])[0].item() == pytest.approx(np.exp(-0.43))  # where 43 queries show nothing
    assert [p.item() < 0.05 for p in p_values(at_margin)] == [False, False]
    assert [p.item() for p in p_values(one)] == [1, 1]
    apart = np.full((300, 1), 0.02)
    assert equivalence([same], 0.01).item() < 0.05 < 0.9 < equivalence([apart], 0.01).item()
    strata = [np.full((40, 1), 0.1), np.full((1, 1), 0.1)]  # one query of a collection shows nothing
    found = noninferiority(strata, np.array([0.01]), np.array([0.5, 0.5]))
    assert [p.tolist() for p in found] == [[1], [1]]


def test_power_is_that_of_simulated_tests() -> None:
    generator = np.random.default_rng(4)
    for effect, needed in zip((0.1, 0.5), solve_power([0.1, 0.5], np.nan, 0.05).astype(int), strict=True):
        drawn = generator.normal(effect, 1, (2000, needed))
        p = stats.ttest_1samp(drawn, 0, axis=1, alternative="greater").pvalue
        assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.035)
        fewer, power = (
            stats.nct.sf(stats.t.ppf(0.95, n - 1), n - 1, effect * n**0.5) for n in (needed - 1, needed)
        )
        assert fewer < 0.8 <= power


def test_numbers_of_queries_by_published_tables() -> None:
    # two-sided 5% and 80% power of a paired test at d = 0.5: 34 (Cohen 1988; G*Power 3.1); one-sided: 27
    assert solve_power([0.5, np.inf, 0, -1], np.nan, 0.025).tolist() == [34, 2, np.inf, np.inf]
    small = ((1.644854 + 0.841621) / 1e-3) ** 2
    assert solve_power([0.5, 1e-3], np.nan, 0.05) == pytest.approx([27, small], rel=1e-5)
    assert solve_power(np.nan, 34, 0.025) == pytest.approx(0.4954, abs=1e-3)  # and 33 queries take 0.503
    effect = float(solve_power(np.nan, 43, 0.05))
    assert stats.nct.sf(stats.t.ppf(0.95, 42), 42, effect * 43**0.5) == pytest.approx(0.8)
    assert solve_power(np.nan, 1, 0.05) == np.inf
