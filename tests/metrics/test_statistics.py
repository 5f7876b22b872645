import numpy as np
import pytest
from scipy import stats

from pipeline.metrics import statistics
from pipeline.metrics.statistics import bootstrap_interval


@pytest.mark.parametrize("n_queries", [5, 43, 400])
def test_agrees_with_scipy(n_queries: int) -> None:
    values = np.random.default_rng(1).beta(0.5, 0.7, size=(n_queries, 3))
    low, high = bootstrap_interval(values)
    theirs = stats.bootstrap((values,), np.mean, axis=0, method="percentile", n_resamples=20_000, rng=2)
    noise = 0.05 * (high - low)
    assert np.all(np.abs(low - theirs.confidence_interval.low) < noise)
    assert np.all(np.abs(high - theirs.confidence_interval.high) < noise)


def test_same_every_time_and_for_any_company(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((30, 4))
    together = bootstrap_interval(values)
    alone = [bootstrap_interval(values[:, [column]]) for column in range(4)]
    assert np.allclose(together[0], [low.item() for low, _ in alone], rtol=1e-12)
    assert np.allclose(together[1], [high.item() for _, high in alone], rtol=1e-12)
    assert np.array_equal(together, bootstrap_interval(values))


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((32, 2))
    whole = bootstrap_interval(values)
    monkeypatch.setattr(statistics, "BLOCK_DRAWS", 64)
    assert np.allclose(whole, bootstrap_interval(values), rtol=1e-12)


def test_equal_values_have_no_width() -> None:
    low, high = bootstrap_interval(np.full((7, 1), 0.25))
    assert (low.item(), high.item()) == (0.25, 0.25)


def test_confidence_widens() -> None:
    values = np.random.default_rng(1).random((50, 1))
    (low, high), (lower, higher) = bootstrap_interval(values), bootstrap_interval(values, confidence=0.99)
    assert lower < low < values.mean() < high < higher


def test_no_query_is_refused() -> None:
    with pytest.raises(ValueError, match="no query"):
        bootstrap_interval(np.empty((0, 2)))
