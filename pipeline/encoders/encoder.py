"""A loaded model that encodes texts: parts of a collection, as one stream of batches.

The next part is read and tokenized, and the rows of the last one are put in order, while the model computes;
`pipeline.encoders.batching` says how texts become batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.display import Bar
from pipeline.core.records import Int64, Role
from pipeline.encoders.agreement import Watch
from pipeline.encoders.batching import (
    Backend,
    RoleDependent,
    RowArrays,
    Usage,
    Window,
    ahead,
    batches,
    in_order,
    text_windows,
    tokenize,
)
from pipeline.models.model import ResolvedModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer

AHEAD = 4  # windows that wait for the model at most: it never waits for the long second window of a part


@dataclass(frozen=True)
class Encoder:
    """A loaded model, which turns texts into rows."""

    model: ResolvedModel
    backend: Backend
    batch_size: int | None = None  # texts of a batch at most; None limits it by the backend's budget alone
    watch: Watch | None = None  # compares some of the rows with the fp32 model's

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> RowArrays:
        """The rows of some texts, as `encode_parts` gives them; what they cost is added to `usage`."""
        ((rows, cost),) = self.encode_parts([texts], role, bar)
        usage.add(cost)
        return rows

    def encode_parts(
        self, parts: Iterable[list[str]], role: Role, bar: Bar
    ) -> Iterator[tuple[RowArrays, Usage]]:
        """Encode parts of a collection as passages or queries, without a pause between them.

        The batches of a part, and so its rows, do not depend on the other parts. `parts` are read by a
        thread, ahead of the computation, and `bar` is advanced by each text.

        Yields:
            For each part its rows in the order of its texts, float32 [texts, dimension], whole and not
            normalized, or `RaggedRows`; and what they cost.

        Raises:
            InputError: A text's vector is too far from that of the fp32 model.
        """
        backend, max_length = self.backend, self.model.max_lengths[role]
        if isinstance(backend, RoleDependent):
            backend = backend.for_role(role)
        before, after = self.model.prompts[role]
        prompted = ([before + text + after for text in texts] for texts in parts)
        texts = prompted if before or after else parts
        under_way: list[_Part] = []  # a thread adds parts
        windows = ahead(_tokenized_parts(backend.tokenizer, texts, max_length, under_way), AHEAD)
        finishing = deque[Future[tuple[RowArrays, Usage]]]()
        with ThreadPoolExecutor(1) as thread:
            cut = batches(backend, windows, max_length, self.batch_size, role)
            for numbers, computed in backend.forward(cut):
                part = next(part for part in under_way if numbers[0] < part.first + len(part.texts))
                part.computed.append((numbers - part.first, computed))
                part.left -= len(numbers)
                bar.update(len(numbers))
                while len(under_way) > 1 and under_way[0].left == 0:
                    finishing.append(thread.submit(self._finish, under_way.pop(0), max_length))
                while finishing and (finishing[0].done() or len(finishing) > 1):
                    yield finishing.popleft().result()
            for finished in finishing:
                yield finished.result()
        for part in under_way:  # the last one in this thread: one query is encoded by two threads
            yield self._finish(part, max_length)

    def _finish(self, part: _Part, max_length: int) -> tuple[RowArrays, Usage]:
        """The rows of a part, compared, and what it cost."""
        arrays = part.computed  # which are not kept
        rows = in_order((arrays.popleft() for _ in range(len(arrays))), len(part.texts))
        if self.watch:
            self.watch.check(part.texts, max_length, rows)
        return rows, part.usage


@dataclass
class _Part:
    """A part whose texts are being encoded."""

    texts: Sequence[str]  # its texts
    first: int  # the number of its first text among those of all parts
    left: int  # the texts that have no row yet
    usage: Usage  # what it cost so far
    # The rows of its batches, with their positions, int64 [b].
    computed: deque[tuple[Int64, RowArrays]] = field(default_factory=deque)


def _tokenized_parts(
    tokenizer: Tokenizer, parts: Iterable[Sequence[str]], max_length: int, under_way: list[_Part]
) -> Iterator[Window]:
    """The windows of each part, which is added to those under way; positions are those among all texts."""
    first = 0
    for texts in parts:
        counts = np.zeros(len(texts), np.int32)
        usage = Usage(len(texts), counts=counts)
        under_way.append(_Part(texts, first, len(texts), usage))
        windows = text_windows([len(text) for text in texts])
        for rows in windows:
            started = time.perf_counter()
            tokens, counts[rows] = tokenize(tokenizer, [texts[row] for row in rows], max_length)
            usage.tokenize_seconds += time.perf_counter() - started
            numbered = [(first + row, ids) for row, ids in zip(rows, tokens, strict=True)]
            yield Window(numbered, usage, rows is windows[-1])
        first += len(texts)
