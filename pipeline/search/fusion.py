"""Fusion: the rankings of several retrievers joined into one.

Every method gives each hit of a ranking a value, multiplies it by the ranking's weight, and adds the values
of a passage up over the rankings that have it; where a ranking lacks it, that is 0. The definitions are those
of ranx (Bassani and Romelli, CIKM 2022). Sums are made in the order of the rankings, in float64, so
that equal scores are equal here and there. They are ordered by the tie rule of `pipeline.core.order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.config.benchmark import MethodName, NormalizationName
from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits
from pipeline.core.records import BoolArray, Facts, Float64, Int64, Ranking

LEAST = 1e-9  # the smallest number that a normalization divides by, so that equal scores do not divide by 0
BLOCK_CELLS = 1 << 21  # cells of all rankings that are joined at once


def _min_max(scores: Float64, found: BoolArray) -> Float64:
    """Scores from 0 to 1: (s - min) / (max - min)."""
    low, high = _lowest(scores, found), _highest(scores, found)
    return (scores - low) / np.maximum(high - low, LEAST)


def _max(scores: Float64, found: BoolArray) -> Float64:
    """S / max."""
    return scores / np.maximum(_highest(scores, found), LEAST)


def _sum(scores: Float64, found: BoolArray) -> Float64:
    """(s - min) / the sum of all (s - min)."""
    low, count = _lowest(scores, found), found.sum(axis=1, keepdims=True)
    total = np.where(found, scores, 0).sum(axis=1, keepdims=True)
    normalized: Float64 = (scores - low) / np.maximum(total - low * count, LEAST)
    return normalized


def _z_score(scores: Float64, found: BoolArray) -> Float64:
    """(s - mean) / standard deviation, over the hits of the query; a missing passage counts as the mean."""
    count = np.maximum(found.sum(axis=1, keepdims=True), 1)
    mean = np.where(found, scores, 0).sum(axis=1, keepdims=True) / count
    variance = np.where(found, scores - mean, 0) ** 2
    deviation = np.sqrt(variance.sum(axis=1, keepdims=True) / count)
    normalized: Float64 = (scores - mean) / np.maximum(deviation, LEAST)
    return normalized


def _rank(scores: Float64, found: BoolArray) -> Float64:
    """1 - (rank - 1) / hits: 1 for the first hit, 1 / hits for the last."""
    count = np.maximum(found.sum(axis=1, keepdims=True), 1)
    normalized: Float64 = 1 - np.arange(scores.shape[1]) / count
    return normalized


def _lowest(scores: Float64, found: BoolArray) -> Float64:
    lowest: Float64 = np.where(found, scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    return np.where(np.isfinite(lowest), lowest, 0)


def _highest(scores: Float64, found: BoolArray) -> Float64:
    highest: Float64 = np.where(found, scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    return np.where(np.isfinite(highest), highest, 0)


NORMALIZATIONS: dict[str, Callable[[Float64, BoolArray], Float64]] = {
    "none": lambda scores, found: scores,
    "min_max": _min_max,
    "max": _max,
    "sum": _sum,
    "z_score": _z_score,
    "rank": _rank,
}
"""By name a function of the scores of a ranking, float64 [queries, k], and of which of them are hits."""
UNSHIFTED = ("none", "max")
"""Those that leave 0 where it is, so that a negative score would be worth less than none. Of the others
`z_score` alone has values below 0, and there a missing passage is worth the mean, as in ranx."""


METHODS: dict[str, NormalizationName | None] = {
    "rrf": None,  # Cormack, Clarke and Buettcher, SIGIR 2009
    "combsum": "min_max",  # Fox and Shaw, TREC-2, 1993
    "combmnz": "min_max",
    "weighted": "min_max",
    "interpolation": "none",
}
"""What each method makes of scores, unless the user names another; None where ranks count."""


@dataclass(frozen=True)
class Fusion:
    """A method with its parameters: `normalize` None is the method's own, `k` is added to ranks by `rrf`."""

    method: MethodName
    normalize: NormalizationName | None = None
    k: int = 60

    def weights(self, given: Sequence[float] | None, rankings: int) -> Float64:
        """float64 [rankings]: the weight of each ranking; `interpolation` is given that of the first."""
        if given is None:
            return np.ones(rankings)
        return np.array([given[0], 1 - given[0]] if self.method == "interpolation" else given, np.float64)

    def facts(self, weights: Float64) -> Facts:
        """The method and weights, float64 [rankings], as JSON."""
        return {"method": self.method, "normalize": self.normalization, "weights": weights.tolist()}

    @property
    def normalization(self) -> NormalizationName | None:
        """What is made of scores; None where ranks count."""
        return self.normalize or METHODS[self.method]

    def values(self, ranking: Ranking) -> Float64:
        """float64 [queries, k]: the value of each hit, 0 for pads."""
        is_hit = ranking.passages >= 0
        if self.method == "rrf":
            return np.where(is_hit, 1 / (self.k + np.arange(1, is_hit.shape[1] + 1)), 0)
        scores = np.where(is_hit, ranking.scores, 0).astype(np.float64)
        if not np.isfinite(scores).all():
            raise InputError("a score is infinite", allowed="finite scores", fix="fuse by ranks, with rrf")
        if self.normalization in UNSHIFTED and scores.min(initial=0) < 0:
            raise InputError(
                f"normalize: {self.normalization}, and a score is {scores.min():.6g}",
                allowed="scores of 0 or more: a passage that a ranking lacks has 0, and would win",
                fix="choose min_max or rank",
            )
        normalize = NORMALIZATIONS[self.normalization or "none"]
        return np.where(is_hit, normalize(scores, is_hit), 0)


