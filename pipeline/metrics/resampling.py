"""Tests by resampling: the studentized bootstrap of means, and randomizations.

Strata and weights are those of `pipeline.metrics.statistics`.

If two runs are equally good, the values of a query could as well have changed places, which changes the sign
of its difference. A randomization changes the signs of random queries. The statistic is Student's t, but
changing signs leaves the sum of squares as it is, so t grows with |sum|, which is compared instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.statistics import ONE, ROUNDING, Strata

RESAMPLES = 10_000
SEED_OF_ONE, SEED = 20191, 20192  # of one collection, of several
DRAWN_OF_ONE, DRAWN_AT_ONCE = 1 << 17, 1 << 20  # random draws made at once; they shape the random numbers


def resampled_t(strata: Strata, weights: Float64, resamples: int | None = None) -> Float64:
    """float64 [resamples, columns]: (M* - M) over its standard error in each of 10,000 resamples.

    The studentized bootstrap (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, section 12.5).

    Of several collections, n - 1 of n queries are drawn, so that their variance is that of M without bias
    (Rao and Wu, J. American Statistical Association 83(401), 1988). Without spread t is infinite, unless the
    mean is the observed one.
    """
    one, resamples = len(strata) == 1, resamples or RESAMPLES
    generator = np.random.default_rng(SEED_OF_ONE if one else SEED)
    total, variance = np.zeros((2, resamples, strata[0].shape[1]))
    for values, weight in zip(strata, weights, strict=True):
        drawn = len(values) if one else len(values) - 1
        centred = values - values.mean(axis=0)
        both = np.hstack([centred, centred**2])
        block = DRAWN_OF_ONE if one else DRAWN_AT_ONCE
        for start, times in _draws(len(values), drawn, resamples, block, generator):
            rows = slice(start, start + len(times))
            means, squares = np.hsplit(times @ both / drawn, 2)
            total[rows] += weight * means
            variance[rows] += weight**2 * np.maximum(squares - means**2, 0) / max(drawn - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(total) <= ROUNDING, 0.0, total / np.sqrt(variance))


def _draws(
    n_queries: int, drawn: int, resamples: int, block: int, generator: np.random.Generator
) -> Iterator[tuple[int, Float64]]:
    """Blocks of resamples: the first one's number, and float64 [rows, n_queries]: times each was drawn."""
    rows = max(block // n_queries, 1)
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        queries = generator.integers(n_queries, size=(size, drawn), dtype=np.int32)
        queries += np.arange(size, dtype=np.int32)[:, None] * n_queries  # so that one count serves all rows
        times = np.bincount(queries.ravel(), minlength=size * n_queries).reshape(size, n_queries)
        yield start, times.astype(np.float64)


PERMUTATIONS = 20_000
EXACT_QUERIES = 14
"""Up to so many queries, all 2^queries ways to change signs are counted."""
SEED_OF_SIGNS = 20190
BLOCK_SWAPS = 1 << 20  # random swaps made at once
BLOCK_ROWS = 1 << 11  # ways made at once


def randomization_test(strata: Strata, weights: Float64 = ONE) -> Float64:
    """Two-sided p that the mean of differences is 0, of each column alone.

    20,000 ways to change signs are drawn from a fixed seed, the same for every column. The observed one is
    counted as one more, so that p is never 0 (Smucker, Allan and Carterette, CIKM 2007; Phipson and Smyth,
    Statistical Applications in Genetics and Molecular Biology 9(1), 2010). With up to 14 queries, all ways
    are counted instead, and p is exact. The queries of several collections count as those of one, each by the
    weight that it has in M.

    Args:
        strata: For each collection float64 [queries, columns], 0 where runs differ by rounding alone.
        weights: Of the collections.

    Returns:
        float64 [columns].
    """
    shares = weights / [len(values) for values in strata] if len(strata) > 1 else ONE
    changes = np.vstack([values * share for values, share in zip(strata, shares, strict=True)])
    n_queries = len(changes)
    scale = np.abs(changes).max(initial=0) or 1.0  # so that no sum is too large or too small
    changes = changes / scale
    totals, sizes = changes.sum(axis=0), np.abs(changes).sum(axis=0)
    observed = np.abs(totals) - ROUNDING * sizes
    reached = np.zeros(changes.shape[1])
    drawn = n_queries > EXACT_QUERIES  # else the observed way is among all of them
    generator = np.random.default_rng(SEED_OF_SIGNS)
    ways = PERMUTATIONS if drawn else 1 << n_queries
    rows = min(max(BLOCK_SWAPS // n_queries, 1), BLOCK_ROWS) if drawn else ways
    for start in range(0, ways, rows):
        # float64 [rows, queries]: 1 where the values of a query change places, from a random bit or the bit
        # of the number of the way
        block = min(rows, ways - start)
        if drawn:
            packed = np.frombuffer(generator.bytes(block * -(-n_queries // 8)), dtype=np.uint8)
            swaps = np.unpackbits(packed).reshape(block, -1)[:, :n_queries].astype(np.float64)
        else:
            swaps = (np.arange(ways)[:, None] >> np.arange(n_queries) & 1).astype(np.float64)
        reached += (np.abs(totals - 2 * (swaps @ changes)) >= observed).sum(axis=0)
    return (drawn + reached) / (drawn + ways)
