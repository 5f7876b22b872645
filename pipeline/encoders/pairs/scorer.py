"""The scores of pairs: how pairs become token ids, and token ids scores."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pipeline.config.rerank import FlagRerankSettings
from pipeline.core.display import Bar
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int32, Int64, TextPair
from pipeline.encoders import batching
from pipeline.encoders.batching import BatchShape, TokenBatch, Usage, Window
from pipeline.models.files import damaged
from pipeline.models.reranker import ResolvedReranker

if TYPE_CHECKING:
    from tokenizers import Tokenizer


TYPES = "token_type_ids"


class Template(NamedTuple):
    """The token ids around the two texts of a pair."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    typed: bool = False  # whether the passage, and what follows it, has token type 1

    @property
    def size(self) -> int:
        """The number of special tokens."""
        return len(self.before) + len(self.between) + len(self.after)


def template_of(tokenizer: Tokenizer, inputs: Sequence[str]) -> Template:
    """The template that a tokenizer's own post-processor applies to a pair.

    `inputs` are the names of the network's inputs, by the tokenizer.
    """
    tokenizer.no_padding()
    pair = tokenizer.encode("one", "other")
    first, last = ([n for n, text in enumerate(pair.sequence_ids) if text == which] for which in (0, 1))
    if not first or not last:
        raise damaged("the model's tokenizer cannot join a query and a passage")
    ids = tuple(pair.ids)
    parts = ids[: first[0]], ids[first[-1] + 1 : last[0]], ids[last[-1] + 1 :]
    return Template(*parts, typed=pair.type_ids[last[0]] == 1 and TYPES in inputs)


def longest_first(query: int, passage: int, room: int) -> tuple[int, int]:
    """The tokens of a query and of a passage that transformers' `truncation=True` keeps in the room for both.

    The longer text is cut; both are if each is too long.
    """
    if query + passage <= room:
        return query, passage
    short, long = sorted((query, passage))
    long = max(short, room - short) if short <= room else short
    if short + long > room:
        short = room // 2
        long = short + room % 2
    return (short, long) if query <= passage else (long, short)


@dataclass
class PairTokenizer:
    """Turns pairs into token ids."""

    # Tokenizes one text, without special tokens; `template` is what is put around the two.
    tokenizer: Tokenizer
    template: Template
    room: int  # tokens that the two texts may have together
    # The tokens kept of each query and each passage before they are joined; then the passage is cut to the
    # room, as FlagEmbedding does it. None cuts both by `longest_first`.
    most: tuple[int, int] | None = None
    instructions: TextPair = ("", "")  # strings put before each query and each passage
    _from_left: bool = field(init=False)

    def __post_init__(self) -> None:
        if self.room < 2:
            raise InputError(
                f"the reranker reads {self.longest} tokens of a pair, and special ones take "
                f"{self.template.size}",
                allowed=f"{self.template.size + 2} or more",
                fix="raise rerank.max_length, or choose a reranker with more positions",
            )
        self._from_left = (self.tokenizer.truncation or {}).get("direction") == "left"
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    @property
    def longest(self) -> int:
        """The largest number of tokens of a pair."""
        return self.template.size + self.room

    def tokenize(self, pairs: Sequence[TextPair]) -> tuple[list[Int32], list[int], list[int]]:
        """Each pair's token ids, int32 [tokens], the place of its passage, and how many are cut off."""
        sides = [self._ids([pair[side] for pair in pairs], side) for side in (0, 1)]
        before, between, after = (np.array(ids, np.int32) for ids in self.template[:3])
        joined, second, left_out = [], [], []
        for query, passage in zip(*sides, strict=True):
            size = self.template.size + len(query) + len(passage)
            if self.most:
                query = self._cut(query, self.most[0])
                lengths = len(query), min(len(passage), self.most[1], self.room - len(query))
            else:
                lengths = longest_first(len(query), len(passage), self.room)
            query, passage = self._cut(query, lengths[0]), self._cut(passage, lengths[1])
            joined.append(np.concatenate([before, query, between, passage, after]))
            second.append(len(before) + len(query) + len(between))
            left_out.append(size - len(joined[-1]))
        return joined, second, left_out

    def _ids(self, texts: list[str], side: int) -> list[Int32]:
        """The token ids of the texts of one side, each different text tokenized once."""
        different = list(dict.fromkeys(texts))
        prompted = [self.instructions[side] + text for text in different]
        ids, _ = batching.tokenize(self.tokenizer, prompted, None, special=False)
        ids_of = dict(zip(different, ids, strict=True))
        return [ids_of[text] for text in texts]

    def _cut(self, ids: Int32, count: int) -> Int32:
        """`count` of the ids at most, cut off at the side at which the tokenizer truncates."""
        if len(ids) <= count:
            return ids
        return ids[len(ids) - count :] if self._from_left else ids[:count]


