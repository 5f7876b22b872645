"""The pace of requests: no more of them, and of their tokens, in a minute than a server allows."""

from __future__ import annotations


class Limits:
    """Says when the next request may be sent. Requests are spread evenly, so that none is refused for pace.

    Args:
        requests_per_minute: None is any number.
        tokens_per_minute: None is any number.
    """

    def __init__(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._for_request = 60 / requests_per_minute if requests_per_minute else 0.0
        self._for_token = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._free = self._paused = 0.0

    def reserve(self, tokens: float, now: float) -> float:
        """The time at which a request of so many tokens may be sent, not before `now`; in seconds.

        It is counted: the next one gets a later time.
        """
        start = max(now, self._free, self._paused)
        self._free = start + max(self._for_request, self._for_token * tokens)
        return start

    def pause(self, until: float) -> None:
        """Let no request be sent before a time: the server has asked for a pause."""
        self._paused = max(self._paused, until)

    def paused(self, now: float) -> float:
        """Seconds until a pause is over; 0 if there is none."""
        return max(self._paused - now, 0.0)
