"""Betting on a mean: bounds for every distribution of bounded values, valid at any time of stopping.

A player bets, value by value, that the true mean is above m. If it is not, the capital is not expected to
grow, so that it ever reaches 1 / alpha times what it was has a probability of at most alpha (Ville 1939). No
mean at which it did is believed at the level alpha (Waudby-Smith and Ramdas, J. Royal Statistical Society B
86(1), 2024).

A value x of the range from `low` stakes a share u of the capital: it is multiplied by 1 - u + u (x - low) /
(m - low). The capital is the mean of `STAKES` players, each with another share, spread as Jeffreys' prior of
a proportion is: as a universal portfolio, it loses little against the best share in hindsight (Cover,
Mathematical Finance 1(1), 1991; Orabona and Jun, IEEE Trans. Information Theory 70(1), 2024).
"""

from __future__ import annotations

import numpy as np

STAKES = np.square(np.cos(np.pi * np.arange(0.5, 64) / 128))
"""float64 [players], the share of each; nodes of Chebyshev, which are equally likely by Beta(1/2, 1/2)."""
