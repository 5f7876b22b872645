"""Requests to a server, cut by size, with several under way; answers checked: vectors, scores."""

from __future__ import annotations

import base64
import binascii
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from pipeline.config.stages import OPENAI, TEXTS, ServerSettings
from pipeline.core.display import Bar, counted
from pipeline.core.errors import InputError, short_repr
from pipeline.core.installation import require
from pipeline.core.records import Float32
from pipeline.encoders.batching import ServerUse, Usage

BYTES_PER_TOKEN = 3.0  # until a server has said how many tokens it counted; English has about four
Refuse = Callable[[str], Exception]
"""Makes the error for an answer, from what it is, such as `Client.bad_answer`."""


class TooLargeError(Exception):
    """A request that the server refuses for its size; the message is the server's."""


def key_of(settings: ServerSettings, url: str, section: str) -> str | None:
    """The key from the environment; None if none is needed.

    Raises:
        InputError: It is not there, or the package `openai` is not.
    """
    require("openai", "http", f"{section}.backend: http")
    name = settings.api_key_env or ("OPENAI_API_KEY" if url == OPENAI else None)
    key = os.environ.get(name, "").strip() if name else None
    if key == "":
        raise InputError(
            f"{section}.api_key_env: the environment variable that it names is not set"
            if settings.api_key_env
            else f"{section}.url: {OPENAI} wants a key, and OPENAI_API_KEY is not set",
            fix="export it before the run; do not write the key itself into a config",
        )
    return key


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


class Client(Protocol):
    """See `pipeline.encoders.http.client.Client`, whose module imports asyncio, which takes 30 ms."""

    url: str

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the client's thread."""

    def close(self) -> None:
        """Cancel what is under way."""

    async def post(
        self, path: str, body: Mapping[str, Any], tokens: float, use: ServerUse
    ) -> tuple[Any, float]:
        """The answer to a request, and the seconds it took."""
        ...

    def bad_answer(self, what: str) -> InputError:
        """The error for an answer that is not what was asked for."""
        ...


class Line:
    """A connection to a server, and what it takes in one request.

    Args:
        client: Asks the server.
        settings: How it may be asked.
        batch_size: The most texts of a request; None is `TEXTS`.
        section: The section of the config, for messages.
    """

    def __init__(
        self, client: Client, settings: ServerSettings, batch_size: int | None, section: str = "model"
    ) -> None:
        self.client, self.settings, self.section = client, settings, section
        self.size = RequestSize(batch_size or TEXTS, settings.batch_tokens)


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


def vectors_of(answer: Any, texts: int, dimension: int | None, refuse: Refuse) -> Float32:
    """The vectors of an answer to a request for those of some texts, float32 [texts, dimension].

    They come as lists of numbers or as base64 of float32, in any order, numbered by their `index`.

    Args:
        answer: JSON.
        texts: How many texts were sent.
        dimension: What every vector must have; None if it is not known yet.
        refuse: Makes the error that is raised if the answer is anything else.
    """
    rows = _in_order(_items(answer, "data", refuse), texts, "vectors", "texts", refuse)
    vectors = [_vector(row.get("embedding"), refuse) for row in rows]
    dimensions = {len(vector) for vector in vectors} | ({dimension} if dimension else set())
    if len(dimensions) > 1:
        found = " and ".join(f"{each:,}" for each in sorted(dimensions))
        expected = f", and {dimension:,} are expected" if dimension else ""
        raise refuse(f"vectors of {found} dimensions{expected}")
    joined = np.stack(vectors, dtype=np.float32)
    if not np.isfinite(joined).all():
        raise refuse("a vector that holds NaN or infinity")
    if not joined.any(axis=1).all():
        raise refuse("a vector of length 0, which has no direction")
    return joined


def scores_of(answer: Any, passages: int, refuse: Refuse) -> Float32:
    """The scores of an answer to a request for those of some passages, float32 [passages]; see `vectors_of`.

    They are in `results` as `relevance_score` (Cohere, Jina, vLLM, Infinity), or a bare list of `score`s
    (TEI).
    """
    items = answer if isinstance(answer, list) else _items(answer, "results", refuse)
    rows = _in_order(items, passages, "scores", "passages", refuse)
    found = [row.get("relevance_score", row.get("score")) for row in rows]
    if not all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in found):
        raise refuse(f"a score that is no number: {short_repr(rows[0])}")
    scores = np.array(found, np.float32)
    if not np.isfinite(scores).all():
        raise refuse("a score that is NaN or infinite")
    return scores


def tokens_of(answer: Any) -> int | None:
    """The number of tokens that a server counted in a request; None if it does not say."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    counts = (usage.get(name) for name in ("prompt_tokens", "total_tokens", "input_tokens"))
    return next((each for each in counts if isinstance(each, int) and each > 0), None)


def _items(answer: Any, name: str, refuse: Refuse) -> list[Any]:
    """The list in an answer."""
    if not isinstance(answer, Mapping):
        raise refuse(f"what is no JSON of {'vectors' if name == 'data' else 'scores'}: {short_repr(answer)}")
    if not isinstance(answer.get(name), list):
        raise refuse(f"JSON without a list '{name}': {short_repr(dict(answer))}")
    items: list[Any] = answer[name]
    return items


def _in_order(
    items: list[Any], count: int, what: str, asked: str, refuse: Refuse
) -> Sequence[Mapping[str, Any]]:
    """The items by their `index`, which must be 0 to `count` - 1, each once; without any, as they come."""
    if len(items) != count:
        raise refuse(f"{counted(len(items), what[:-1])} for {counted(count, asked[:-1])}")
    if not all(isinstance(item, Mapping) for item in items):
        raise refuse(f"{what} that are no JSON objects")
    numbers = [item.get("index") for item in items]
    if all(number is None for number in numbers):
        return items
    if sorted(number for number in numbers if isinstance(number, int)) != list(range(count)):
        raise refuse(f"{what} that are not numbered from 0 to {count - 1}, each once")
    return sorted(items, key=lambda item: item["index"])


def _vector(given: Any, refuse: Refuse) -> Float32:
    """A vector, float32 [dimension], from a list of numbers or base64 of little-endian float32."""
    vector: Float32
    try:
        if isinstance(given, str):
            vector = np.frombuffer(base64.b64decode(given, validate=True), "<f4")
        else:
            with np.errstate(over="ignore"):  # infinite numbers are refused after it
                vector = np.array(given, np.float64).astype(np.float32)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        vector = np.empty(0, np.float32)
    if vector.ndim != 1 or not len(vector):
        raise refuse(f"what is no vector: {short_repr(given)}")
    return vector