class PairBackend(BatchShape, Protocol):
    """A loaded reranker: token ids of pairs in, a score for each out."""

    tokenizer: PairTokenizer

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Float32]]:
        """For each batch its `rows` and their scores float32 [b], in any order."""
        ...


class BatchedScorer:
    """A `Scorer` that tokenizes pairs, and has a backend compute batches of them.

    Args:
        backend: The model.
        batch_size: Largest number of pairs of a batch; None limits it by the backend's token budget alone.
    """

    def __init__(self, backend: PairBackend, batch_size: int | None = None) -> None:
        self.backend, self.batch_size = backend, batch_size

    def score(self, pairs: Sequence[TextPair], usage: Usage, bar: Bar) -> Float32:
        """The score of each pair; batches are made of pairs of similar length."""
        scores = np.empty(len(pairs), np.float32)
        second = np.zeros(len(pairs), np.int64)
        tokenizer = self.backend.tokenizer
        usage.counts, usage.left_out = (np.zeros(len(pairs), np.int32) for _ in range(2))
        counts, left_out = usage.counts, usage.left_out

        def tokenized() -> Iterator[Window]:
            windows = batching.text_windows([len(query) + len(passage) for query, passage in pairs])
            for rows in windows:
                started = time.perf_counter()
                ids, second[rows], left_out[rows] = tokenizer.tokenize([pairs[row] for row in rows])
                usage.tokenize_seconds += time.perf_counter() - started
                counts[rows] = left_out[rows] + np.array([len(tokens) for tokens in ids], np.int32)
                yield Window(list(zip(rows, ids, strict=True)), usage, rows is windows[-1])

        usage.texts += len(pairs)
        windows = batching.ahead(tokenized(), 1)
        cut = batching.batches(self.backend, windows, tokenizer.longest, self.batch_size)
        batches = (replace(batch, second=second[batch.rows]) for batch in cut)
        for rows, part in self.backend.forward(batches):
            scores[rows] = part.reshape(len(rows))
            bar.update(len(rows))
        return scores


def inputs_of(batch: TokenBatch, template: Template) -> dict[str, Int64]:
    """The inputs of a network for a batch of pairs, int64 [b, tokens] each, by their names.

    The type of a token is 1 from the passage on, if the model knows types.
    """
    inputs = {"input_ids": batch.ids, "attention_mask": batch.mask}
    if template.typed and batch.second is not None:
        inputs[TYPES] = (np.arange(batch.ids.shape[1]) >= batch.second[:, None]) * batch.mask
    return inputs


def encoder_tokenizer(
    config: FlagRerankSettings, model: ResolvedReranker, tokenizer: Tokenizer, inputs: Sequence[str]
) -> PairTokenizer:
    """Pairs as FlagEmbedding gives them to an encoder: the query is cut first, then the passage."""
    template = template_of(tokenizer, inputs)
    return PairTokenizer(
        tokenizer,
        template,
        model.max_length - template.size,
        (model.query_max_length or model.max_length, model.max_length),
        (config.query_instruction or "", config.passage_instruction or ""),
    )
