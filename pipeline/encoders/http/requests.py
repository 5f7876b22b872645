"""Requests to a server, cut by size, with several under way; answers checked: vectors, scores."""

from __future__ import annotations

import base64
import binascii
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np

from pipeline.config.stages import EncodingServerSettings
from pipeline.core.display import Bar, counted
from pipeline.core.errors import InputError
from pipeline.core.records import BoolArray, Facts, Float32, JsonObject
from pipeline.encoders.batching import ServerUse, Usage
from pipeline.encoders.http.client import Client, RefusedTextError, TooLargeError


class Refuse(Protocol):
    """Makes the error for an answer, from what it is, such as `Client.bad_answer`."""

    def __call__(self, what: str, answer: object = None, /) -> Exception:
        """The error; of the answer, only what it says of an error is shown."""
        ...


class BatchedRequests(ABC):
    """Requests that together send every text once; text i takes `sizes[i]` bytes of a request."""

    path: ClassVar[str]  # after the server's address

    def __init__(self, client: Client, sizes: Sequence[int], usage: Usage, bar: Bar) -> None:
        self.client, self.sizes, self.usage, self.bar = client, sizes, usage, bar
        settings = client.settings
        assert isinstance(settings, EncodingServerSettings)
        self.use = usage.server = ServerUse(
            price_per_million=settings.price_per_million_tokens, concurrency=settings.concurrency
        )

    @abstractmethod
    def body(self, rows: Sequence[int]) -> JsonObject:
        """The JSON of a request for some texts."""

    @abstractmethod
    def store_answer(self, rows: Sequence[int], answer: object) -> None:
        """Check the answer to a request for some texts, and store its vectors or scores."""

    @abstractmethod
    def text(self, row: int) -> str:
        """A text, for messages."""

    async def learn_form(self, rows: Sequence[int], answer: object) -> None:
        """Ask what is needed to read an answer, before it is stored."""
        return

    async def confirm_order(self, rows: Sequence[int], answer: object) -> None:
        """Check that what was stored is in the order of the request, where the answer has no numbers."""
        return

    def groups(self, rows: Iterable[int]) -> Iterator[list[int]]:
        """Rows that may be in one request, in the order in which they are cut: the longest texts first."""
        yield sorted(rows, key=lambda row: -self.sizes[row])

    async def send_all(self, alone: Sequence[int] = ()) -> None:
        """Send all texts; each text of `alone` in a request of its own, which is timed."""
        requests = itertools.chain((([row], True) for row in alone), self._batches(set(alone)))

        async def work() -> None:
            for rows, timed in requests:
                await self._send(rows, timed)

        await self.client.work(work)
        self.usage.texts += len(self.sizes)
        self.usage.padded = self.usage.tokens

    def _batches(self, alone: set[int]) -> Iterator[tuple[list[int], bool]]:
        """The rows of each request, cut when it is about to be sent; none of them is timed."""
        size = self.client.size
        for group in self.groups(row for row in range(len(self.sizes)) if row not in alone):
            start = 0
            while start < len(group):
                count = size.next([self.sizes[row] for row in group[start : start + size.texts]])
                yield group[start : start + count], False
                start += count

    async def _send(self, rows: list[int], timed: bool = False) -> None:
        """Send some texts in one request; in two halves if the server refuses so many, or one of them."""
        if len(rows) > self.client.size.texts:  # as the server has said of another request meanwhile
            await self._send_halves(rows)
            return
        client, sizes = self.client, [self.sizes[row] for row in rows]
        try:
            answer, seconds = await client.post(self.path, self.body(rows), self.use)
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
                    f"{error.found}; it was asked for {quoted(self.text(rows[0]))} alone", fix=error.fix
                ) from None
            await self._send_halves(rows)
            return
        await self.learn_form(rows, answer)
        self.store_answer(rows, answer)
        await self.confirm_order(rows, answer)
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


def vectors_of(answer: object, texts: Sequence[str], dimension: int | None, refuse: Refuse) -> Float32:
    """The vectors of an answer to a request for those of some `texts`, float32 [texts, dimension].

    They come as lists of numbers or as base64 of float32 or of float16, in any order, numbered by their
    `index`. Base64 does not tell which: it is float16 where the `dimension` takes half of the bytes.

    Every vector must have the `dimension`, unless that is None. `refuse` makes the error for anything else.
    """
    rows = _in_order(_items(answer, "data", refuse), len(texts), "vectors", "texts", refuse)
    vectors = [_vector(row.get("embedding"), dimension) for row in rows]
    _check_each([len(vector) > 0 for vector in vectors], "what is no vector", texts, refuse)
    dimensions = {len(vector) for vector in vectors} | ({dimension} if dimension else set())
    if len(dimensions) > 1:
        sizes = " and ".join(f"{size:,}" for size in sorted(dimensions))
        expected = f", and {dimension:,} are expected" if dimension else ""
        raise refuse(f"vectors of {sizes} dimensions{expected}")
    joined = np.stack(vectors, dtype=np.float32)
    _check_each(np.all(np.isfinite(joined), axis=1), "a vector that holds NaN or infinity", texts, refuse)
    _check_each(np.any(joined, axis=1), "a vector of length 0, which has no direction,", texts, refuse)
    return joined


