"""Agreement of a backend's rows with a reference: on which texts, how close, and how far.

Rows of a converted model are compared with those of its library, on texts of the built-in sample: its
queries, and passages joined and cut to every length up to the most that the model takes. Made-up token ids do
not do: networks have channels, heads and norms that only real words reach. While texts are encoded, a few of
each shard are compared with the fp32 model (`Watch`), because a collection may hold what the sample does not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Float32, Int32, Int64, RaggedRows, TextPair
from pipeline.data.sources.folders import SAMPLE
from pipeline.encoders.batching import (
    Backend,
    RowArrays,
    TokenBatch,
    in_order,
    padded,
    tokenize,
)
from pipeline.storage.vector_shards import cosines

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LIMITS = {"fp32": 0.99999, "int16": 0.99999, "fp16": 0.999, "bf16": 0.995, "int8": 0.9}
"""The lowest cosine, by precision, between a text's vector and that of fp32; int8 is lossy on purpose."""
LONGEST = 1024  # tokens of the longest text that a conversion is checked on
PROBES, CHECKS = "probes.npz", "checks.json"  # of a converted model, beside it
SHORT = 256  # tokens of the longest text that is computed whenever a model is loaded
SHRINK = 0.75  # the length of each text, over that of the one before
QUERIES = 6  # of the sample, as they are
PAIR_LIMITS = {"fp32": 1e-4, "fp16": 0.02, "bf16": 0.1}
"""By precision, how far a pair's score may be from the library's, over the spread of scores or 1."""
_ANSWERS = {
    "how long do bees live": "A worker bee lives for about six weeks in summer, and a queen for years.",
    "what is the capital of australia": "Canberra has been the capital of Australia since 1913.",
    "why is the sky blue": "Air scatters the short waves of sunlight more than the long ones, so it is blue.",
    "who wrote the magic mountain": "Thomas Mann published the novel The Magic Mountain in November 1924.",
}
PAIRS: tuple[TextPair, ...] = (
    *_ANSWERS.items(),
    ("is a tomato a fruit", "Canberra."),
    ("why is the sky blue", " ".join([*_ANSWERS.values()] * 8)),
)
"""Pairs that a reranker is compared on: good ones, a bad one, and a long one, which shows wrong positions."""
CENTRED_FACTOR = 100  # factor by which the tolerance on mean-centred cosines is wider
ROUNDING = 1e-5  # length of a mean-centred vector, over the vector's, below which fp32 does not hold it
WATCHED = 1000  # characters of a shard of which one is compared with the fp32 model
CHARACTERS = 5  # of a token, about; what is longer than the model takes is cut


