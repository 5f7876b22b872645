"""Requests to a server, cut by size, with several under way; answers checked: vectors, scores."""

from __future__ import annotations

import base64
import binascii
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from pipeline.core.display import Bar, counted
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Facts, Float32, JsonObject
from pipeline.encoders.batching import ServerUse, Usage
from pipeline.encoders.http.client import Client, RefusedTextError, TooLargeError

Input = tuple[str, ...]
"""What a server is asked for: a text, or a query and a passage. A request holds inputs of one query."""


class ModelClient(ABC):
    """A connection to a server of a model, which gives a row for each input; threads may share it."""

    path: ClassVar[str]  # after the server's address

    def __init__(self, server: Any) -> None:
        self.server, self.settings = server, server.settings
        self.client = Client(server.settings, server.section)

    def close(self) -> None:
        """Cancel what is under way."""
        self.client.close()

    @abstractmethod
    def body(self, inputs: Sequence[Input]) -> JsonObject:
        """The JSON of a request."""

    @abstractmethod
    def read(self, answer: object, passages: Sequence[str]) -> Float32:
        """The vectors [inputs, dimension] or scores [inputs] of an answer, checked."""

    def ask(self, inputs: Sequence[Input], usage: Usage, bar: Bar, alone: Sequence[int] = ()) -> Float32:
        """The rows of some inputs; each input of `alone` has a request of its own, which is timed.

        Raises:
            InputError: The server cannot be reached, refuses, or answers with anything else than finite
                numbers for each input.
        """
        requests = _Requests(self, inputs, usage, bar)
        self.client.run(requests.send_all(alone))
        return np.array(requests.rows, np.float32)


class _Requests:
    """Requests that together send every input once."""

    def __init__(self, model: ModelClient, inputs: Sequence[Input], usage: Usage, bar: Bar) -> None:
        self.model, self.client, self.inputs, self.usage, self.bar = model, model.client, inputs, usage, bar
        self.sizes = [sum(len(text.encode()) for text in each) for each in inputs]
        self.rows: list[Float32 | None] = [None] * len(inputs)
        settings = model.settings
        self.use = usage.server = ServerUse(
            price_per_million=settings.price_per_million_tokens, concurrency=settings.concurrency
        )

    async def send_all(self, alone: Sequence[int]) -> None:
        """Send all inputs; each of `alone` in a request of its own, which is timed."""
        requests = itertools.chain((([row], True) for row in alone), self._batches(set(alone)))

        async def work() -> None:
            for rows, timed in requests:
                await self._send(rows, timed)

        await self.client.work(work)
        self.usage.texts += len(self.inputs)
        self.usage.padded = self.usage.tokens

    def _batches(self, alone: set[int]) -> Iterator[tuple[list[int], bool]]:
        """The inputs of each request, cut when it is about to be sent; none of them is timed."""
        size = self.client.size
        others = (row for row in range(len(self.inputs)) if row not in alone)
        for _, of_query in itertools.groupby(others, key=lambda row: self.inputs[row][:-1]):
            group = sorted(of_query, key=lambda row: -self.sizes[row])
            while group:
                count = size.next([self.sizes[row] for row in group[: size.texts]])
                yield group[:count], False
                group = group[count:]

    async def _send(self, rows: list[int], timed: bool = False) -> None:
        """Send some inputs in one request; in two halves if the server refuses so many, or one of them."""
        client, sizes = self.client, [self.sizes[row] for row in rows]
        if len(rows) > client.size.texts:  # as the server has said of another request meanwhile
            await self._send_halves(rows)
            return
        inputs = [self.inputs[row] for row in rows]
        passages = [each[-1] for each in inputs]
        try:
            answer, seconds = await client.post(self.model.path, self.model.body(inputs), self.use)
        except TooLargeError as error:
            if len(rows) == 1:
                raise InputError(
                    f"{client.section}.url: {client.url} refuses a text of {sizes[0]:,} bytes: {error}",
                    fix=f"set {client.section}.max_characters, or let the server cut texts that are too long",
                ) from None
            client.size.refused(sizes)
            await self._send_halves(rows)
            return
        except RefusedTextError as error:
            if len(rows) == 1:
                raise InputError(
                    f"{error.found}; it was asked for {quoted(passages[0])} alone", fix=error.fix
                ) from None
            await self._send_halves(rows)
            return
        for row, numbers in zip(rows, self.model.read(answer, passages), strict=True):
            self.rows[row] = numbers
        self.bar.update(len(rows))
        if timed:
            self.use.seconds.append(seconds)
        counted = tokens_of(answer)
        if counted is not None:
            self.usage.tokens += counted
            self.use.tokens_counted = True
            client.size.count(sum(sizes), counted)

    async def _send_halves(self, rows: list[int]) -> None:
        half = (len(rows) + 1) // 2
        await self._send(rows[:half])
        await self._send(rows[half:])


def quoted(text: str) -> str:
    """The beginning of a text, for messages."""
    return f"the text {text[:60]!r}{'...' if len(text) > 60 else ''}"


