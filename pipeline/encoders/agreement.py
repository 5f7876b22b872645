"""Agreement of a converted model with the one that it was made of: on which texts, how close, and how far.

A conversion is compared with torch once, on texts of the built-in sample: its queries, and passages joined
and cut to every length up to the most that the model takes. Made-up token ids do not do: networks have
channels, heads and norms that only real words reach. While texts are encoded, a few of each shard are
compared with the fp32 model (`Watch`), because a collection may hold what the sample does not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Float32, Int32, Int64, RaggedRows
from pipeline.data.sources.folders import SAMPLE
from pipeline.encoders.batching import RowArrays, padded, refuse_unknown_tokens, tokenize
from pipeline.models.card import max_positions
from pipeline.storage.vector_forms import cosines

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

LIMITS = {"fp32": 0.99999, "int16": 0.99999, "fp16": 0.999, "bf16": 0.995, "int8": 0.9}
"""The lowest cosine, by precision, between a text's vector and that of fp32; int8 is lossy on purpose."""
LONGEST = 1024  # tokens of the longest text that a conversion is checked on
SHRINK = 0.75  # the length of each text, over that of the one before
QUERIES = 6  # of the sample, as they are
CENTRED_FACTOR = 100  # factor by which the tolerance on mean-centred cosines is wider
ROUNDING = 1e-5  # length of a mean-centred vector, over the vector's, below which fp32 does not hold it
WATCHED = 1000  # characters of a shard of which one is compared with the fp32 model
CHARACTERS = 5  # of a token, about; what is longer than the model takes is cut


class TorchVectors(NamedTuple):
    """Token ids of the texts, and the vectors that torch gives for each alone."""

    ids: Int64  # [texts, tokens], padded on the right; the longest text comes first
    mask: Int64  # [texts, tokens]
    vectors: Float32  # [texts, dimension]


def sample_tokens(tokenizer: Tokenizer, most: int) -> list[Int32]:
    """Token ids of real texts, the longest, of `most` tokens, first."""
    queries, passages = (
        [json.loads(line)["text"] for line in (SAMPLE / name).read_text(encoding="utf-8").splitlines()]
        for name in ("queries.jsonl", "corpus.jsonl")
    )
    tokens = tokenize(tokenizer, queries[:QUERIES], most)
    length = most
    while length >= 3:
        long = " ".join(itertools.islice(itertools.cycle(passages), len(tokens), len(tokens) + length))
        tokens += tokenize(tokenizer, [long[: 16 * length]], length)
        length = int(length * SHRINK)
    return sorted(tokens, key=lambda ids: -len(ids))