class Probes(NamedTuple):
    """Token ids of texts, and the row that a reference gives for each text alone."""

    ids: Int64  # [texts, tokens], padded on the right; the longest text comes first
    mask: Int64  # [texts, tokens]
    rows: Float32  # [texts, numbers], as `row_as_vector` gives them, filled up with zeros

    @classmethod
    def by(cls, backend: Backend, tokens: Sequence[Int32]) -> Probes:
        """Probes of tokenized texts, the longest first, with the rows that a backend computes."""
        ids, mask = padded(backend, tokens, len(tokens[0]))
        texts = cls(ids, mask, np.zeros((len(ids), 0), np.float32))
        return texts._replace(rows=texts._computed(backend.forward)[0])

    @classmethod
    def read(cls, path: Path) -> Probes:
        """Read what `write` has written."""
        with np.load(path, allow_pickle=False) as stored:
            return cls(**stored)

    def write(self, path: Path) -> None:
        """Write token ids, mask and rows to an `.npz` file."""
        np.savez_compressed(path, **self._asdict())

    def batches(self) -> Iterator[TokenBatch]:
        """A long text and a short one in each batch, which pads the short one."""
        lengths = self.mask.sum(axis=1)
        for row in range((len(lengths) + 1) // 2):
            pair = sorted({row, len(lengths) - 1 - row})
            width = int(lengths[pair[0]])
            yield TokenBatch(np.array(pair), self.ids[pair, :width], self.mask[pair, :width])

    def compare(self, forward: Forward, precision: str) -> Agreement:
        """How the rows that `forward` computes agree with these, by the precision's limit.

        Mean-centred rows are compared too: if all of them point in nearly the same direction, their cosines
        say little.
        """
        rows, ragged = self._computed(forward)
        expected = _filled([*self.rows], rows.shape[1]) if ragged else self.rows
        if rows.shape != expected.shape:
            found = f"it has {rows.shape[1]} dimensions, and its reference has {expected.shape[1]}"
            return Agreement(-1.0, -1.0, found)
        lengths, limit = self.mask.sum(axis=1), LIMITS[precision]
        empty = ~rows.any(axis=1) & ~expected.any(axis=1)  # texts without words
        if empty.all():
            return Agreement(1.0, 1.0, "")
        rows, expected, lengths = _scaled(rows[~empty]), _scaled(expected[~empty]), lengths[~empty]
        mean = expected.mean(axis=0)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            cosine, centred = cosines(rows, expected), cosines(rows - mean, expected - mean)
        centred[np.linalg.norm(expected - mean, axis=1) < ROUNDING] = 1  # it is the mean
        cosine, centred = np.nan_to_num(cosine, nan=-1.0), np.nan_to_num(centred, nan=-1.0)
        problem = ""
        for name, values, allowed in (
            ("its row", cosine, limit),
            ("its row minus the mean of all", centred, 1 - CENTRED_FACTOR * (1 - limit)),
        ):
            worst = int(values.argmin())
            if values[worst] < allowed:
                problem = (
                    f"a text of {lengths[worst]} tokens has a cosine of {values[worst]:.6f} between {name} "
                    f"and that of torch in fp32, and the limit is {allowed:g}"
                )
                break
        return Agreement(float(cosine.min()), float(cosine.mean()), problem)

    def _computed(self, forward: Forward) -> tuple[Float32, bool]:
        """The rows that `forward` computes, and whether it gives rows of different lengths."""
        computed = in_order(forward(self.batches()), len(self.ids))
        if not isinstance(computed, RaggedRows):
            return computed, False
        numbers = self.rows.shape[1]
        if len(computed.columns) == 2:
            numbers = max(numbers, 1 + int(computed.columns[0].max(initial=-1)))
        return _filled([row_as_vector(computed, row, numbers) for row in range(len(self.ids))], numbers), True


Forward = Callable[[Iterator[TokenBatch]], Iterator[tuple[Int64, RowArrays]]]
"""The method `forward` of a `Backend`."""


def _filled(rows: Sequence[Array], numbers: int) -> Float32:
    """Rows of at least so many numbers, filled up with zeros."""
    filled = np.zeros((len(rows), max(numbers, *map(len, rows))), np.float32)
    for target, row in zip(filled, rows, strict=True):
        target[: len(row)] = row
    return filled


def sample_tokens(tokenizer: Tokenizer, most: int, short: int = LONGEST) -> list[Int32]:
    """Token ids of real texts: the longest, of `most` tokens, first, and others of at most `short`."""
    queries, passages = (
        [json.loads(line)["text"] for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()]
        for name in ("queries.jsonl", "corpus.jsonl")
    )
    tokens, _ = tokenize(tokenizer, queries[:QUERIES], most)
    length = most
    while length >= 3:
        long = " ".join(itertools.islice(itertools.cycle(passages), len(tokens), len(tokens) + length))
        tokens += tokenize(tokenizer, [long[: 16 * length]], length)[0]
        length = int(length * SHRINK)
    longest, *others = sorted(filter(len, tokens), key=lambda ids: -len(ids))
    return [longest, *(ids for ids in others if len(ids) <= short)]


class Agreement(NamedTuple):
    """The lowest and the mean cosine of rows and expected ones, and what is beyond the limit, or ""."""

    lowest: float
    mean: float
    problem: str


def _scaled(vectors: Float32) -> Float32:
    """Each row scaled to length 1; NaN where it is all zeros."""
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


@dataclass
class Watch:
    """Compares a few of the texts that are encoded with the fp32 model, and stops where they differ.

    Of each shard, texts with one character in `WATCHED` are compared, the longest text among them where it is
    no more than half of that; of a small shard, one text. The fp32 model takes about four times as long for a
    text, so that this adds less than 1% to the time of shards of a thousand texts and more.
    """

    name: str  # of the model
    vector: Callable[[Int32], Float32]  # token ids [tokens] of one text to its vector [dimension] in fp32
    precision: str  # of the model that is watched
    fix: str  # what to set if it is not close enough
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        from threadpoolctl import ThreadpoolController

        self._random = np.random.default_rng(0)
        self._libraries = ThreadpoolController()

    def check(self, texts: Sequence[str], max_length: int, rows: RowArrays) -> None:
        """Compare some texts, as they were given to the model, with their rows.

        Word weights are compared as vectors with a number for each word, token vectors as one long vector.

        Raises:
            InputError: The cosine of one is below the limit.
        """
        limit = LIMITS[self.precision]
        for row in self._chosen(texts, max_length):
            (ids,), _ = tokenize(self.tokenizer, [texts[row]], max_length)
            if not len(ids):
                continue
            with self._libraries.limit(limits=1, user_api="blas"):  # waiting threads take more than they give
                expected = self.vector(ids)
            vector = row_as_vector(rows, row, len(expected))
            if not expected.any() and not vector.any():  # a text without words
                continue
            (cosine,) = cosines(vector[None], expected[None])
            if not cosine >= limit:
                raise InputError(
                    f"in {self.precision}, the vector of a text of {len(ids)} tokens has a cosine "
                    f"of {cosine:.6f} to the one that model '{self.name}' gives in fp32",
                    allowed=f"{limit:g} or more",
                    fix=self.fix,
                )

    def _chosen(self, texts: Sequence[str], max_length: int) -> list[int]:
        """The rows of the texts to compare."""
        if not texts:
            return []
        lengths = np.minimum([len(text) for text in texts], CHARACTERS * max_length)
        left = lengths.sum() / WATCHED
        rows = self._random.permutation(len(texts))
        longest = int(lengths.argmax())
        if lengths[longest] <= left / 2:
            rows = np.concatenate([[longest], rows[rows != longest]])
        few = int((np.cumsum(lengths[rows]) <= left).sum())
        return sorted(rows[: max(few, 1)].tolist())


def row_as_vector(rows: RowArrays, row: int, dimension: int) -> Array:
    """A row as a vector [dimension]: itself, its weights at the places of their words, or all its vectors."""
    if not isinstance(rows, RaggedRows):
        vector: Array = rows[row]
        return vector
    entries = slice(int(rows.ends[row - 1]) if row else 0, int(rows.ends[row]))
    if len(rows.columns) == 1:
        joined: Array = rows.columns[0][entries].reshape(-1)
        return joined
    words, weights = (column[entries] for column in rows.columns)
    vector = np.zeros(dimension, np.float32)
    vector[words] = weights
    return vector