def vectors_of(answer: object, texts: Sequence[str], dimension: int | None, client: Client) -> Float32:
    """The vectors of an answer to a request for those of some `texts`, float32 [texts, dimension].

    They come as lists of numbers, or as base64 of float32 or of float16: the `dimension` tells which. They
    may be in any order, numbered by their `index`.

    Every vector must have the `dimension`, unless that is None. `client` makes the error for anything else.
    """
    rows = _in_order(_items(answer, "data", client), len(texts), "vectors", "texts", client)
    if dimension is None and any(isinstance(row.get("embedding"), str) for row in rows):
        raise client.bad_answer(
            "base64 where numbers are asked for: their format is unknown",
            fix=f"set {client.section}.dimensions to the number of dimensions of the vectors",
        )
    vectors = [_vector(row.get("embedding"), dimension) for row in rows]
    _check_each([len(vector) > 0 for vector in vectors], "what is no vector", texts, client)
    dimensions = {len(vector) for vector in vectors} | ({dimension} if dimension else set())
    if len(dimensions) > 1:
        sizes = " and ".join(f"{size:,}" for size in sorted(dimensions))
        expected = f", and {dimension:,} are expected" if dimension else ""
        raise client.bad_answer(f"vectors of {sizes} dimensions{expected}")
    joined = np.stack(vectors, dtype=np.float32)
    _check_each(np.all(np.isfinite(joined), axis=1), "a vector that holds NaN or infinity", texts, client)
    _check_each(np.any(joined, axis=1), "a vector of length 0, which has no direction,", texts, client)
    return joined


def _check_each(right: Sequence[bool] | BoolArray, what: str, texts: Sequence[str], client: Client) -> None:
    """Refuse an answer whose vectors are not all right, and name the text of the first one that is not."""
    if not all(right):
        raise client.bad_answer(f"{what} for {quoted(texts[int(np.argmin(right))])}")


def scores_of(answer: object, count: int, client: Client) -> Float32:
    """The scores of an answer to a request for those of `count` passages, float32 [count]; see `vectors_of`.

    They are in `results` as `relevance_score` (Cohere, Jina, vLLM, Infinity), or a bare list of `score`s
    (TEI), often the best first.
    """
    items = answer if isinstance(answer, list) else _items(answer, "results", client)
    rows = _in_order(items, count, "scores", "passages", client)
    values = [row.get("relevance_score", row.get("score")) for row in rows]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        raise client.bad_answer("a score that is no number")
    try:
        scores = np.array(values, np.float32)
    except OverflowError:  # a whole number
        scores = np.array([np.inf], np.float32)
    if not np.isfinite(scores).all():
        raise client.bad_answer("a score that is NaN or infinite")
    return scores


def tokens_of(answer: object) -> int | None:
    """The number of tokens that a server counted in a request; None if it does not say."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    counts = (usage.get(name) for name in ("prompt_tokens", "total_tokens", "input_tokens"))
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def _items(answer: object, name: str, client: Client) -> list[object]:
    """The list in an answer."""
    if not isinstance(answer, Mapping):
        raise client.bad_answer(f"what is no JSON of {'vectors' if name == 'data' else 'scores'}", answer)
    if not isinstance(answer.get(name), list):
        raise client.bad_answer(f"JSON without a list '{name}'", answer)
    return list(answer[name])


def _in_order(items: list[object], count: int, what: str, inputs: str, client: Client) -> list[Facts]:
    """The items by their `index`, which must be 0 to `count` - 1, each once; one alone needs none."""
    if len(items) != count:
        raise client.bad_answer(f"{counted(len(items), what[:-1])} for {counted(count, inputs[:-1])}")
    rows = [item for item in items if isinstance(item, dict)]
    if len(rows) < len(items):
        raise client.bad_answer(f"{what} that are no JSON objects")
    if count == 1:
        return rows
    numbers = [row.get("index") for row in rows]
    if sorted(number for number in numbers if isinstance(number, int)) != list(range(count)):
        raise client.bad_answer(
            f"{what} that are not numbered from 0 to {count - 1}, each once, by `index`",
            fix=f"update the server, or set {client.section}.batch_size to 1",
        )
    return sorted(rows, key=lambda row: row["index"])


def _vector(value: object, dimension: int | None) -> Float32:
    """A vector, float32 [dimension], from a list of numbers or base64 of little-endian numbers.

    It is empty if the value is neither.
    """
    vector: Float32
    try:
        if isinstance(value, str):
            content = base64.b64decode(value, validate=True)
            half = dimension is not None and len(content) == 2 * dimension
            vector = np.frombuffer(content, "<f2" if half else "<f4").astype(np.float32)
        else:
            if not {*map(type, value)} <= {int, float}:  # type: ignore[call-overload]
                raise TypeError("not numbers")
            with np.errstate(over="ignore"):  # infinite numbers are refused after it
                vector = np.array(value, np.float64).astype(np.float32)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        vector = np.empty(0, np.float32)
    return vector if vector.ndim == 1 else np.empty(0, np.float32)
