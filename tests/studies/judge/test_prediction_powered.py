"""Few human labels sharpened by a judge's: what the interval holds, and what a bad judge costs."""

import numpy as np
import pytest
from scipy import stats

from pipeline.studies.judge import PredictionPoweredEstimate, estimate_with_judge, inclusion_probabilities

QUERIES = 2000


def width(interval: tuple[float, float, float]) -> float:
    return interval[2] - interval[1]


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
        made.append(estimate_with_judge(human[drawn], judged, drawn, None, -0.4, 0.4))
    return float(human.mean()), made


@pytest.mark.parametrize(
    ("judge", "labelled"),
    [("right", 25), ("noisy", 100), ("turned", 25), ("constant", 25), ("off on one in twenty", 25)],
)
def test_the_interval_holds_the_mean_whatever_the_judge(judge: str, labelled: int) -> None:
    truth, made = samples(judge, labelled)
    held = np.mean([each.by_both.ci_low <= truth <= each.by_both.ci_high for each in made])
    assert held >= 0.91  # 95%, less four standard errors of 400 samples
    for each in made:
        alone = each.without_judge
        assert width(each.by_both) <= width(alone) + 1e-12
        assert 0 <= each.weight <= 1
        assert labelled - 1e-9 <= each.effective_labels <= QUERIES
    if judge == "turned":  # it costs no labels
        assert {each.weight for each in made} == {0}
        assert all(each.by_both == each.without_judge for each in made)
    if judge == "noisy":  # it saves some
        wide, narrow = [width(m.without_judge) for m in made], [width(m.by_both) for m in made]
        assert np.mean(narrow) < 0.85 * np.mean(wide)
        assert np.median([each.effective_labels for each in made]) > 140


def test_without_a_judge_the_interval_is_that_of_the_t_test() -> None:
    generator = np.random.default_rng(3)
    human, drawn = generator.normal(0.1, 0.2, 20), np.arange(20)
    made = estimate_with_judge(human, np.zeros(10_000_000), drawn)
    low, high = stats.t.interval(0.95, 19, human.mean(), stats.sem(human))
    assert made.by_both[1:] == pytest.approx((low, high), abs=1e-6)
    # of a finite population the part that was seen is known
    made = estimate_with_judge(human, np.zeros(25), drawn)
    half = (high - low) / 2 * np.sqrt(1 - 20 / 25)
    assert width(made.by_both) == pytest.approx(2 * half)
    # equal weights are those of no weights
    assert estimate_with_judge(human, np.zeros(25), drawn, np.full(25, 7.0)) == made


def test_labels_that_cannot_be_are_refused() -> None:
    for human, drawn in (([0.1], [0]), ([0.1, 0.2], [3, 3]), ([0.1, np.nan], [0, 1])):
        with pytest.raises(ValueError, match="labelled queries"):
            estimate_with_judge(np.array(human), np.zeros(10), np.array(drawn))


def test_no_interval_is_shown_where_none_can_hold() -> None:
    def unshown(human: np.ndarray, judged: np.ndarray, reach: float = 0.2) -> str:
        return estimate_with_judge(human, judged, np.arange(len(human)), None, -reach, reach).unshown

    human, judged = np.resize([0.1, -0.2, 0.0], 25), np.zeros(200)
    assert unshown(human, judged) == ""
    assert unshown(human[:24], judged) == "only 24 labelled queries (25 needed)"
    assert "the same in all but 0 labelled queries" in unshown(np.zeros(25), judged)
    assert "rare failures: 3 in 25 queries may lose" in unshown(human, judged, 1.0)
    assert unshown(human[:5], judged[:5]) == ""  # all queries are labelled


@pytest.mark.parametrize("labelled", [25, 40, 100])
@pytest.mark.parametrize("judge", ["blind to losses", "right"])
def test_rare_losses_that_were_not_labelled_make_no_winner(judge: str, labelled: int) -> None:
    """2% of queries lose 1, the others gain 0.02 on average: A was better in 57% of samples of 20 labels."""
    generator = np.random.default_rng(labelled)
    human = np.where(np.arange(QUERIES) % 50 == 0, -1, np.where(np.arange(QUERIES) % 49 < 10, 0.1, 0.0))
    human[human > 0] *= -human[human < 0].sum() / human[human > 0].sum()
    judged = np.where(human < 0, 0, human) if judge == "blind to losses" else human
    wrong, missed = 0, 0
    for _ in range(300):
        drawn = generator.choice(QUERIES, labelled, replace=False)
        made = estimate_with_judge(human[drawn], judged, drawn)
        wrong += not made.unshown and made.by_both.ci_low > 1e-12
        missed += made.without_judge.ci_low > 1e-12
    assert wrong <= 0.025 * 300 + 4 * np.sqrt(0.025 * 300)
    assert missed > 0.1 * 300 or labelled == 100


def test_weights_that_follow_the_range_find_the_queries_that_can_lose() -> None:
    """Estimates by inverse probability hold the mean; of so few labels equal weights show no interval."""
    generator = np.random.default_rng(7)
    reach = np.where(generator.random(QUERIES) < 0.05, 1, 0.1)
    human = reach * generator.choice([-1, 0, 1], QUERIES, p=[0.3, 0.4, 0.3])
    judged = human * generator.choice([0, 1], QUERIES)
    weights = reach + 0.3 * reach.mean()
    probabilities = inclusion_probabilities(weights, 40)
    assert probabilities.sum() == pytest.approx(40)
    made, counts = {True: [], False: []}, np.zeros(QUERIES)
    for _ in range(400):
        for weighted in (True, False):
            of = weights if weighted else np.ones(QUERIES)
            drawn = np.argsort(generator.exponential(size=QUERIES) / of)[:40]
            made[weighted].append(estimate_with_judge(human[drawn], judged, drawn, of, -reach, reach))
            counts[drawn] += weighted
    for rows in (reach == 1, reach < 1):
        assert counts[rows].mean() / 400 == pytest.approx(probabilities[rows].mean(), rel=0.05)
    held = [each.by_both.ci_low <= human.mean() <= each.by_both.ci_high for each in made[True]]
    assert np.mean(held) >= 0.91
    assert np.mean([width(each.by_both) for each in made[True]]) < 0.8 * np.mean(
        [width(each.by_both) for each in made[False]]
    )
    assert np.mean([each.unshown == "" for each in made[True]]) > 0.9
