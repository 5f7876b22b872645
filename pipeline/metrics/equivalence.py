"""Equivalence within a margin, Wilcoxon's signed rank test, and intervals of ranks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.macro import Strata, macro_noninferiority
from pipeline.metrics.noninferiority import noninferiority

FEW_SIGNS = 13
ROUNDING = 1e-9  # of sums of ranks, which are halves


def equivalence(differences: Float64, margin: float) -> Float64:
    """float64 [pairs]: p against "the means differ by the margin or more", of float64 [queries, pairs].

    Two one-sided tests (Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15(6), 1987): that the
    difference is above -margin, and that it is below the margin. The larger p counts; each is the larger of
    the t-test's and the studentized paired bootstrap's, as in `pipeline.metrics.noninferiority`.
    """
    margins = np.full(differences.shape[1], margin)
    above, _ = noninferiority(differences, margins)
    below, _ = noninferiority(-differences, margins)
    return np.maximum(above, below)


def wilcoxon(differences: Float64) -> Float64:
    """float64 [pairs]: two-sided p of the signed rank test (Wilcoxon, Biometrics Bulletin 1(6), 1945).

    As by `scipy.stats.wilcoxon`: queries without a difference are left out; of up to 13 all ways to change
    signs are counted, which SciPy takes a second for; of up to 50 without equal differences p is exact as
    well, otherwise by the normal distribution. It tests whether differences are symmetric about 0, and so
    more than their mean. A pair without any has p = 1.
    """
    from scipy import stats  # heavy

    some = differences.any(axis=0)
    p = np.ones(differences.shape[1])
    for column in np.flatnonzero(some):
        kept = differences[differences[:, column] != 0, column]
        p[column] = _every_way(kept) if len(kept) <= FEW_SIGNS else stats.wilcoxon(kept).pvalue
    return p


def macro_equivalence(strata: Strata, weights: Float64, margin: float) -> Float64:
    """float64 [pairs]: as `equivalence`, of macro means; `strata` as in `pipeline.metrics.macro`."""
    margins = np.full(strata[0].shape[1], margin)
    above, _ = macro_noninferiority(strata, weights, margins)
    below, _ = macro_noninferiority([-values for values in strata], weights, margins)
    return np.maximum(above, below)


def macro_wilcoxon(strata: Strata, weights: Float64) -> Float64:
    """float64 [pairs]: two-sided p of Wilcoxon's signed rank test within collections.

    Its statistic is Σ w_c · T_c / (n_c (n_c + 1) / 2): T_c is the sum of the ranks of the differences of
    collection c, each with the sign of its difference, as a share of the largest sum that n_c queries can
    have. Where signs are random, its variance is Σ w_c² · Σ ranks² over the same squares, by which p is that
    of the normal distribution. Queries without a difference have no rank. A pair without any has p = 1.
    """
    from scipy.special import ndtr
    from scipy.stats import rankdata  # heavy

    total, variance = np.zeros((2, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        counted = weight * 2 / (len(values) * (len(values) + 1))
        sizes = np.where(values == 0, np.nan, np.abs(values))
        ranks = np.nan_to_num(rankdata(sizes, axis=0, nan_policy="omit"))
        total += counted * (np.sign(values) * ranks).sum(axis=0)
        variance += counted**2 * (ranks**2).sum(axis=0)
    z = np.divide(total, np.sqrt(variance), out=np.zeros_like(total), where=variance > 0)
    p: Float64 = 2 * ndtr(-np.abs(z))
    return p


def _every_way(differences: Float64) -> float:
    """The share of ways to give signs to float64 [n] whose sum of positive ranks is as extreme as theirs."""
    from scipy.stats import rankdata  # heavy

    ranks = rankdata(np.abs(differences))
    positive = np.arange(1 << len(ranks))[:, None] >> np.arange(len(ranks)) & 1
    extremes = np.abs(positive @ ranks - ranks.sum() / 2)
    observed = abs(ranks[differences > 0].sum() - ranks.sum() / 2)
    return float((extremes >= observed - ROUNDING).mean())


def rank_intervals(results: int, better: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The lowest and highest rank that each result may have, from 1 for the best.

    `better` are pairs of results of which the first was shown to be better. The rank of a result is 1 + the
    number of those with a higher true mean; those shown to be better are among them, those shown to be worse
    are not. If the pairs are shown with a family-wise error of 5%, all intervals hold the true ranks together
    in 95% of cases (Mogstad, Romano, Shaikh and Wilhelm, Review of Economic Studies 91(1), 2024).
    """
    above, below = np.zeros(results, dtype=int), np.zeros(results, dtype=int)
    for winner, loser in better:
        above[loser] += 1
        below[winner] += 1
    return list(zip((1 + above).tolist(), (results - below).tolist(), strict=True))
