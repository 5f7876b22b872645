"""How near a reproduced run is to the original one: of rankings, of values per query, of effects.

The definitions are those of Breuer et al., *How to Measure the Reproducibility of System-oriented IR
Experiments*, SIGIR 2020, as the package `repro_eval` 0.5 computes them.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.records import BoolArray, Float64, Int64

PERSISTENCE = 0.95
"""p of the rank-biased overlap."""
DEPTH = 1000
"""Ranks that are compared."""


def same_rankings(original: Int64, reproduced: Int64) -> BoolArray:
    """Bool [queries]: whether two rankings, int64 [queries, k] padded with -1, are equal."""
    width = max(original.shape[1], reproduced.shape[1])
    equal: BoolArray = (_padded(original, width) == _padded(reproduced, width)).all(axis=1)
    return equal


def kendall_tau_union(original: Int64, reproduced: Int64) -> Float64:
    """float64 [queries]: Kendall's tau between the documents at the same ranks, each as its number.

    The numbers are places in the union of both rankings, sorted by document id, as in repro_eval. (In the
    paper the union is in the order of appearance.) Any numbers in the order of the ids give the same tau.
    Where one ranking is longer, its further ranks are left out. Of fewer than two ranks tau is not defined:
    it is then 1 for equal rankings, else 0.

    Args:
        original: int64 [queries, k], numbers of the documents at each rank, in the order of their ids; -1
            pads shorter rankings.
        reproduced: The same, with the same numbers, of any width.
    """
    from scipy.stats import kendalltau

    equal = same_rankings(original, reproduced)
    tau = equal.astype(np.float64)
    for row in np.flatnonzero(~equal):
        ranks = min((original[row] >= 0).sum(), (reproduced[row] >= 0).sum(), DEPTH)
        if ranks > 1:
            tau[row] = kendalltau(original[row, :ranks], reproduced[row, :ranks]).statistic
    return tau


def rank_biased_overlap(original: Int64, reproduced: Int64, persistence: float = PERSISTENCE) -> Float64:
    """float64 [queries]: rank-biased overlap, normalized so that equal rankings have 1.

    The sum over ranks i of p^(i-1) times the share of the first i documents that both have, over the sum of
    p^(i-1) (Webber, Moffat and Zobel, ACM TOIS 28(4), 2010; normalized as by Clarke, Vtyurina and Smucker,
    ACM TOIS 39(3), 2021). It ends at the last rank of the longer ranking, or at `DEPTH`. Arguments as of
    `kendall_tau_union`; two empty rankings have 1.
    """
    overlap = same_rankings(original, reproduced).astype(np.float64)
    for row in np.flatnonzero(overlap == 0):
        ours, theirs = (each[row][each[row] >= 0][:DEPTH] for each in (original, reproduced))
        ranks = np.arange(max(len(ours), len(theirs)))
        _, at_ours, at_theirs = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
        in_both = np.bincount(np.maximum(at_ours, at_theirs), minlength=len(ranks)).cumsum()
        weights = persistence**ranks
        overlap[row] = (weights * in_both / (ranks + 1)).sum() / weights.sum()
    return overlap


def root_mean_square_error(original: Float64, reproduced: Float64) -> Float64:
    """float64 [measures]: the root of the mean squared difference of float64 [queries, measures]."""
    error: Float64 = np.sqrt(np.square(original - reproduced).mean(axis=0))
    return error


def effect_ratio(original: Float64, reproduced: Float64) -> Float64:
    """float64 [measures]: the reproduced mean improvement over a baseline, over the original one.

    1 is the same effect, 0 none, below 0 one of the other direction. NaN where the original has none.

    Args:
        original: float64 [queries, measures], the result minus its baseline, per query.
        reproduced: The same of the reproductions of both.
    """
    effects = original.mean(axis=0)
    ratio: Float64 = np.divide(
        reproduced.mean(axis=0), effects, out=np.full(len(effects), np.nan), where=effects != 0
    )
    return ratio


def _padded(ranking: Int64, width: int) -> Int64:
    return np.pad(ranking, ((0, 0), (0, width - ranking.shape[1])), constant_values=-1)
