"""Bounds of means by betting, valid for every distribution of bounded values and at any time of stopping.

A player bets, value by value, that the true mean is above m. If it is not, the capital is not expected to
grow, so that it ever reaches 1 / alpha times what it was has a probability of at most alpha (Ville 1939). No
mean at which it did is believed at the level alpha (Waudby-Smith and Ramdas, J. Royal Statistical Society B
86(1), 2024). Values may be looked at one by one, and more be asked for, without any correction.

A value x of the range from `low` stakes a share u of the capital: it is multiplied by 1 - u + u (x - low) /
(m - low). The capital here is the mean of `STAKES` players, each with a share of his own, spread as Jeffreys'
prior of a proportion is: as a universal portfolio, it loses little against the best share in hindsight
(Cover, Mathematical Finance 1(1), 1991; Orabona and Jun, IEEE Trans. Information Theory 70(1), 2024). The
order of the values does not matter.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from pipeline.core.records import Float64, Int64
from pipeline.metrics.statistics import ONE, ROUNDING, Strata

STAKES = np.square(np.cos(np.pi * np.arange(0.5, 64) / 128))
"""float64 [players], the share of each; nodes of Chebyshev, which are equally likely by Beta(1/2, 1/2)."""
COARSE, FINE = 200, 800
"""Means that are tried for each of several collections: over the whole range, and around its mean."""
STEPS = 60  # of a bisection
SLOPES_AT_0 = 5
"""Queries for which a judge that says nothing is assumed, before any is labelled."""


def growth(values: Float64, means: Float64, low: float) -> Float64:
    """float64 [means, players]: by how much each player's logarithm grows, who bets that the mean is higher.

    Args:
        values: float64 [n], none below `low`.
        means: float64 [means], above `low`.
        low: The lowest that a value can be.
    """
    distinct, times = np.unique(values, return_counts=True)
    total = np.empty((len(means), len(STAKES)))
    for row, mean in zip(total, means.tolist(), strict=True):
        row[:] = times @ np.log1p(np.multiply.outer((distinct - low) / (mean - low) - 1, STAKES))
    return total


def log_capital(grown: Float64, times: float = 1) -> Float64:
    """float64 [means]: the logarithm of the capital, from `growth`; were there so many times the values."""
    from scipy.special import logsumexp

    capital: Float64 = logsumexp(times * grown, axis=1) - log(len(STAKES))
    return capital


class Bets:
    """Bets that a mean is higher, of one collection or the macro mean of several.

    Of several collections the capital is the product of theirs. A macro mean M may come of many means, one of
    each collection: the least capital over all of these counts. The logarithm of a capital is convex in the
    mean, so it is found by walking down the steepest first, from tried mean to tried mean.

    Args:
        strata: For each collection float64 [queries].
        weights: float64 [collections].
        low, high: The range of the values of each collection, float64 [collections].
    """

    def __init__(self, strata: Strata, weights: Float64, low: Float64, high: Float64) -> None:
        self._strata, self._weights, self._low = strata, weights, low
        self._tried: list[Float64] = []
        self._grown: list[Float64] = []
        if len(strata) > 1:
            ranges = zip(strata, low.tolist(), high.tolist(), strict=True)
            self._tried = [_tried_means(values, start, end) for values, start, end in ranges]
            self._grown = [
                growth(values, means, start)
                for values, means, start in zip(strata, self._tried, low.tolist(), strict=True)
            ]

    @classmethod
    def of_one(cls, values: Float64, low: float = -1.0, high: float = 1.0) -> Bets:
        """Bets on values of one collection, float64 [queries], from `low` to `high`."""
        return cls([values], ONE, np.array([low]), np.array([high]))

    def log_capital(self, mean: float, times: float = 1) -> float:
        """The logarithm of the capital of who bets that the mean is higher.

        `times` takes every value to be there so many times.
        """
        if mean <= self._weights @ self._low:
            return inf
        if not self._grown:
            grown = growth(self._strata[0], np.array([mean]), float(self._low[0]))
            return float(log_capital(grown, times)[0])
        means, capital = self._path(times)
        return float(np.interp(mean, means, capital, left=inf, right=-inf))

    def _path(self, times: float) -> tuple[Float64, Float64]:
        """Macro means, ascending, and the least logarithm of the capital at each."""
        capitals = [log_capital(grown, times) for grown in self._grown]
        falls = np.concatenate([np.diff(each) for each in capitals])
        steps = np.concatenate(
            [weight * np.diff(means) for weight, means in zip(self._weights, self._tried, strict=True)]
        )
        steepest = np.argsort(falls / steps, kind="stable")
        first = sum(float(each[0]) for each in capitals)
        lowest = float(self._weights @ [means[0] for means in self._tried])
        means = lowest + np.concatenate([[0], np.cumsum(steps[steepest])])
        return means, first + np.concatenate([[0], np.cumsum(falls[steepest])])

    def p_value(self, mean: float) -> float:
        """Return p against "the true mean is `mean` or less": 1 / capital, at most 1."""
        return float(np.exp(-max(self.log_capital(mean), 0)))

    def lower_bound(self, alpha: float) -> float:
        """The highest mean that is not believed, with all below it; the lowest possible one if none is."""
        wanted = -log(alpha)
        if self._grown:
            means, capital = self._path(1)
            return float(np.interp(-wanted, -capital, means, left=float(self._weights @ self._low)))
        low, high = float(self._low[0]), float(self._strata[0].mean())  # where no player has won anything
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.log_capital(middle) >= wanted else (low, middle)
        return low

    def times_needed(self, mean: float, alpha: float) -> float:
        """How many times as many values, of the same distribution, it takes to pass `mean` at `alpha`.

        Infinite where the capital does not grow.
        """
        wanted, high = -log(alpha), 1.0
        while self.log_capital(mean, high) < wanted:
            high *= 2
            if high > 1 << 30:
                return inf
        low = 0.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.log_capital(mean, middle) >= wanted else (middle, high)
        return high


def _tried_means(values: Float64, low: float, high: float) -> Float64:
    """Means above `low`, ascending; close where the capital bends, so that it is straight in between."""
    n_queries, mean = len(values), values.mean()
    width = 8 * values.std() / np.sqrt(n_queries) + 10 * (high - low) / n_queries
    tried = np.concatenate([np.linspace(low, high, COARSE + 1), mean + width * np.linspace(-1, 1, FINE)])
    return np.unique(tried[(tried > low) & (tried <= high)])


class BetsInOrder:
    """Bets on values one by one, in the order in which they were drawn; look at them after each, and stop.

    Of queries drawn without replacement from N, the mean of those still to come is known for every mean m of
    all: (N · m - the sum so far) / how many are left (Waudby-Smith and Ramdas, *Confidence sequences for
    sampling without replacement*, NeurIPS 2020). A judge's values J of all N are a control variate: a query
    that differs by D counts as D - λ · (J - the mean of J over those left), whose expectation is that of D,
    whatever the judge. λ, from 0 to 1, is the slope over the queries before. One half of the capital is bet
    so, the other without the judge: a bad judge costs at most a factor of two.

    Args:
        values: float64 [n], in the order of drawing.
        low, high: The range of the values; of every query of N a range of its own, float64 [N], is narrower.
        judged: float64 [N], the judge's values of all; None where values are independent draws, without N.
        drawn: int64 [n], the row of each of the values in `judged`.
    """

    def __init__(
        self,
        values: Float64,
        low: Float64 | float = -1.0,
        high: Float64 | float = 1.0,
        judged: Float64 | None = None,
        drawn: Int64 | None = None,
    ) -> None:
        self.values, self._judged = values, judged
        n = len(values)
        before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
        if judged is None or drawn is None:
            self._drift = np.ones(n), np.zeros(n)
            self._bets = [(values, np.full(n, np.min(low)), np.full(n, np.max(high)))]
            return
        left = len(judged) - np.arange(n)
        self._drift = len(judged) / left, before / left
        ends = [np.broadcast_to(np.asarray(end, dtype=np.float64), judged.shape) for end in (low, high)]
        weights = _slopes_before(values, judged, drawn)
        self._bets = []
        for weight in (np.zeros(n), weights) if weights.any() else (np.zeros(n),):
            seen, least, most = np.empty((3, n))
            remain = np.ones(len(judged), dtype=bool)
            for t, row in enumerate(drawn.tolist()):
                shift = weight[t] * (judged[remain] - judged[remain].mean())
                least[t], most[t] = (ends[0][remain] - shift).min(), (ends[1][remain] - shift).max()
                seen[t] = values[t] - weight[t] * (judged[row] - judged[remain].mean())
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
        highest: Float64 = np.maximum.accumulate(capital)
        return highest

    def p_values(self, mean: float, above: bool = True) -> Float64:
        """float64 [n]: p after each value against "the mean is `mean` or less"; or more, if not `above`."""
        p: Float64 = np.exp(-np.maximum(self.log_capital(mean, above), 0))
        return p

    def interval(self, alpha: float) -> tuple[float, float]:
        """Ends that hold the mean with 1 - alpha, whenever and for whatever reason the values end."""
        wanted, ends = log(2 / alpha), []
        furthest = min(float(b[1].min()) for b in self._bets), max(float(b[2].max()) for b in self._bets)
        for above, far in zip((True, False), furthest, strict=True):
            outside, inside = far, float(self.values.mean())
            if self.log_capital(inside, above)[-1] >= wanted:  # the drawn mean itself is not believed
                inside = furthest[1] if above else furthest[0]
            for _ in range(STEPS):
                middle = (outside + inside) / 2
                if self.log_capital(middle, above)[-1] >= wanted:
                    outside = middle
                else:
                    inside = middle
            ends.append(outside)
        return ends[0], ends[1]

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
    slopes: Float64 = np.clip(count * (average[3] - average[0] * average[1]) / square, 0, 1)
    return slopes
