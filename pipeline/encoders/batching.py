"""Batching: texts turned into batches of token ids, with little padding, for every backend.

All texts of a batch are padded to its longest one, so texts of similar length belong together. Texts are
sorted by their number of characters, which predicts their tokens well, and tokenized in windows of that
order, in a thread, one window ahead of the computation. Within a window they are sorted by token count,
longest first, and cut into batches by a budget: rows times width, padding included. What does not fill a
batch is carried into the next window. The longest texts come first, so a batch that needs too much memory
fails at the start of a run.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from pipeline.core.display import Bar
from pipeline.core.records import Float32, Int32, Int64, JsonObject, Ragged
from pipeline.models.files import damaged
from pipeline.models.model import Role
from pipeline.storage import ragged_shards

if TYPE_CHECKING:
    from tokenizers import Tokenizer


Rows = Float32 | Ragged
"""What a model makes of texts, a row for each: vectors [texts, dimension], or rows of different lengths."""
WINDOW = 4096  # texts of a window; the first one has CHUNK
CHUNK = 512  # texts per call of the tokenizer, whose results take much memory until ids are copied out


@dataclass(frozen=True)
class TokenBatch:
    """Token ids of a few texts of similar length; in a reranker, of pairs of texts."""

    rows: Int64  # [b], position of each text in the sequence given to `encode`
    ids: Int64  # [b, tokens], padded on the right with the model's padding id
    mask: Int64  # [b, tokens], 1 at a token and 0 at padding
    second: Int64 | None = None  # [b], of pairs: the place of the first token that belongs to the second text

    def part(self, which: slice) -> TokenBatch:
        """Some of its texts, as wide as it is."""
        second = None if self.second is None else self.second[which]
        return TokenBatch(self.rows[which], self.ids[which], self.mask[which], second)


class BatchShape(Protocol):
    """How texts are cut into batches for a backend."""

    pad_id: int  # id of the padding token
    token_budget: int  # largest number of tokens of a batch, padding included
    width_multiple: int  # widths are rounded up to a multiple of it, but not above the longest allowed text
    computes_padding: bool  # whether padding costs as much as other tokens


class Backend(BatchShape, Protocol):
    """A loaded model: token ids in, one row per text out."""

    tokenizer: Tokenizer

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Rows]]:
        """For each batch its `rows` and what the model makes of them, in any order."""
        ...


@runtime_checkable
class RoleDependent(Protocol):
    """A loaded model that computes queries in another way than passages."""

    def for_role(self, role: Role) -> Backend:
        """The model for one of the roles."""
        ...


def encode(
    backend: Backend,
    texts: Sequence[str],
    max_length: int,
    usage: Usage,
    bar: Bar,
    batch_size: int | None = None,
) -> Rows:
    """Encode texts.

    Args:
        backend: The model.
        texts: Any number of texts.
        max_length: Number of tokens kept of each, special tokens included.
        usage: What encoding costs is added to it.
        bar: Progress bar, updated for every encoded text.
        batch_size: Largest number of texts of a batch; None limits it by the backend's token budget alone.

    Returns:
        Rows in the order of `texts`.
    """
    windows = tokenized_windows(
        [len(text) for text in texts],
        lambda rows: tokenize(backend.tokenizer, [texts[row] for row in rows], max_length),
        usage,
    )

    def parts() -> Iterator[tuple[Int64, Rows]]:
        for rows, part in backend.forward(batches(backend, windows, max_length, usage, batch_size)):
            yield rows, part
            bar.update(len(rows))

    return in_order(parts(), len(texts))


def in_order(parts: Iterator[tuple[Int64, Rows]], count: int) -> Rows:
    """The `count` rows of all parts, which come with their positions, int64 [b]; no part is no vectors."""
    places, part = next(parts, (np.empty(0, np.int64), np.empty((0, 0), np.float32)))
    if isinstance(part, Ragged):
        all_places, ragged = zip((places, part), *parts, strict=True)
        order = np.argsort(np.concatenate(all_places))
        return ragged_shards.take_rows(ragged_shards.join_rows(ragged), order)
    in_place = np.empty((count, part.shape[1]), part.dtype)
    in_place[places] = part
    for places, part in parts:
        assert not isinstance(part, Ragged)
        in_place[places] = part
    return in_place


Window = list[tuple[int, Int32]]
"""The position and the token ids of each text."""


def tokenized_windows(
    characters: Sequence[int], tokenize_rows: Callable[[list[int]], list[Int32]], usage: Usage
) -> Iterator[Window]:
    """All texts in windows, those with the most characters first; a thread tokenizes one window ahead.

    `tokenize_rows` gives the token ids of the texts at some positions.
    """
    usage.texts += len(characters)
    order = np.argsort([-count for count in characters], kind="stable").tolist()
    cuts = [0, *range(CHUNK, len(order), WINDOW), len(order)]  # the first is short: the backend waits for it
    windows = [order[start:stop] for start, stop in itertools.pairwise(cuts)]

    def tokenize_window(rows: list[int]) -> Window:
        started = time.perf_counter()
        tokens = tokenize_rows(rows)
        usage.tokenize_seconds += time.perf_counter() - started
        return list(zip(rows, tokens, strict=True))

    with ThreadPoolExecutor(1) as thread:  # the tokenizer releases Python's global lock while it works
        futures = (thread.submit(tokenize_window, rows) for rows in windows)  # one starts at each `next`
        following = next(futures, None)
        while following is not None:
            current, following = following, next(futures, None)
            yield current.result()


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[Int32]:
    """Each text's token ids, int32 [tokens], special tokens included, truncated on the tokenizer's side.

    Raises:
        InputError: The tokenizer has no token for a word that it does not know.
    """
    tokenizer.no_padding()
    side = (tokenizer.truncation or {}).get("direction", "right")
    tokenizer.enable_truncation(max_length, direction=side)
    tokens: list[Int32] = []
    for start in range(0, len(texts), CHUNK):
        try:
            encodings = tokenizer.encode_batch_fast(list(texts[start : start + CHUNK]))
        except Exception as error:  # tokenizers raises this class itself
            raise damaged(f"the model's tokenizer cannot encode a text: {error}") from None
        tokens.extend(np.array(encoding.ids, np.int32) for encoding in encodings)
    return tokens


def batches(
    shape: BatchShape, windows: Iterable[Window], max_length: int, usage: Usage, batch_size: int | None = None
) -> Iterator[TokenBatch]:
    """Cut windows into batches, each within the backend's token budget or of one text; see `encode`."""
    waiting: Window = []
    for window in itertools.chain(windows, [None]):
        waiting = sorted(waiting + (window or []), key=lambda text: -len(text[1]))
        while waiting:
            height = _height(shape, len(waiting[0][1]), max_length, batch_size)
            if window is not None and len(waiting) <= height:
                break  # the next window's longest texts may still fit
            yield _batch(shape, waiting[:height], max_length, usage)
            waiting = waiting[height:]


