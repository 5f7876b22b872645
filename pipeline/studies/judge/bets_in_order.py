"""Bets on people's labels one by one, with a judge's values of all queries: when is a difference decided?

See `pipeline.studies.shared.betting` for the bets.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.statistics import ROUNDING
from pipeline.studies.shared.betting import STAKES

SLOPES_AT_0 = 5
"""Queries for which a judge that says nothing is assumed, before any is labelled."""


class BetsInOrder:
    """Bets on values one by one, in the order in which they were drawn; look at them after each, and stop.

    Of queries drawn without replacement from N, the mean of those still to come is known for every mean m of
    all: (N · m - the sum so far) / how many are left (Waudby-Smith and Ramdas, *Confidence sequences for
    sampling without replacement*, NeurIPS 2020). Where they are drawn in proportion to weights, a query
    counts its mean weight among those left over its own (Shekhar, Xu, Lipton, Liang and Ramdas,
    *Risk-limiting financial audits via weighted sampling without replacement*, UAI 2023). A judge's values J
    of all N are a control variate: λ times what J would count, less the mean of J over those left, is
    subtracted, whose expectation is 0, whatever the judge. λ, from 0 to 1, is the slope over the queries
    before. One half of the capital is bet so, the other without the judge: a bad judge costs at most a factor
    of two.

    Args:
        values: float64 [n], in the order of drawing.
        low, high: The range of the values; of every query of N a range of its own, float64 [N], is narrower.
        judged: float64 [N], the judge's values of all.
        drawn: int64 [n], the row of each of the values in `judged`.
        weights: float64 [N], above 0: what queries were drawn in proportion to; None if to nothing.
    """

    def __init__(
        self,
        values: Float64,
        low: Float64 | float,
        high: Float64 | float,
        judged: Float64,
        drawn: Int64,
        weights: Float64 | None = None,
    ) -> None:
        n = len(values)
        before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
        left = len(judged) - np.arange(n)
        self._drift = len(judged) / left, before / left
        ends = [np.broadcast_to(np.asarray(end, dtype=np.float64), judged.shape) for end in (low, high)]
        weights = np.ones(len(judged)) if weights is None else weights
        slopes = _slopes_before(values, judged, drawn)
        self._bets = []
        for slope in (np.zeros(n), slopes) if slopes.any() else (np.zeros(n),):
            seen, least, most = np.empty((3, n))
            remain = np.ones(len(judged), dtype=bool)
            for t, row in enumerate(drawn.tolist()):
                shift = slope[t] * judged[remain]
                counts = weights[remain].mean() / weights[remain]
                expected = shift.mean()
                least[t] = ((ends[0][remain] - shift) * counts).min() + expected
                most[t] = ((ends[1][remain] - shift) * counts).max() + expected
                count = weights[remain].mean() / weights[row]
                seen[t] = (values[t] - slope[t] * judged[row]) * count + expected
                remain[row] = False
            self._bets.append((seen, least, most))

    def log_capital(self, mean: float, above: bool = True) -> Float64:
        """float64 [n]: the logarithm of the highest capital up to each value.

        Of bets that the mean is higher; that it is lower, if not `above`.
        """
        from scipy.special import logsumexp

        sign = 1 if above else -1
        grown = []
        for seen, least, most in self._bets:
            end = least if above else -most
            rest = sign * (self._drift[0] * mean - self._drift[1]) - end  # expected, above the lowest value
            possible = rest > ROUNDING
            ratio = (sign * seen - end) / np.where(possible, rest, 1)
            steps = np.log1p(np.multiply.outer(ratio - 1, STAKES))
            steps[~possible] = np.where(rest[~possible] < -ROUNDING, inf, 0)[:, None]
            grown.append(np.cumsum(steps, axis=0))
        together = np.concatenate(grown, axis=1)
        capital = logsumexp(together, axis=1) - log(together.shape[1])
        return np.maximum.accumulate(capital)

    def decided(self, alpha: float, mean: float = 0.0) -> tuple[int, int]:
        """After how many values the side of `mean` is decided, and the side: 1 above, -1 below.

        At most `alpha` of decisions are for the wrong side. (0, 0) where there is none yet.
        """
        first = []
        for side, above in ((1, True), (-1, False)):
            reached = np.flatnonzero(self.log_capital(mean, above) >= log(2 / alpha))
            if len(reached):
                first.append((int(reached[0]) + 1, side))
        return min(first, default=(0, 0))


def _slopes_before(values: Float64, judged: Float64, drawn: Int64) -> Float64:
    """float64 [n]: the slope of values on the judge's over those before each, shrunk, from 0 to 1."""
    spread = float(judged.var())
    if spread <= ROUNDING:
        return np.zeros(len(values))
    x, y = judged[drawn] - judged.mean(), values
    count = np.arange(len(values))
    sums = [np.concatenate([[0.0], np.cumsum(each)[:-1]]) for each in (x, y, x * x, x * y)]
    average = [each / np.maximum(count, 1) for each in sums]
    square = count * (average[2] - average[0] ** 2) + SLOPES_AT_0 * spread
    return np.clip(count * (average[3] - average[0] * average[1]) / square, 0, 1)
