"""Many requests to one server: cut by size, several under way at once, halved where they are refused."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from pipeline.config.server import ServerSettings
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.encoders.http.answers import tokens_of
from pipeline.encoders.http.batches import RequestSize, TooLargeError
from pipeline.encoders.usage import ServerUse, Usage

TEXTS = 32  # of a request: what TEI allows unless it is told otherwise


class Line:
    """A connection to a server, and what it takes in one request; arguments as of `Client`.

    `batch_size` is the most texts of a request; None is `TEXTS`.
    """

    def __init__(
        self, settings: ServerSettings, url: str, name: str, batch_size: int | None, section: str = "model"
    ) -> None:
        self.settings, self.section = settings, section
        self.size = RequestSize(batch_size or TEXTS, settings.batch_tokens)
        from pipeline.encoders.http.client import Client  # imports asyncio, which takes 30 ms

        self.client = Client(settings, url, name, section)


class Asking(ABC):
    """The requests for something about each of some texts.

    Args:
        line: The connection.
        sizes: The bytes that each text takes in a request.
        usage: What the requests cost is added to it.
        bar: Advanced by each text.
    """

    path: ClassVar[str]  # after the server's address

    def __init__(self, line: Line, sizes: Sequence[int], usage: Usage, bar: Bar) -> None:
        self.line, self.sizes, self.usage, self.bar = line, sizes, usage, bar
        self.use = usage.server = ServerUse(
            price_per_million=line.settings.price_per_million_tokens, concurrency=line.settings.concurrency
        )

    @abstractmethod
    def body(self, rows: Sequence[int]) -> dict[str, Any]:
        """The JSON of a request for some texts."""

    @abstractmethod
    def keep(self, rows: Sequence[int], answer: Any) -> None:
        """Check the answer to a request for some texts, and keep what it holds."""

    def groups(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Rows that may be in one request, in the order in which they are cut: the longest texts first."""
        yield sorted(rows, key=lambda row: -self.sizes[row])

    async def all(self, alone: Sequence[int] = ()) -> None:
        """Ask for all texts; for those of `alone` in requests of their own, which are timed."""
        import asyncio

        requests = itertools.chain((([row], True) for row in alone), self._batches(set(alone)))

        async def work() -> None:
            for rows, timed in requests:
                await self._ask(rows, timed)

        tasks = [asyncio.ensure_future(work()) for _ in range(self.line.settings.concurrency)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        self.usage.texts += len(self.sizes)
        self.usage.padded = self.usage.tokens

    def _batches(self, alone: set[int]) -> Iterator[tuple[list[int], bool]]:
        """The rows of each request, cut when it is about to be sent; none of them is timed."""
        size = self.line.size
        for group in self.groups(row for row in range(len(self.sizes)) if row not in alone):
            start = 0
            while start < len(group):
                count = size.next([self.sizes[row] for row in group[start : start + size.texts]])
                yield group[start : start + count], False
                start += count

    async def _ask(self, rows: list[int], timed: bool = False) -> None:
        """Ask for some texts in one request; in two halves if the server refuses so many."""
        line, sizes = self.line, [self.sizes[row] for row in rows]
        tokens = line.size.estimate(sum(sizes))
        try:
            answer, seconds = await line.client.post(self.path, self.body(rows), tokens, self.use)
        except TooLargeError as error:
            if len(rows) == 1:
                raise InputError(
                    f"{line.section}.url: {line.client.url} refuses a text of {sizes[0]:,} bytes: {error}",
                    fix=f"set {line.section}.max_characters, or let the server cut texts that are too long",
                ) from None
            line.size.refused(sizes)
            half = (len(rows) + 1) // 2
            await self._ask(rows[:half])
            await self._ask(rows[half:])
            return
        self.keep(rows, answer)
        self.bar.update(len(rows))
        if timed:
            self.use.seconds.append(seconds)
        counted = tokens_of(answer)
        if counted is not None:
            self.usage.tokens += counted
            self.use.tokens_counted = True
            line.size.count(sum(sizes), counted)
