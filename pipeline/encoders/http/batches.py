"""Texts cut into requests, by their number and by their tokens, which are estimated from bytes."""

from __future__ import annotations

from collections.abc import Sequence

BYTES_PER_TOKEN = 3.0  # until a server has said how many tokens it counted; English has about four


class TooLargeError(Exception):
    """A request that the server refuses for its size; the message is the server's."""


class RequestSize:
    """The most texts and tokens of a request, lowered where the server refuses one.

    Args:
        texts: The most texts.
        tokens: The most tokens, as they are estimated.
    """

    def __init__(self, texts: int, tokens: int) -> None:
        self.texts, self.tokens = texts, tokens
        self._bytes = self._counted = 0

    def count(self, size: int, tokens: int) -> None:
        """Learn from the number of tokens that a server has counted in so many bytes."""
        self._bytes += size
        self._counted += tokens

    def estimate(self, size: int) -> float:
        """The number of tokens of so many bytes."""
        return size * self._counted / self._bytes if self._bytes else size / BYTES_PER_TOKEN

    def next(self, sizes: Sequence[int]) -> int:
        """How many of some texts, given by their bytes, the next request takes: one at least."""
        budget, taken = float(self.tokens), 0
        for size in sizes[: self.texts]:
            budget -= self.estimate(size)
            if budget < 0 and taken:
                break
            taken += 1
        return taken

    def refused(self, sizes: Sequence[int]) -> None:
        """Halve the limits, after a server has refused several texts, given by their bytes, as too many."""
        self.texts = max(min(self.texts, len(sizes) // 2), 1)
        self.tokens = max(min(self.tokens, int(self.estimate(sum(sizes)) / 2)), 1)
