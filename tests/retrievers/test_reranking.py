"""Reranking by hand on five documents: the new order, the ceiling, the depth curve and the paired tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Collection, Float64, Qrels, Ranking, Texts
from pipeline.metrics.names import parse_measures
from pipeline.metrics.scoring import compute_measures
from pipeline.retrievers import reranked
from pipeline.retrievers.ranking import Judge
from pipeline.retrievers.reranked import order_ideally, rerank, scores_in_first_order

IDS = pa.chunked_array([["a", "b", "c", "d", "e"]])
ID_RANK = descending_id_rank(IDS)
A, B, C, D, E = range(5)
NONE = -np.inf
FIRST = Ranking(
    np.array([[A, B, C, D, E], [E, A, B, -1, -1]]),
    np.array([[5, 4, 3, 2, 1], [9, 8, 7, NONE, NONE]], np.float32),
)
SCORES = np.array([[0.1, 0.9, 0.8, 0.2], [3, 1, 2, 0]], np.float32)  # of the first four hits
QRELS = Qrels(np.array([0, 0, 1]), np.array([C, E, E]), np.array([2, 1, 1]))


def judge() -> Judge:
    """By three measures."""
    queries = Texts(pa.chunked_array([["q1", "q2"]]), pa.chunked_array([["x", "y"]]))
    measures = parse_measures(["mrr@10", "ndcg@10", "recall@2"])

    def score(ranking: Ranking) -> Float64:
        return compute_measures(ranking, QRELS, 2, measures)

    missing = pa.chunked_array([], pa.string())
    collection = Collection(Texts(IDS, IDS), queries, missing, QRELS, {})
    return Judge(collection, measures, np.arange(2), lambda ranking: ranking, score)


def test_the_best_are_ordered_anew_and_the_others_keep_their_order_beneath() -> None:
    ranking = rerank(FIRST, SCORES, ID_RANK)
    assert ranking.passages.tolist() == [[B, C, D, A, E], [E, B, A, -1, -1]]
    assert ranking.scores[0].tolist() == pytest.approx([0.9, 0.8, 0.2, 0.1, -0.9])
    assert ranking.scores[1].tolist() == [3, 2, 1, -np.inf, -np.inf]
    assert rerank(FIRST, SCORES[:, :1], ID_RANK).passages.tolist() == FIRST.passages.tolist()


def test_equal_scores_are_in_the_order_of_ids() -> None:
    assert rerank(FIRST, np.zeros((2, 4), np.float32), ID_RANK).passages[0].tolist() == [D, C, B, A, E]


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        rerank(FIRST, np.full((2, 4), np.nan, np.float32), ID_RANK)


@pytest.mark.parametrize("scale", [0, 1, 1e8, 3e37])
def test_scores_below_the_depth_fall_strictly_from_the_lowest(scale: float) -> None:
    passages = np.arange(1000)[None]
    first = Ranking(passages, -passages.astype(np.float32))
    scores = np.float32(scale) * np.array([[-3, -1, -2]], np.float32)
    ranking = rerank(first, scores, np.arange(1000))
    assert (np.diff(ranking.scores[0, 2:]) < 0).all()
    assert np.isfinite(ranking.scores).all()
    assert ranking.passages[0, 3:].tolist() == list(range(3, 1000))


@given(arrays(np.float32, (2, 4), elements=st.integers(-3, 3)))
def test_the_scores_are_found_again_in_the_first_order(scores: Any) -> None:
    again = scores_in_first_order(FIRST, rerank(FIRST, scores, ID_RANK), 4)
    is_hit = FIRST.passages[:, :4] >= 0
    assert again[is_hit].tolist() == scores[is_hit].tolist()
    assert (
        rerank(FIRST, again[:, :2], ID_RANK).passages.tolist()
        == rerank(FIRST, scores[:, :2], ID_RANK).passages.tolist()
    )


def test_the_ideal_order_is_that_of_the_grades() -> None:
    assert order_ideally(FIRST, QRELS, 4, ID_RANK).passages.tolist() == [[C, D, B, A, E], [E, B, A, -1, -1]]
    assert order_ideally(FIRST, QRELS, 5, ID_RANK).passages[0].tolist() == [C, E, D, B, A]
    nothing = Qrels(*(np.zeros(0, np.int64) for _ in range(3)))
    assert order_ideally(FIRST, nothing, 4, ID_RANK).passages[0].tolist() == [D, C, B, A, E]


def test_five_documents_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of q1 the grades are c 2, e 1, at ranks 3 and 5, then 2 and 5; of q2 the relevant e stays first.

    The ideal DCG of q1 is 2 + 1 / log2(3) = 2.63093. Its DCG is 2 / log2(4) + 1 / log2(6) = 1.38685 before,
    2 / log2(3) + 1 / log2(6) = 1.64871 after, and 2 + 1 / log2(6) = 2.38685 with c first, which is the best
    that can be made of four documents.
    """
    monkeypatch.setattr(reranked, "DEPTHS", (1, 2, 3, 4, 5))
    found = reranked.assess_reranking(4, judge(), [FIRST, rerank(FIRST, SCORES, ID_RANK)])
    assert found["first_stage"]["metrics"] == pytest.approx(
        {"mrr@10": (1 / 3 + 1) / 2, "ndcg@10": (0.527134 + 1) / 2, "recall@2": 0.5}, abs=1e-6
    )
    assert found["reranking"]["ceiling"] == pytest.approx(
        {"mrr@10": 1, "ndcg@10": (0.907227 + 1) / 2, "recall@2": 0.75}, abs=1e-6
    )
    curve = found["reranking"]["by_depth"]
    assert [(at["depth"], at["metrics"]["recall@2"]) for at in curve] == [
        (1, 0.5),
        (2, 0.5),
        (3, 0.75),
        (4, 0.75),
    ]
    assert [at["metrics"]["mrr@10"] for at in curve] == pytest.approx([2 / 3, 2 / 3, 0.75, 0.75])
    assert curve[-1]["metrics"]["ndcg@10"] == pytest.approx((0.626665 + 1) / 2, abs=1e-6)
    change = found["first_stage"]["change"]["mrr@10"]
    assert change["before"] == pytest.approx(2 / 3)
    assert change["difference"] == pytest.approx((1 / 2 - 1 / 3) / 2)
    assert (change["wins"], change["ties"], change["losses"]) == (1, 1, 0)
    # t = mean / (s / sqrt 2) = 1 with one degree of freedom, and of 4 ways to swap all reach the difference
    assert change["p_ttest"] == pytest.approx(0.5)
    assert change["p_randomization"] == pytest.approx(1)
    assert change["p_holm"] == 1  # three measures with p = 0.5
