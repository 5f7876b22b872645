"""The measures by hand: the texts' worked examples, and small cases of each rule."""

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.records import Float64
from pipeline.metrics.measures import MEASURES

Scorer = Callable[..., Float64]

TRUTH = [[11, 1, 7, 17, 21], [4, 16, 1], [26, 10, 22, 8]]
RESULTS = [
    [11, 1, 17, 7, 21, 8, 0, 28, 9, 20],
    [16, 1, 6, 18, 3, 4, 25, 19, 8, 14],
    [24, 10, 26, 2, 8, 28, 4, 23, 13, 21],
]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("recall(cap=true)", [0.6667, 0.8056, 0.9167]),
        ("mrr", [0.6667, 0.8333, 0.8333]),
        ("precision", [0.6667, 0.6667, 0.3667]),
        ("map(norm=retrieved)", [0.66667, 0.86296, 0.80741]),
        ("ndcg", [0.66667, 0.78596, 0.84168]),
        ("ndcg(ideal=retrieved)", [0.66667, 0.82587, 0.88159]),
    ],
)
def test_the_tutorial(score_lists: Scorer, measure: str, expected: list[float]) -> None:
    judged = [dict.fromkeys(relevant, 1) for relevant in TRUTH]
    values = score_lists(RESULTS, judged, ",".join(f"{measure}@{k}" for k in (1, 5, 10)))
    assert values.mean(axis=0) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(
    ("grades", "measure", "expected"),
    [
        ([5, 2, 4, 0, 1], "dcg@5", 8.64871),
        ([2, 0, 5, 1, 4], "dcg@5", 6.47809),
        ([5, 2, 4, 0, 1], "cg@5", 12),
        ([2, 0, 5, 1, 4], "cg@5", 12),
        ([5, 2, 4, 0, 1], "ndcg@5", 0.96586),
        ([5, 2, 4], "ndcg@3", 0.96928),
        ([2, 3, 3, 1, 2], "dcg@5", 6.59717),
        ([3, 3, 2, 2, 1], "dcg@5", 7.14100),
        ([2, 3, 3, 1, 2], "ndcg@5", 6.59717 / 7.14100),
        ([2, 3, 3, 1, 2], "dcg(gain=exp)@5", 12.50774),
        ([3, 3, 2, 2, 1], "dcg(gain=exp)@5", 14.59539),
        ([2, 3, 3, 1, 2], "ndcg(gain=exp)@5", 12.50774 / 14.59539),
        ([2, 3, 3, 1, 2], "cg(gain=exp)@3", 3 + 7 + 7),
    ],
)
def test_graded_lists(score_lists: Scorer, grades: list[int], measure: str, expected: float) -> None:
    ranked = list(range(len(grades)))
    value = score_lists([ranked], [dict(zip(ranked, grades, strict=True))], measure)
    assert value.item() == pytest.approx(expected, rel=1e-5)


# Of each rule one case; trec_eval, ir_measures and gdeval check all others (tests/parity).
# One query: ranks 1 to 6 hold grades 0, 2, unjudged, 1, -1, 3; a grade 1 and a grade 2 were not retrieved.
RANKED = [10, 11, 12, 13, 14, 15]
E = 0.00001
JUDGED = {10: 0, 11: 2, 13: 1, 14: -1, 15: 3, 20: 1, 21: 2}


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("precision@10", 3 / 10),
        ("recall@4", 2 / 5),
        ("recall(cap=true)@4", 2 / 4),
        ("mrr", 1 / 2),
        ("map", (1 / 2 + 2 / 4 + 3 / 6) / 5),
        ("map(norm=retrieved)@4", (1 / 2 + 2 / 4) / 2),
        ("ndcg(ideal=retrieved)@2", (2 / np.log2(3)) / (3 + 2 / np.log2(3))),
        ("success@2", 1),
        ("judged@6", 5 / 6),
        ("r_precision", 2 / 5),
        # ranks 2, 4, 6 are relevant below 1 judged non-relevant document, all there is; R = 5
        ("bpref", 0),
        # with rel=2 ranks 2 and 6 are, below 1 and 2 of 3 others (grades 0, 1, 1); R = 3
        ("bpref(rel=2)", ((1 - 1 / 3) + (1 - 2 / 3)) / 3),
        # in the pool above: 1, 2 and 4; relevant of those judged: 0 of 1, 1 of 2, 2 of 3; E = 0.00001
        (
            "infap",
            (
                (1 + 1 * (0 + E) / (1 + 2 * E)) / 2
                + (1 + 2 * (1 + E) / (2 + 2 * E)) / 4
                + (1 + 4 * (2 + E) / (3 + 2 * E)) / 6
            )
            / 5,
        ),
        ("rbp(p=0.5)@4", 0.5 * (0.5 + 0.5**3)),
        # ranks 1, 2, 4 and 6 are judged; rank 5 is in the pool only
        ("err@6", 3 / 16 / 2 + 13 / 16 * (1 / 16 / 4 + 15 / 16 * 7 / 16 / 6)),
        # grades 0, 2, 1, 3 are left at ranks 1 to 4
        ("precision(unjudged=removed)@4", 3 / 4),
        ("map(unjudged=removed)", (1 / 2 + 2 / 3 + 3 / 4) / 5),
        ("dcg(unjudged=removed)@4", 2 / np.log2(3) + 1 / 2 + 3 / np.log2(5)),
    ],
)
def test_each_rule_by_hand(score_lists: Scorer, measure: str, expected: float) -> None:
    assert score_lists([RANKED], [JUDGED], measure).item() == pytest.approx(expected)


def test_grades_past_what_a_measure_can_hold_are_refused(score_lists: Scorer) -> None:
    assert score_lists([[1, 2]], [{1: 4, 2: 4}], "err@2").item() == 15 / 16 + 1 / 16 * 15 / 16 / 2  # gdeval's
    with pytest.raises(InputError, match="grade 5 with err"):
        score_lists([[1]], [{2: 5}], "err@5")
    with pytest.raises(InputError, match="grade 2000 with gain=exp"):
        score_lists([[1]], [{1: 2000}], "dcg(gain=exp)@5")


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_every_measure_says_its_formula(name: str) -> None:
    assert MEASURES[name].compute.__doc__