def _width(shape: BatchShape, longest: int, max_length: int) -> int:
    """The longest text's number of tokens, rounded up to the backend's multiple within `max_length`."""
    multiple = shape.width_multiple
    rounded = -(-max(longest, 1) // multiple) * multiple
    return max(min(rounded, max_length), longest)


def _height(shape: BatchShape, longest: int, max_length: int, batch_size: int | None) -> int:
    """The largest number of texts of a batch whose longest text has so many tokens."""
    within_budget = max(shape.token_budget // _width(shape, longest, max_length), 1)
    return min(within_budget, batch_size or within_budget)


def _batch(shape: BatchShape, texts: Window, max_length: int, usage: Usage) -> TokenBatch:
    """Pad some texts, the longest first, to one width, and count their tokens."""
    width = _width(shape, len(texts[0][1]), max_length)
    ids, mask = padded([ids for _, ids in texts], width, shape.pad_id)
    tokens = int(mask.sum())
    usage.tokens += tokens
    usage.padded += ids.size if shape.computes_padding else tokens
    return TokenBatch(np.array([row for row, _ in texts], np.int64), ids, mask)


def padded(tokens: Sequence[Int32], width: int, pad_id: int) -> tuple[Int64, Int64]:
    """Token ids of some texts and their mask, int64 [texts, width], padded on the right."""
    mask = (np.arange(width) < np.array([[len(ids)] for ids in tokens])).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    ids[mask.astype(bool)] = np.concatenate(tokens)
    return ids, mask


def refuse_unknown_tokens(name: str, highest: int, embedded: int) -> None:
    """Raise an `InputError` if the tokenizer of the model `name` gives a token that has no embedding.

    `highest` is the largest of some token ids, and `embedded` the number of tokens that the network knows.
    """
    if highest >= embedded:
        raise damaged(
            f"the tokenizer of model '{name}' gives token {highest}, and its weights hold {embedded}"
        )


@dataclass
class ServerUse:
    """What asking a server took: requests, of which `retries` were sent again.

    Attributes:
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

    def figures(self, tokens: int) -> JsonObject:
        """JSON for results, with the price of some tokens and the median and two percentiles of seconds."""
        shown: JsonObject = {"requests": self.requests, "retries": self.retries}
        shown["concurrency"] = self.concurrency
        if self.price_per_million is not None and self.tokens_counted:
            shown["price"] = tokens * self.price_per_million / 1e6
        if self.seconds:
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

    def figures(self) -> JsonObject:
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
