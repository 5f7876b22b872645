"""Bounds of means by betting, of one collection or the macro mean of several.

The bets are those of `pipeline.studies.shared.betting`. The order of the values does not matter.
"""

from __future__ import annotations

from math import inf, log

import numpy as np

from pipeline.core.records import Float64
from pipeline.metrics.statistics import ONE, Strata
from pipeline.studies.shared.betting import STAKES

COARSE, FINE = 200, 800
"""Means that are tried for each of several collections: over the whole range, and around its mean."""
STEPS = 60  # of a bisection


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
            for values, start, end in zip(strata, low.tolist(), high.tolist(), strict=True):
                # close where the capital bends, so that it is straight in between
                width = 8 * values.std() / np.sqrt(len(values)) + 10 * (end - start) / len(values)
                fine = values.mean() + width * np.linspace(-1, 1, FINE)
                tried = np.unique(np.concatenate([np.linspace(start, end, COARSE + 1), fine]))
                self._tried.append(tried[(tried > start) & (tried <= end)])
                self._grown.append(growth(values, self._tried[-1], start))

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
