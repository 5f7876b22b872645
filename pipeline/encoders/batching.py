"""Batching: texts turned into batches of token ids, with little padding, for every backend.

All texts of a batch are padded to its longest one, so texts of similar length belong together. Texts are
sorted by their number of characters, which predicts their tokens well, and tokenized in windows of that
order, in a thread, ahead of the computation. Within a window they are sorted by token count, longest first,
and cut into batches by a budget: rows times width, padding included. What does not fill a batch is carried
into the next window. The longest texts come first, so a batch that needs too much memory fails at the start
of a run.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int32, Int64, JsonObject, RaggedRows, Role
from pipeline.models.files import damaged
from pipeline.storage import ragged_shards

if TYPE_CHECKING:
    from tokenizers import Tokenizer

RowArrays = Float32 | RaggedRows
"""What a model makes of texts, a row for each: vectors [texts, dimension], or rows of different lengths."""
WINDOW = 4096  # texts of a window; the first one has TOKENIZED_TEXTS
TOKENIZED_TEXTS = (
    512  # texts per call of the tokenizer, whose results take much memory until ids are copied out
)
Item = TypeVar("Item")


@dataclass(frozen=True)
class TokenBatch:
    """Token ids of a few texts of similar length; in a reranker, of pairs of texts."""

    rows: Int64  # [b], position of each text in the sequence that is encoded
    ids: Int64  # [b, tokens], padded on the right with the model's padding id
    mask: Int64  # [b, tokens], 1 at a token and 0 at padding
    second: Int64 | None = None  # [b], of pairs: the place of the first token that belongs to the second text
    role: Role = "passages"  # of its texts

    def part(self, which: slice) -> TokenBatch:
        """Some of its texts, as wide as it is."""
        second = None if self.second is None else self.second[which]
        return TokenBatch(self.rows[which], self.ids[which], self.mask[which], second, self.role)


class BatchShape(Protocol):
    """How texts are cut into batches for a backend."""

    pad_id: int  # id of the padding token
    token_budget: int  # largest number of tokens of a batch, padding included
    width_multiple: int  # widths are rounded up to a multiple of it, but not above the longest allowed text
    computes_padding: bool  # whether padding costs as much as other tokens
    reads_padding: bool  # whether the texts of a batch must have equal lengths
    embedded: int | None  # tokens that its network has embeddings of; None if that is not known


class Backend(BatchShape, Protocol):
    """A loaded model: token ids in, one row per text out."""

    tokenizer: Tokenizer

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, RowArrays]]:
        """For each batch its `rows` and what the model makes of them, in any order."""
        ...


@runtime_checkable
class RoleDependent(Protocol):
    """A loaded model that has another network or tokenizer for queries than for passages."""

    def for_role(self, role: Role) -> Backend:
        """The model for one of the roles."""
        ...


class Window(NamedTuple):
    """Some texts of a part, tokenized."""

    texts: list[tuple[int, Int32]]  # the position and the token ids of each
    usage: Usage  # of the part
    is_last: bool  # of the part


def text_windows(characters: Sequence[int]) -> list[list[int]]:
    """The positions of texts in windows, those with the most characters first."""
    order = np.argsort([-count for count in characters], kind="stable").tolist()
    # the first is short: the backend waits for it
    cuts = [0, *range(TOKENIZED_TEXTS, len(order), WINDOW), len(order)]
    return [order[start:stop] for start, stop in itertools.pairwise(cuts)]


def in_order(parts: Iterator[tuple[Int64, RowArrays]], count: int) -> RowArrays:
    """The `count` rows of all parts, which come with their positions, int64 [b]; no part is no vectors."""
    places, part = next(parts, (np.empty(0, np.int64), np.empty((0, 0), np.float32)))
    if isinstance(part, RaggedRows):
        all_places, ragged = zip((places, part), *parts, strict=True)
        order = np.argsort(np.concatenate(all_places))
        return ragged_shards.take_rows(ragged_shards.join_rows(ragged), order)
    in_place = np.empty((count, part.shape[1]), part.dtype)
    in_place[places] = part
    for places, part in parts:
        assert not isinstance(part, RaggedRows)
        in_place[places] = part
    return in_place


def ahead(items: Iterator[Item], count: int) -> Iterator[Item]:
    """The items, taken by a thread, at most `count` of them before they are asked for.

    If the caller stops early, the thread ends after the item that it is at.
    """
    end: Any = object()
    thread = ThreadPoolExecutor(1)
    try:
        futures = deque(thread.submit(next, items, end) for _ in range(count))
        while (item := futures.popleft().result()) is not end:
            futures.append(thread.submit(next, items, end))
            yield item
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


_TOKENIZING = threading.Lock()  # a tokenizer cannot be set up in one thread while another one uses it


def tokenize(
    tokenizer: Tokenizer, texts: Sequence[str], max_length: int | None, special: bool = True
) -> tuple[list[Int32], list[int]]:
    """Each text's token ids, int32 [tokens], and how many there are without truncation.

    They are truncated on the tokenizer's side, to any length if it is None, and have `special` tokens or not.

    Raises:
        InputError: The tokenizer has no token for a word that it does not know.
    """
    tokens: list[Int32] = []
    counts: list[int] = []
    with _TOKENIZING:
        tokenizer.no_padding()
        if max_length is not None:
            side = (tokenizer.truncation or {}).get("direction", "right")
            tokenizer.enable_truncation(max_length, direction=side)
        added = tokenizer.num_special_tokens_to_add(is_pair=False)  # to each part cut off, too
        for start in range(0, len(texts), TOKENIZED_TEXTS):
            part = list(texts[start : start + TOKENIZED_TEXTS])
            try:
                encodings = tokenizer.encode_batch_fast(part, add_special_tokens=special)
            except Exception as error:  # tokenizers raises this class itself
                raise damaged(f"the model's tokenizer cannot encode a text: {error}") from None
            for encoding in encodings:
                ids = np.array(encoding.ids, np.int32)
                tokens.append(ids)
                cut = encoding.overflowing if len(ids) == max_length else ()
                counts.append(len(ids) + sum(len(part) - added for part in cut))
    return tokens, counts


def batches(
    shape: BatchShape,
    windows: Iterable[Window],
    max_length: int,
    batch_size: int | None = None,
    role: Role = "passages",
) -> Iterator[TokenBatch]:
    """Cut windows into batches, each within the backend's token budget or of one text; see `Encoder`."""
    waiting: list[tuple[int, Int32]] = []
    multiple = 1 if shape.reads_padding else shape.width_multiple
    for window in windows:
        waiting = sorted(waiting + window.texts, key=lambda text: -len(text[1]))
        while waiting:
            longest = len(waiting[0][1])
            # rounded up to the multiple, but not above the longest allowed text
            width = max(min(-(-max(longest, 1) // multiple) * multiple, max_length), longest)
            height = min(max(shape.token_budget // width, 1), batch_size or len(waiting))
            if shape.reads_padding:
                height = min(height, sum(len(ids) == longest for _, ids in waiting))
            elif not window.is_last and len(waiting) <= height:
                break  # the next window's longest texts may still fit
            texts, waiting = waiting[:height], waiting[height:]
            ids, mask = padded(shape, [ids for _, ids in texts], width)
            tokens = int(mask.sum())
            window.usage.tokens += tokens
            window.usage.padded += ids.size if shape.computes_padding else tokens
            yield TokenBatch(np.array([row for row, _ in texts], np.int64), ids, mask, role=role)


def padded(shape: BatchShape, tokens: Sequence[Int32], width: int) -> tuple[Int64, Int64]:
    """Token ids of some texts and their mask, int64 [texts, width], padded on the right.

    Raises:
        InputError: The network has no embedding of a token. A GPU would not say which token it is, and stop
            for all that follows; OpenVINO takes zeros.
    """
    mask = (np.arange(width) < np.array([[len(ids)] for ids in tokens])).astype(np.int64)
    ids = np.full(mask.shape, shape.pad_id, np.int64)
    ids[mask.astype(bool)] = np.concatenate(tokens)
    if shape.embedded is not None and ids.max(initial=0) >= shape.embedded:
        raise unknown_token(getattr(shape, "name", ""), int(ids.max()), shape.embedded - 1)
    return ids, mask


def unknown_token(name: str, token: int, last: int) -> InputError:
    """The refusal of a model whose network has embeddings of the tokens up to `last`, and not of `token`."""
    return damaged(
        f"the tokenizer of model '{name}' gives token {token}, and its weights hold rows 0 to {last}"
    )


@dataclass
class ServerUse:
    """What asking a server took: requests, of which `retries` were sent again."""

    requests: int = 0
    retries: int = 0
    tokens_counted: bool = False  # whether the server has said how many tokens it counted
    price_per_million: float | None = None  # the price of 1,000,000 tokens; None if it is not known
    concurrency: int = 1  # requests that may be under way at once
    # Of each text that was asked for alone, the time from sending it to its answer.
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
    counts: Int32 | None = None  # [texts], the tokens of each text without truncation; of one part alone
    left_out: Int32 | None = None  # [pairs], tokens of each pair of texts that truncation leaves out

    def add(self, other: Usage) -> None:
        """Add the cost of encoding other texts, but for what is known of each text."""
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