@dataclass(frozen=True)
class Union:
    """The passages that any of several rankings has for some queries."""

    queries: slice  # the rows of these queries
    passages: Int64  # int64 [queries, m], in any order, padded with -1
    values: Float64  # float64 [rankings, queries, m], 0 where a ranking lacks a passage
    counts: Int64  # int64 [queries, m], the number of rankings that have each passage

    def ranking(self, fusion: Fusion, weights: Float64, id_rank: Int64, top_k: int | None = None) -> Ranking:
        """The joined ranking, scores in float64; arguments as of `fuse`, `weights` of these queries."""
        scores = np.zeros(self.passages.shape)
        for number, values in enumerate(self.values):
            scores += weights[..., number, None] * values
        if fusion.method == "combmnz":
            scores *= self.counts
        passages, scores = sort_hits(self.passages, scores, id_rank)
        return Ranking(passages[:, :top_k], scores[:, :top_k])


def unions(rankings: Sequence[Ranking], fusion: Fusion) -> Iterator[Union]:
    """The union of the rankings, for blocks of queries one after the other."""
    queries = len(rankings[0].passages)
    width = sum(ranking.passages.shape[1] for ranking in rankings)
    rows = max(BLOCK_CELLS // max(width, 1), 1)
    for start in range(0, queries, rows):
        block = slice(start, min(start + rows, queries))
        parts = [Ranking(each.passages[block], each.scores[block]) for each in rankings]
        yield _union(block, parts, [fusion.values(part) for part in parts])


def _union(queries: slice, rankings: Sequence[Ranking], values: Sequence[Float64]) -> Union:
    """The union of rankings, of whose hits `values` are given."""
    hits = np.concatenate([ranking.passages for ranking in rankings], axis=1)
    hits = np.where(hits < 0, np.iinfo(np.int64).max, hits)
    order = np.argsort(hits, axis=1, kind="stable")
    ordered = np.take_along_axis(hits, order, axis=1)
    # each row's hits, sorted: the first of equal ones gets a new place, the others share it
    is_first = np.ones(hits.shape, np.bool_)
    is_first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = np.empty(hits.shape, np.int64)  # of each hit among the distinct passages of its row
    np.put_along_axis(place, order, np.cumsum(is_first, axis=1) - 1, axis=1)
    is_hit = hits != np.iinfo(np.int64).max
    width = int(np.where(is_hit, place + 1, 0).max(initial=0))
    passages = np.full((len(hits), width), -1, np.int64)
    by_ranking = np.zeros((len(rankings), len(hits), width))
    counts = np.zeros((len(hits), width), np.int64)
    start = 0
    for number, ranking in enumerate(rankings):
        stop = start + ranking.passages.shape[1]
        row, column = np.nonzero(is_hit[:, start:stop])
        target = place[row, column + start]
        passages[row, target] = ranking.passages[row, column]
        by_ranking[number, row, target] = values[number][row, column]
        counts[row, target] += 1
        start = stop
    return Union(queries, passages, by_ranking, counts)


def fuse(
    rankings: Sequence[Ranking], fusion: Fusion, weights: Float64, id_rank: Int64, top_k: int | None = None
) -> Ranking:
    """Join rankings of the same queries.

    Args:
        rankings: [queries, k_r] each, ordered by the tie rule.
        fusion: The method.
        weights: float64 [rankings], or [queries, rankings].
        id_rank: int64 [passages], see `pipeline.core.order.descending_id_rank`.
        top_k: Passages kept for each query; None keeps all.

    Raises:
        InputError: A score is infinite or NaN.
    """
    blocks = []
    for union in unions(rankings, fusion):
        block_weights = weights[union.queries] if weights.ndim == 2 else weights
        blocks.append((union.queries, union.ranking(fusion, block_weights, id_rank, top_k)))
    width = max((block.passages.shape[1] for _, block in blocks), default=0)
    passages = np.full((len(rankings[0].passages), width), -1, np.int64)
    scores = np.full(passages.shape, -np.inf)
    for rows, block in blocks:
        passages[rows, : block.passages.shape[1]] = block.passages
        scores[rows, : block.scores.shape[1]] = block.scores
    return Ranking(passages, scores)
