"""What a reader needs to judge a reranker: measures before and after, the ceiling, and what depth brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.core.order import descending_id_rank
from pipeline.core.records import Ranking
from pipeline.metrics import paired
from pipeline.retrievers.assessment import Judge
from pipeline.search import reranking

DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
"""Depths below that of the config at which measures are computed too."""


def assess_reranking(depth: int, judge: Judge, rankings: Sequence[Ranking]) -> dict[str, Any]:
    """The sections `first_stage` and `reranking` of `metrics.json`, of the ranking before and that after.

    Lesser depths need no further scores: the passages that they would leave out keep their order.
    """
    first, reranked = rankings
    id_rank = descending_id_rank(judge.collection.passages.ids)
    before, after = judge.score(first), judge.score(reranked)
    ideal = judge.score(reranking.order_ideally(first, judge.judgments(first, depth), depth, id_rank))
    scores = reranking.scores_in_first_order(first, reranked, depth)
    by_depth = []
    for less in DEPTHS:
        if less < depth:
            ranking = reranking.rerank(first, scores[:, :less], id_rank)
            by_depth.append({"depth": less, "metrics": judge.means(judge.score(ranking))})
    return {
        "first_stage": {
            "metrics": judge.means(before),
            "change": paired.changes(judge.measures, before, after),
        },
        "reranking": {
            "depth": depth,
            "ceiling": judge.means(ideal),
            "by_depth": [*by_depth, {"depth": depth, "metrics": judge.means(after)}],
        },
    }
