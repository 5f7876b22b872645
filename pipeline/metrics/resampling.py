"""The randomization test of paired differences.

Strata and weights are those of `pipeline.metrics.statistics`.

If two runs are equally good, the values of a query could as well have changed places, which changes the sign
of its difference. A randomization changes the signs of random queries. The statistic is Student's t, but
changing signs leaves the sum of squares as it is, so t grows with |sum|, which is compared instead.
"""

from __future__ import annotations

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.statistics import ONE, ROUNDING, Strata

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
