"""What measures are on average over all orders of tied documents, where their own formula does not say it.

All orders of each group of tied documents are equally likely (McSherry and Najork, *Computing information
retrieval performance measures efficiently in the presence of tied scores*, ECIR 2008). No order is drawn:
each function is a closed form, with the arguments of the measure's formula.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.measures import content
from pipeline.metrics.rankings import Discount, JudgedRanking, TiedCells, ratio

NEGLIGIBLE = 1e-20  # a probability that changes no sum of 100,000 terms at 1e-15


def expected_r_precision(judged: JudgedRanking[TiedCells], cutoffs: Int64, rel: float) -> Float64:
    """float64 [queries, 1], as the measure has no cutoff."""
    n_relevant, relevant = judged.n_relevant(rel), judged.found.relevant(rel)
    return ratio(relevant.total(n_relevant[relevant.queries]), n_relevant)


def expected_map(judged: JudgedRanking[TiedCells], cutoffs: Int64, rel: float, norm: str) -> Float64:
    """NaN of norm=retrieved, which divides by what depends on the order too.

    Of the R - 1 other relevant documents of a group of n, (R - 1) / (n - 1) are expected at each rank. The
    precision expected at the j-th rank of the group, below `above` documents with r relevant ones, is
    (r + 1 + (j - 1) slope) / (above + j) = (r + 1 - (above + 1) slope) / rank + slope.
    """
    if norm != "all":
        return np.full((judged.found.n_queries, len(cutoffs)), np.nan)
    relevant = judged.found.relevant(rel)
    before, within = relevant.counts()
    slope = ratio((within - 1).astype(np.float64), relevant.size - 1)
    at_rank = before + 1 - (relevant.above + 1) * slope
    precisions = relevant.total(cutoffs, at_rank, np.divide) + relevant.total(cutoffs, slope)
    return ratio(precisions, judged.n_relevant(rel))


def expected_bpref(judged: JudgedRanking[TiedCells], cutoffs: Int64, rel: float) -> Float64:
    """From none to all N non-relevant documents of its group stand above a relevant one, equally likely."""
    labelled, relevant = judged.found.relevant(0), judged.found.relevant(rel)
    is_relevant = labelled.grades >= rel
    all_before, all_within = labelled.counts()
    before, within = relevant.counts()
    before, within = all_before[is_relevant] - before, all_within[is_relevant] - within
    n_relevant = judged.n_relevant(rel)
    most = np.minimum(n_relevant, judged.n_relevant(0) - n_relevant)[relevant.queries, 0]
    below = np.clip(most - before, 0, within + 1)  # how many of these N + 1 numbers are below the most
    above = (below * before + below * (below - 1) / 2 + (within + 1 - below) * most) / (within + 1)
    return ratio(relevant.total(cutoffs, 1 - ratio(above, most)), n_relevant)


def expected_success(judged: JudgedRanking[TiedCells], cutoffs: Int64, rel: float) -> Float64:
    """A reader stops at the first relevant document; all ranks are worth the same."""
    relevant = judged.found.relevant(rel)
    return _worth_of_stopping(relevant, cutoffs, np.ones(len(relevant.grades)), lambda values, _: values)


def expected_mrr(judged: JudgedRanking[TiedCells], cutoffs: Int64, rel: float) -> Float64:
    """A reader stops at the first relevant document; a rank is worth 1 / rank."""
    relevant = judged.found.relevant(rel)
    return _worth_of_stopping(relevant, cutoffs, np.ones(len(relevant.grades)), np.divide)


def expected_err(judged: JudgedRanking[TiedCells], cutoffs: Int64) -> Float64:
    """A reader stops where a document of some grade contents; a rank is worth 1 / rank."""
    relevant = judged.found.relevant(1)
    return _worth_of_stopping(relevant, cutoffs, content(relevant.grades), np.divide)


def _worth_of_stopping(cells: TiedCells, cutoffs: Int64, stops: Float64, discount: Discount) -> Float64:
    """The expected worth of the rank at which a reader stops, float64 [queries, cutoffs].

    `stops`, [cells], is the probability that a document ends the reading; `discount` what a rank is worth.
    """
    worth = discount(np.ones(len(cells.ranks())), cells.ranks())
    total = np.zeros((cells.n_queries, len(cutoffs)))
    reads = np.ones(cells.n_queries)  # the probability to read the next group
    _, start, end = cells.groups()
    for cell in np.unique(start):
        query, above, size = cells.queries[cell], cells.above[cell], cells.size[cell]
        if reads[query] == 0:
            continue
        onward = reads[query] * _reads_on(stops[cell : end[cell]], size)
        stopped = np.cumsum((onward[:-1] - onward[1:]) * worth[above : above + size])
        total[query] += np.concatenate(([0.0], stopped))[np.clip(cutoffs - above, 0, size)]
        reads[query] = onward[size]
    return total


def _reads_on(stops: Float64, size: int) -> Float64:
    """float64 [size + 1]: the probability that a reader goes on after 0, 1, … documents of a group.

    Each document either ends the reading or not, at whatever rank it stands. If S documents of n do, the
    first j hold none of them with the probability (n - S) (n - S - 1) … / n (n - 1) …, of j factors each.
    """
    first, chances = _how_many_stop(stops)
    i = np.arange(size)
    onward = np.zeros(size + 1)
    for number, chance in enumerate(chances, first):
        onward += chance * np.concatenate(([1.0], np.cumprod(np.maximum(size - number - i, 0) / (size - i))))
    return onward


def _how_many_stop(stops: Float64) -> tuple[int, Float64]:
    """How many of some documents end the reading: a number, and the probabilities of it and those after it.

    Documents of one probability give a binomial distribution: from its highest value, both ways by the ratio
    of successive ones, so that nothing overflows. Probabilities below `NEGLIGIBLE` are left out.
    """
    first, chances = 0, np.ones(1)
    for stop, n in zip(*np.unique(stops, return_counts=True), strict=True):
        if stop == 1:
            first += n
            continue
        k = np.arange(n)
        growth = (n - k) / (k + 1) * (stop / (1 - stop))  # of the probability from k to k + 1
        mode = int((n + 1) * stop)
        below, above = np.cumprod(1 / growth[:mode][::-1])[::-1], np.cumprod(growth[mode:])
        binomial = np.concatenate((below, [1.0], above))
        joint = np.convolve(chances, binomial / binomial.sum())
        likely = np.flatnonzero(joint > NEGLIGIBLE)
        first, chances = first + likely[0], joint[likely[0] : likely[-1] + 1]
    return int(first), chances