class PooledNetwork(Protocol):
    """A torch module from token ids and mask, int64 [b, tokens], to vectors float32 [b, dimension]."""

    body: PreTrainedModel

    def __call__(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """The vectors of some texts."""
        ...


def torch_vectors(network: PooledNetwork, name: str, tokenizer: Tokenizer, pad_id: int) -> TorchVectors:
    """The sample's texts, encoded by a `pooled_network` one by one, without padding.

    Raises:
        InputError: The tokenizer of the model `name` gives ids that its network has no embedding of.
    """
    import torch

    tokens = sample_tokens(tokenizer, min(LONGEST, max_positions(network.body.config.to_dict())))
    embedded = network.body.get_input_embeddings().num_embeddings
    refuse_unknown_tokens(name, max(int(ids.max()) for ids in tokens), embedded)
    rows, mask = padded(tokens, len(tokens[0]), pad_id)
    with torch.inference_mode():
        alone = [torch.from_numpy(ids.astype(np.int64))[None] for ids in tokens]
        vectors = torch.cat([network(ids, torch.ones_like(ids)) for ids in alone])
    return TorchVectors(rows, mask, vectors.numpy())


def disagreement(
    encode: Callable[[Int64, Int64], Float32], expected: TorchVectors, precision: str
) -> str | None:
    """How a converted model differs from torch beyond the limit of its precision; None if it does not.

    `encode` is called with token ids and mask of a long text and a short one together, which is padded.
    Mean-centred vectors are compared too: if all vectors point in nearly the same direction, their cosines
    say little.
    """
    lengths = expected.mask.sum(axis=1)
    converted = np.empty_like(expected.vectors)
    for row in range((len(lengths) + 1) // 2):
        pair = sorted({row, len(lengths) - 1 - row})
        width = int(lengths[pair[0]])
        converted[pair] = encode(expected.ids[pair, :width], expected.mask[pair, :width])
    return farthest(converted, expected.vectors, lengths, precision)


def farthest(converted: Float32, expected: Float32, lengths: Array, precision: str) -> str | None:
    """The vector that is farthest from the expected one, if it is beyond the limit of a precision.

    Vectors are float32 [texts, dimension], and `lengths` [texts] are the tokens of their texts.
    """
    converted, vectors = _scaled(converted), _scaled(expected)
    mean, limit = vectors.mean(axis=0), LIMITS[precision]
    cosine, centred_cosine = cosines(converted, vectors), cosines(converted - mean, vectors - mean)
    centred_cosine[np.linalg.norm(vectors - mean, axis=1) < ROUNDING] = 1  # it is the mean
    for name, values, allowed in (
        ("its vector", cosine, limit),
        ("its vector minus the mean of all", centred_cosine, 1 - CENTRED_FACTOR * (1 - limit)),
    ):
        finite = np.nan_to_num(values, nan=-1.0)
        worst = int(finite.argmin())
        if finite[worst] < allowed:
            return (
                f"a text of {lengths[worst]} tokens has a cosine of {finite[worst]:.6f} between {name} and "
                f"that of torch in fp32, and the limit is {allowed:g}"
            )
    return None


def _scaled(vectors: Float32) -> Float32:
    """Each row scaled to length 1; NaN where it is all zeros."""
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled: Float32 = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled


class Reference(NamedTuple):
    """The fp32 model that a `Watch` compares with."""

    vector: Callable[[Int32], Float32]  # token ids [tokens] of one text to its vector [dimension]
    precision: str  # of the model that is watched
    fix: str  # what to set if it is not close enough

    @property
    def limit(self) -> float:
        """The lowest cosine allowed between a text's vector and that of fp32."""
        return LIMITS[self.precision]


class Watch:
    """Compares a few of the texts that are encoded with the fp32 model, and stops where they differ.

    Of each shard, texts with one character in `WATCHED` are compared, the longest text among them where it is
    no more than half of that; of a small shard, one text. The fp32 model takes about four times as long for a
    text, so that this adds less than 1% to the time of shards of a thousand texts and more.
    """

    def __init__(self, name: str, reference: Reference, tokenizer: Tokenizer) -> None:
        from threadpoolctl import ThreadpoolController

        self.name, self.reference, self.tokenizer = name, reference, tokenizer
        self._random = np.random.default_rng(0)
        self._libraries = ThreadpoolController()

    def check(self, texts: Sequence[str], max_length: int, rows: RowArrays) -> None:
        """Compare some texts, as they were given to the model, with their rows.

        Word weights are compared as vectors with a number for each word, token vectors as one long vector.

        Raises:
            InputError: The cosine of one is below the limit.
        """
        limit = self.reference.limit
        for row in self._chosen(texts, max_length):
            (ids,) = tokenize(self.tokenizer, [texts[row]], max_length)
            if not len(ids):
                continue
            with self._libraries.limit(limits=1, user_api="blas"):  # waiting threads take more than they give
                expected = self.reference.vector(ids)
            vector = row_as_vector(rows, row, len(expected))
            if not expected.any() and not vector.any():  # a text without words
                continue
            (cosine,) = cosines(vector[None], expected[None])
            if not cosine >= limit:
                raise InputError(
                    f"in {self.reference.precision}, the vector of a text of {len(ids)} tokens has a cosine "
                    f"of {cosine:.6f} to the one that model '{self.name}' gives in fp32",
                    allowed=f"{limit:g} or more",
                    fix=self.reference.fix,
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
