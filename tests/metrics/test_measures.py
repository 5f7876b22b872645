"""The measures by hand, and the lookup of grades by brute force."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Qrels, Ranking
from pipeline.metrics import parse_measures
from pipeline.metrics.measures import MEASURES
from pipeline.metrics.scoring import compute_measures, drop_identical

Scorer = Callable[..., Float64]


@pytest.mark.parametrize(
    ("grades", "measure", "expected"),
    [
        ([5, 2, 4, 0, 1], "dcg@5", 8.64871),
        ([5, 2, 4, 0, 1], "cg@5", 12),
        ([5, 2, 4, 0, 1], "ndcg@5", 0.96586),
        ([2, 3, 3, 1, 2], "dcg@5", 6.59717),
        ([2, 3, 3, 1, 2], "ndcg@5", 6.59717 / 7.14100),
        ([2, 3, 3, 1, 2], "dcg(gain=exp)@5", 12.50774),
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


def qrels_of(entries: list[tuple[int, int, int]]) -> Qrels:
    return Qrels(*np.array(sorted(entries), dtype=np.int64).reshape(-1, 3).T)


def test_a_ranking_of_other_queries_is_refused() -> None:
    ranking = Ranking(np.zeros((2, 3), np.int64), np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"\(2, 3\) for 3 queries"):
        compute_measures(ranking, qrels_of([(0, 0, 1)]), 3, parse_measures("map"))


def test_judged_passages_that_collide_in_the_table_are_all_found(score_lists: Callable[..., Float64]) -> None:
    passages = [1024 * number for number in range(8)]
    assert score_lists([passages], [dict.fromkeys(passages, 1)], "recall@8").item() == 1


def test_drop_identical_moves_rows_up() -> None:
    passages = np.array([[5, 2, 7], [1, 4, -1], [3, 8, 9]])
    scores = np.array([[3, 2, 1], [9, 8, -np.inf], [6, 5, 4]], np.float32)
    dropped = drop_identical(Ranking(passages, scores), np.array([2, 1, -1]))
    assert dropped.passages.tolist() == [[5, 7, -1], [4, -1, -1], [3, 8, 9]]
    assert dropped.scores.tolist() == [[3, 1, -np.inf], [8, -np.inf, -np.inf], [6, 5, 4]]
    ranking = Ranking(np.array([[5, -1]]), np.array([[3, -np.inf]], np.float32))
    assert drop_identical(ranking, np.array([-1])) is ranking
