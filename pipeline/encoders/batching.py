"""How are texts turned into batches that waste little? One batcher for every backend.

Texts are taken longest first, by their characters, and tokenized a window at a time, in a thread, while the
window before it is computed. Within a window they are sorted by token count and cut into batches by a budget
of tokens, padding included; what does not fill a batch goes into the next window.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pipeline.core.progress import Bar
from pipeline.core.records import Float32, Int32, Int64

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WINDOW = 4096  # texts tokenized ahead and sorted among themselves, after a first CHUNK
CHUNK = 512  # texts tokenized at once: what the tokenizer's own bulky records are held for


@dataclass(frozen=True)
class Batch:
    """Token ids of a few texts of similar length.

    Attributes:
        rows: int64 [b], position of each text in the sequence that was given.
        ids: int64 [b, tokens], padded on the right with the model's padding id.
        mask: int64 [b, tokens], 1 at a token and 0 at padding.
    """

    rows: Int64
    ids: Int64
    mask: Int64


class Backend(Protocol):
    """A loaded model: token ids in, one vector per text out.

    Attributes:
        dimension: Of a vector.
        tokenizer: The model's.
        pad_id: What fills a batch's rows up.
        token_budget: Tokens of a batch at most, padding included.
        width_multiple: Batches are as wide as a multiple of it, or as the longest text may be: few shapes.
        computes_padding: Whether padding costs as much as a token.
    """

    dimension: int
    tokenizer: Tokenizer
    pad_id: int
    token_budget: int
    width_multiple: int
    computes_padding: bool

    def forward(self, batches: Iterator[Batch]) -> Iterator[tuple[Int64, Float32]]:
        """For each batch its `rows` and their vectors float32 [b, dimension], in any order."""
        ...


@dataclass
class Usage:
    """What encoding cost.

    Attributes:
        texts: Texts encoded.
        tokens: Their tokens, special tokens included.
        padded: Tokens computed, padding included.
        tokenize_seconds: Time spent in the tokenizer.
    """

    texts: int = 0
    tokens: int = 0
    padded: int = 0
    tokenize_seconds: float = 0.0

    def add(self, other: Usage) -> None:
        """Count in what encoding something else cost."""
        self.texts += other.texts
        self.tokens += other.tokens
        self.padded += other.padded
        self.tokenize_seconds += other.tokenize_seconds

    def figures(self) -> dict[str, Any]:
        """The same, as JSON, with the share of computed tokens that was padding."""
        waste = 1 - self.tokens / self.padded if self.padded else 0.0
        return {**asdict(self), "padding_share": round(waste, 4)}


def encode(
    backend: Backend,
    texts: Sequence[str],
    max_length: int,
    usage: Usage,
    bar: Bar,
    batch_size: int | None = None,
) -> Float32:
    """Encode texts.

    Args:
        backend: The model.
        texts: Any number of texts.
        max_length: Tokens kept of each, special tokens included.
        usage: Added to.
        bar: Told of every text encoded.
        batch_size: Texts per batch at most; None is as many as the backend's token budget holds.

    Returns:
        float32 [texts, dimension], in the order of `texts`.
    """
    usage.texts += len(texts)
    vectors = np.empty((len(texts), backend.dimension), np.float32)
    windows = _tokenized(backend.tokenizer, texts, max_length, usage)
    for rows, part in backend.forward(batches(backend, windows, max_length, usage, batch_size)):
        vectors[rows] = part
        bar.update(len(rows))
    return vectors


Window = list[tuple[int, Int32]]
"""Some texts' positions and token ids."""


def _tokenized(tokenizer: Tokenizer, texts: Sequence[str], max_length: int, usage: Usage) -> Iterator[Window]:
    """All texts in windows, those with the most characters first; the next is made while one is used."""
    order = np.argsort([-len(text) for text in texts], kind="stable").tolist()
    cuts = [0, *range(CHUNK, len(order), WINDOW), len(order)]  # the first is short: nothing is computed yet
    windows = [order[start:stop] for start, stop in itertools.pairwise(cuts)]

    def make(rows: list[int]) -> Window:
        started = time.perf_counter()
        tokens = tokenize(tokenizer, [texts[row] for row in rows], max_length)
        usage.tokenize_seconds += time.perf_counter() - started
        return list(zip(rows, tokens, strict=True))

    with ThreadPoolExecutor(1) as thread:  # the tokenizer lets other threads run while it works
        ahead = collections.deque(thread.submit(make, rows) for rows in windows[:1])
        for rows in [*windows[1:], None]:
            if rows:
                ahead.append(thread.submit(make, rows))
            if ahead:
                yield ahead.popleft().result()


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> list[Int32]:
    """Each text's token ids, int32 [tokens], special tokens included, cut on the tokenizer's own side."""
    tokenizer.no_padding()
    side = (tokenizer.truncation or {}).get("direction", "right")
    tokenizer.enable_truncation(max_length, direction=side)
    tokens: list[Int32] = []
    for start in range(0, len(texts), CHUNK):
        for encoding in tokenizer.encode_batch_fast(list(texts[start : start + CHUNK])):
            tokens.append(np.array(encoding.ids, np.int32))
    return tokens


def batches(
    backend: Backend,
    windows: Iterable[Window],
    max_length: int,
    usage: Usage,
    batch_size: int | None = None,
) -> Iterator[Batch]:
    """Batches of falling length, each at most `token_budget` tokens wide and high, or one text.

    Args:
        backend: Says what fits it.
        windows: Texts with their token ids.
        max_length: No batch is wider.
        usage: Added to.
        batch_size: Texts per batch at most.
    """
    waiting: Window = []
    for window in windows:
        waiting = sorted(waiting + window, key=lambda text: -len(text[1]))
        while len(waiting) > (height := _height(backend, waiting, max_length, batch_size)):
            yield _batch(backend, waiting[:height], max_length, usage)
            waiting = waiting[height:]
    while waiting:
        height = _height(backend, waiting, max_length, batch_size)
        yield _batch(backend, waiting[:height], max_length, usage)
        waiting = waiting[height:]


def _width(backend: Backend, longest: int, max_length: int) -> int:
    multiple = backend.width_multiple
    return max(min(-(-max(longest, 1) // multiple) * multiple, max_length), longest)


def _height(backend: Backend, waiting: Window, max_length: int, batch_size: int | None) -> int:
    """How many of the texts waiting, the longest first, make the next batch."""
    width = _width(backend, len(waiting[0][1]) if waiting else 1, max_length)
    return min(max(backend.token_budget // width, 1), batch_size or len(waiting) + 1)


def _batch(backend: Backend, texts: Window, max_length: int, usage: Usage) -> Batch:
    lengths = np.array([len(ids) for _, ids in texts], np.int64)
    mask = (np.arange(_width(backend, int(lengths[0]), max_length)) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, backend.pad_id, np.int64)
    ids[mask.astype(bool)] = np.concatenate([ids for _, ids in texts])
    tokens = int(lengths.sum())
    usage.tokens += tokens
    usage.padded += ids.size if backend.computes_padding else tokens
    return Batch(np.array([row for row, _ in texts], np.int64), ids, mask)
