"""New orders of the best hits of each query, by the scores of a reranker or by the judgments themselves."""

from __future__ import annotations

import numpy as np

from pipeline.core.order import sort_hits
from pipeline.core.records import Float32, Int64, Qrels, Ranking


def rerank(first: Ranking, scores: Float32, id_rank: Int64) -> Ranking:
    """Order the best hits of each query by new scores; those below keep their order beneath them.

    A run's order is that of its scores, so the hits below get scores that fall from the lowest new one on.

    Args:
        first: The ranking of the first stage, [queries, k].
        scores: float32 [queries, depth], for the first `depth` hits of each query; pads' are not read.
        id_rank: int64 [passages], see `pipeline.core.order.descending_id_rank`.

    Raises:
        InputError: A score is NaN.
    """
    depth = scores.shape[1]
    top, below = first.passages[:, :depth], first.passages[:, depth:]
    passages, best = sort_hits(top, np.where(top < 0, np.float32(-np.inf), scores), id_rank)
    rest = np.where(below < 0, np.float32(-np.inf), _falling(best, below.shape[1]))
    return Ranking(np.concatenate([passages, below], axis=1), np.concatenate([best, rest], axis=1))


def _falling(best: Float32, count: int) -> Float32:
    """float32 [queries, count]: scores below the lowest of each row of `best`, each one below the last.

    They fall by 1, or by twice the distance of neighbouring float32 numbers where that is more.
    """
    lowest = np.where(np.isfinite(best), best, np.float32(np.inf)).min(axis=1, initial=np.inf)
    lowest = np.where(np.isfinite(lowest), lowest, 0).astype(np.float64)
    step = np.maximum(1, 2 * np.spacing(np.abs(lowest).astype(np.float32) + count).astype(np.float64))
    falling: Float32 = (lowest[:, None] - step[:, None] * np.arange(1, count + 1)).astype(np.float32)
    return falling


def order_ideally(first: Ranking, qrels: Qrels, depth: int, id_rank: Int64) -> Ranking:
    """The ranking of a reranker that knows the judgments: the best `depth` hits by their grades.

    Args:
        first: The ranking of the first stage, [queries, k].
        qrels: The judgments; a passage that is not judged counts as grade 0.
        depth: Hits that are reordered.
        id_rank: As in `rerank`.
    """
    top = first.passages[:, :depth]
    stride = int(max(first.passages.max(initial=0), qrels.passages.max(initial=0))) + 1
    judged = qrels.queries * stride + qrels.passages  # ascending
    hits = (np.arange(len(top))[:, None] * stride + top).ravel()
    place = np.minimum(np.searchsorted(judged, hits), max(len(judged) - 1, 0))
    grades = np.zeros(hits.shape, np.float32)
    if len(judged):
        is_judged = (judged[place] == hits) & (top.ravel() >= 0)
        grades[is_judged] = np.maximum(qrels.grades[place[is_judged]], 0)
    return rerank(first, grades.reshape(top.shape), id_rank)


def scores_in_first_order(first: Ranking, reranked: Ranking, depth: int) -> Float32:
    """float32 [queries, depth]: the new score of each of the first `depth` hits, in their first order.

    Both rankings have the same hits of a query in the first `depth` places.
    """
    columns = np.argsort(first.passages[:, :depth], axis=1, kind="stable")
    sorted_again = np.argsort(reranked.passages[:, :depth], axis=1, kind="stable")
    scores = np.empty(columns.shape, np.float32)
    ordered = np.take_along_axis(reranked.scores[:, :depth], sorted_again, axis=1)
    np.put_along_axis(scores, columns, ordered, axis=1)
    return scores
