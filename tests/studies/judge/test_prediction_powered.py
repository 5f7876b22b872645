"""Few human labels sharpened by a judge's: what the interval holds, and what a bad judge costs."""

import numpy as np
import pytest
from scipy import stats

from pipeline.studies.judge import PredictionPoweredEstimate, estimate_with_judge

QUERIES = 2000


def samples(judge: str, labelled: int, times: int = 400) -> tuple[float, list[PredictionPoweredEstimate]]:
    """The true mean of a population, and estimates from samples of it; seeded."""
    generator = np.random.default_rng(sum(map(ord, judge)))
    human = generator.choice([0.1, 0.2, 0.4], QUERIES) * generator.choice(
        [-1, 0, 1], QUERIES, p=[0.3, 0.4, 0.3]
    )
    noise = generator.normal(0, 0.15, QUERIES)
    judged = {
        "right": human,
        "noisy": human + noise,
        "coin": noise,
        "turned": -human + noise,
        "constant": np.full(QUERIES, 0.5),
        "off on one in twenty": np.where(generator.random(QUERIES) < 0.05, -0.6, human),
    }[judge]
    made = []
    for _ in range(times):
        drawn = generator.choice(QUERIES, labelled, replace=False)
        made.append(estimate_with_judge(human[drawn], judged, drawn))
    return float(human.mean()), made


@pytest.mark.parametrize(
    ("judge", "labelled"),
    [("right", 20), ("noisy", 100), ("turned", 20), ("constant", 20), ("off on one in twenty", 20)],
)
def test_the_interval_holds_the_mean_whatever_the_judge(judge: str, labelled: int) -> None:
    truth, made = samples(judge, labelled)
    held = np.mean([each.ci_low - 1e-12 <= truth <= each.ci_high + 1e-12 for each in made])
    assert held >= 0.91  # 95%, less four standard errors of 400 samples
    for each in made:
        alone = each.without_judge
        assert each.ci_high - each.ci_low <= alone.ci_high - alone.ci_low + 1e-12
        assert 0 <= each.weight <= 1
        assert labelled - 1e-9 <= each.effective_labels <= QUERIES
    if judge == "turned":  # it costs no labels
        assert {each.weight for each in made} == {0}
        assert all(each.difference == each.without_judge.difference for each in made)
    if judge == "noisy":  # it saves some
        wide, narrow = (
            [each.ci_high - each.ci_low for each in of]
            for of in ([each.without_judge for each in made], made)
        )
        assert np.mean(narrow) < 0.8 * np.mean(wide)
        assert np.median([each.effective_labels for each in made]) > 140


def test_without_a_judge_the_interval_is_that_of_the_t_test() -> None:
    generator = np.random.default_rng(3)
    human, drawn = generator.normal(0.1, 0.2, 20), np.arange(20)
    made = estimate_with_judge(human, np.zeros(10_000_000), drawn)
    low, high = stats.t.interval(0.95, 19, human.mean(), stats.sem(human))
    assert (made.ci_low, made.ci_high) == pytest.approx((low, high), abs=1e-6)
    # of a finite population the part that was seen is known
    made = estimate_with_judge(human, np.zeros(25), drawn)
    half = (high - low) / 2 * np.sqrt(1 - 20 / 25)
    assert made.ci_high - made.difference == pytest.approx(half)


def test_labels_that_cannot_be_are_refused() -> None:
    for human, drawn in (([0.1], [0]), ([0.1, 0.2], [3, 3]), ([0.1, np.nan], [0, 1])):
        with pytest.raises(ValueError, match="labelled queries"):
            estimate_with_judge(np.array(human), np.zeros(10), np.array(drawn))


def test_no_interval_is_shown_where_none_can_hold() -> None:
    def unshown(human: np.ndarray, judged: np.ndarray) -> str:
        return estimate_with_judge(human, judged, np.arange(len(human))).unshown

    human, judged = np.resize([0.1, -0.2, 0.0], 20), np.zeros(200)
    assert unshown(human, judged) == ""
    assert unshown(human[:19], judged) == "only 19 labelled queries (20 needed)"
    assert "the same in every labelled query" in unshown(np.zeros(20), judged)
    assert unshown(human[:5], judged[:5]) == ""  # all queries are labelled
