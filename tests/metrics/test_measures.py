"""The measures by hand, and the lookup of grades by brute force."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.errors import InputError
from pipeline.core.records import Float64, Qrels, Ranking
from pipeline.metrics import parse_measures, scoring
from pipeline.metrics.measures import MEASURES
from pipeline.metrics.scoring import compute_measures, drop_identical, judge_ranking

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


def qrels_of(entries: list[tuple[int, int, int]]) -> Qrels:
    return Qrels(*np.array(sorted(entries), dtype=np.int64).reshape(-1, 3).T)


def test_a_ranking_of_other_queries_is_refused() -> None:
    ranking = Ranking(np.zeros((2, 3), np.int64), np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match=r"\(2, 3\) for 3 queries"):
        compute_measures(ranking, qrels_of([(0, 0, 1)]), 3, parse_measures("map"))


@settings(max_examples=150)
@given(
    st.integers(1, 6),
    st.integers(0, 7),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=60),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 8, 1 << 16]),
)
def test_grades_are_those_of_a_plain_lookup(
    n_queries: int, k: int, pairs: set[tuple[int, int]], seed: int, block: int
) -> None:
    """Whatever collides in the lookup's table, and however rows are cut into blocks."""
    random = np.random.default_rng(seed)
    passages = np.argsort(random.random((n_queries, 41)), axis=1)[:, :k].astype(np.int64)
    passages[random.random(passages.shape) < 0.1] = -1
    entries = [(q, p, int(random.integers(-2, 4))) for q, p in pairs if q < n_queries]
    grades = {(q, p): g for q, p, g in entries}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "BLOCK_CELLS", block)
        ranking = Ranking(passages, np.zeros(passages.shape, np.float32))
        judged = judge_ranking(ranking, qrels_of(entries), n_queries)
    found = judged.found
    expected = [
        (q, rank, grades[q, p])
        for q, row in enumerate(passages.tolist())
        for rank, p in enumerate(row, 1)
        if (q, p) in grades
    ]
    cells = (found.queries.tolist(), found.ranks.tolist(), found.grades.tolist())
    assert list(zip(*cells, strict=True)) == expected
    best = judged.ideal
    for query in range(n_queries):
        of_query = best.queries == query
        ideal = sorted((g for (q, _), g in grades.items() if q == query), reverse=True)
        assert best.grades[of_query].tolist() == ideal
        assert best.ranks[of_query].tolist() == list(range(1, len(ideal) + 1))


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
