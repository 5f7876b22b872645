"""Fusion: the rankings of several retrievers joined into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.core.order import sort_hits
from pipeline.core.records import Float64, Int64, Ranking


def fuse(rankings: Sequence[Ranking], k: int, top_k: int, id_rank: Int64) -> Ranking:
    """Join rankings by reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009).

    A passage's score is the sum of 1 / (k + rank) over the rankings that have it.

    Args:
        rankings: Of the same queries, [queries, k_r] each.
        k: Added to every rank.
        top_k: Passages kept for each query.
        id_rank: int64 [passages], see `pipeline.core.order.descending_id_rank`.
    """
    passages = np.concatenate([ranking.passages for ranking in rankings], axis=1)
    values = np.concatenate([_reciprocal_ranks(ranking, k) for ranking in rankings], axis=1)
    found, scores = _sums(passages, values)
    found, kept = sort_hits(found, scores.astype(np.float32), id_rank)
    return Ranking(found[:, :top_k], kept[:, :top_k])


def _reciprocal_ranks(ranking: Ranking, k: int) -> Float64:
    ranks = np.arange(1, ranking.passages.shape[1] + 1)
    return np.broadcast_to(1 / (k + ranks), ranking.passages.shape)


def _sums(passages: Int64, values: Float64) -> tuple[Int64, Float64]:
    """Each row's distinct passages, padded with -1, and the sum of the values of each."""
    order = np.argsort(passages, axis=1, kind="stable")
    passages = np.take_along_axis(passages, order, axis=1)
    values = np.take_along_axis(values, order, axis=1)
    is_first = np.ones(passages.shape, np.bool_)
    is_first[:, 1:] = passages[:, 1:] != passages[:, :-1]
    sums = np.zeros(passages.shape)
    cell = np.cumsum(is_first.ravel()) - 1
    firsts = np.flatnonzero(is_first)
    sums.flat[firsts] = np.bincount(cell, values.ravel(), len(firsts))
    return np.where(is_first, passages, -1), sums
