"""How many texts are encoded before their rows are written, so that a killed run loses little."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST = 128  # texts of the first parts, and of the smallest: batches of fewer are slower
LONGEST = 60.0  # seconds that a part should take at most
LEAST = 5.0  # seconds below which a part would be too short to be worth a file of its own
SHARE = 4  # a part takes this fraction of the time worked so far, so that most of it is on disk


class Pace:
    """The size of the next part, from the speed so far.

    A part takes a quarter of the time worked so far, at least `LEAST` and at most `LONGEST` seconds: so of a
    run that is killed about four fifths of the work are kept, and of a long one all but a minute.

    Args:
        most: Texts of the largest part.
        clock: Gives the time in seconds.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.workers = 1  # parts that are done at once
        self._most, self._clock = most, clock
        self._started = clock()
        self._done = 0

    def start(self) -> None:
        """Begin to count time."""
        self._started = self._clock()

    def count(self, texts: int) -> None:
        """Count texts that have been encoded."""
        self._done += texts

    @property
    def texts(self) -> int:
        """How many texts the next part should hold."""
        if not self._done:
            return min(FIRST, self._most)
        worked = max(self._clock() - self._started, 1e-9)
        seconds = min(max(worked / SHARE, LEAST), LONGEST)
        by_time = int(seconds * self._done / worked / self.workers)
        return min(max(by_time, FIRST), self._most)
