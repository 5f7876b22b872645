from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.records import Float64, Qrels, Ranking
from pipeline.metrics import parse_measures, scoring
from pipeline.metrics.scoring import compute_measures, drop_identical, judge_ranking


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