def _check_each(right: Sequence[bool] | BoolArray, what: str, texts: Sequence[str], refuse: Refuse) -> None:
    """Refuse an answer whose vectors are not all right, and name the text of the first one that is not."""
    if not all(right):
        raise refuse(f"{what} for {quoted(texts[int(np.argmin(right))])}")


def scores_of(answer: object, passages: Sequence[str], refuse: Refuse) -> Float32:
    """The scores of an answer to a request for those of some passages, float32 [passages]; see `vectors_of`.

    They are in `results` as `relevance_score` (Cohere, Jina, vLLM, Infinity), or a bare list of `score`s
    (TEI). They often come sorted: without an `index`, each must repeat its passage.
    """
    items = answer if isinstance(answer, list) else _items(answer, "results", refuse)
    rows = _in_order(items, len(passages), "scores", "passages", refuse)
    if len(rows) > 1 and not is_numbered(items):
        rows = _by_passage(rows, passages, refuse)
    values = [row.get("relevance_score", row.get("score")) for row in rows]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        raise refuse("a score that is no number")
    try:
        scores = np.array(values, np.float32)
    except OverflowError:  # a whole number
        scores = np.array([np.inf], np.float32)
    if not np.isfinite(scores).all():
        raise refuse("a score that is NaN or infinite")
    return scores


def tokens_of(answer: object) -> int | None:
    """The number of tokens that a server counted in a request; None if it does not say."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    counts = (usage.get(name) for name in ("prompt_tokens", "total_tokens", "input_tokens"))
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def _items(answer: object, name: str, refuse: Refuse) -> list[object]:
    """The list in an answer."""
    if not isinstance(answer, Mapping):
        raise refuse(f"what is no JSON of {'vectors' if name == 'data' else 'scores'}", answer)
    if not isinstance(answer.get(name), list):
        raise refuse(f"JSON without a list '{name}'", answer)
    return list(answer[name])


def _in_order(items: list[object], count: int, what: str, inputs: str, refuse: Refuse) -> list[Facts]:
    """The items by their `index`, which must be 0 to `count` - 1, each once; without any, as they come."""
    if len(items) != count:
        raise refuse(f"{counted(len(items), what[:-1])} for {counted(count, inputs[:-1])}")
    rows = [item for item in items if isinstance(item, dict)]
    if len(rows) < len(items):
        raise refuse(f"{what} that are no JSON objects")
    numbers = [row.get("index") for row in rows]
    if all(number is None for number in numbers):
        return rows
    if sorted(number for number in numbers if isinstance(number, int)) != list(range(count)):
        raise refuse(f"{what} that are not numbered from 0 to {count - 1}, each once")
    return sorted(rows, key=lambda row: row["index"])


def is_numbered(items: Sequence[object]) -> bool:
    """Whether the items of an answer have an `index`."""
    return any(isinstance(item, Mapping) and item.get("index") is not None for item in items)


def _by_passage(rows: list[Facts], passages: Sequence[str], refuse: Refuse) -> list[Facts]:
    """The items of an answer without numbers, by the passages that they repeat."""
    by_text: dict[object, list[Facts]] = {}
    for row in rows:
        document = row.get("document", row.get("text"))
        text = document.get("text") if isinstance(document, Mapping) else document
        by_text.setdefault(text if isinstance(text, str) else None, []).append(row)
    if Counter({text: len(same) for text, same in by_text.items()}) != Counter(passages):
        raise refuse("scores without `index`, which do not repeat their passages either")
    return [by_text[passage].pop() for passage in passages]


def base64_of(answer: object) -> list[bytes]:
    """The content of the vectors of an answer that are base64."""
    items = answer.get("data") if isinstance(answer, Mapping) else None
    vectors = [item.get("embedding") for item in items or () if isinstance(item, Mapping)]
    with contextlib.suppress(binascii.Error, ValueError):
        return [base64.b64decode(vector, validate=True) for vector in vectors if isinstance(vector, str)]
    return []


BITS = 5.0
"""Interquartile range of the binary logarithms of a vector's numbers, above which they may be misread.

Of normally distributed numbers it is 1.9. A pair of float16 read as float32 has the first one's exponent
times 8, and so 8 times that."""


def may_be_float16(vectors: Iterable[bytes]) -> bool:
    """Whether the numbers of a vector are too far apart for what embeddings hold, if read as float32."""
    for content in vectors:
        numbers = np.abs(np.frombuffer(content[: len(content) // 4 * 4], "<f4"))
        numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
        if len(content) % 4:
            return True
        if len(numbers) and np.subtract(*np.percentile(np.log2(numbers), [75, 25])) > BITS:
            return True
    return False


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
