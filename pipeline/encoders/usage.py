"""The cost of encoding texts or scoring pairs, here or at a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ServerUse:
    """What asking a server took.

    Attributes:
        requests: Requests that were sent, those that were sent again included.
        retries: Requests that were sent again.
        tokens_counted: Whether the server has said how many tokens it counted.
        price_per_million: The price of 1,000,000 tokens; None if it is not known.
        concurrency: Requests that may be under way at once.
        seconds: Of each text that was asked for alone, the time from sending it to its answer.
    """

    requests: int = 0
    retries: int = 0
    tokens_counted: bool = False
    price_per_million: float | None = None
    concurrency: int = 1
    seconds: list[float] = field(default_factory=list)

    def add(self, other: ServerUse) -> None:
        """Add what asking the same server for other texts took."""
        self.requests += other.requests
        self.retries += other.retries
        self.tokens_counted |= other.tokens_counted
        self.price_per_million, self.concurrency = other.price_per_million, other.concurrency
        self.seconds += other.seconds

    def figures(self, tokens: int) -> dict[str, Any]:
        """JSON for results, with the price of some tokens and the median and two percentiles of seconds."""
        shown: dict[str, Any] = {"requests": self.requests, "retries": self.retries}
        shown["concurrency"] = self.concurrency
        if self.price_per_million is not None and self.tokens_counted:
            shown["price"] = tokens * self.price_per_million / 1e6
        if self.seconds:
            import numpy as np

            median, p95, p99 = np.percentile(self.seconds, [50, 95, 99]).tolist()
            shown["seconds_alone"] = {"median": median, "p95": p95, "p99": p99, "texts": len(self.seconds)}
        return shown


@dataclass
class Usage:
    """The cost of encoding texts."""

    texts: int = 0
    tokens: int = 0  # of these texts, special tokens included
    padded: int = 0  # tokens computed, padding included
    tokenize_seconds: float = 0.0
    server: ServerUse | None = None  # of a served model

    def add(self, other: Usage) -> None:
        """Add the cost of encoding other texts."""
        self.texts += other.texts
        self.tokens += other.tokens
        self.padded += other.padded
        self.tokenize_seconds += other.tokenize_seconds
        if other.server:
            self.server = self.server or ServerUse()
            self.server.add(other.server)

    def figures(self) -> dict[str, Any]:
        """The attributes as JSON, with the padding's share of computed tokens."""
        share = 1 - self.tokens / self.padded if self.padded else 0.0
        return {
            "texts": self.texts,
            "tokens": self.tokens,
            "padded": self.padded,
            "tokenize_seconds": self.tokenize_seconds,
            "padding_share": round(share, 4),
            **(self.server.figures(self.tokens) if self.server else {}),
        }
