"""BGE-M3's heads in the native backend: word weights and token vectors of a packed network's states."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.core.records import Float32, Int64, Ragged
from pipeline.encoders.conversion import Settings, pooled_network
from pipeline.encoders.m3_heads import largest_weights, read_head, unused_tokens
from pipeline.encoders.native.heads import project
from pipeline.encoders.native.layers import Linear
from pipeline.encoders.native.packed_model import PackedNetwork
from pipeline.kernels.int16 import PANEL, pack_rows

if TYPE_CHECKING:
    import torch

COMPARED = 16  # tokens of a text whose numbers are compared with torch's, when a model is packed


class WordHead(NamedTuple):
    """The head that gives each token a weight, computed in fp32: it has one row."""

    weight: Float32  # [width]
    bias: Float32  # [1]
    unused: Int64  # numbers of the tokens that have no weight

    def numbers(self, hidden: Float32) -> Float32:
        """What it makes of hidden states [n, width], before weights below 0 are dropped, [n, 1].

        `einsum` adds the products of a row in the same order whatever the number of rows.
        """
        made: Float32 = np.einsum("tw,w->t", hidden, self.weight) + self.bias
        return made[:, None]

    def rows(self, hidden: Float32, texts: Int64, ids: Int64) -> Ragged:
        """The words of each text, ascending, with weights above 0; arguments as `PackedNetwork.hidden` gives.

        `ids` are the numbers of all texts' tokens, int64 [n].
        """
        weights = self.numbers(hidden)[:, 0]
        owners = np.repeat(np.arange(len(texts) - 1), np.diff(texts))
        kept = weights > 0
        return largest_weights(owners[kept], ids[kept], weights[kept], self.unused, len(texts) - 1)


class TokenHead(NamedTuple):
    """The head that gives each token but the first, CLS, a vector."""

    linear: Linear  # of one layer; its rows are rounded up to a multiple of 64
    dimension: int
    normalize: bool  # whether vectors are scaled to length 1

    def numbers(self, hidden: Float32) -> Float32:
        """What it makes of hidden states [n, width], not normalized, [n, dimension]."""
        made: Float32 = project(hidden, self.linear)[:, : self.dimension]
        return made

    def rows(self, hidden: Float32, texts: Int64, ids: Int64) -> Ragged:
        """The vectors of each text; see `WordHead.rows`."""
        others = np.ones(len(hidden), bool)
        others[texts[:-1]] = False
        vectors = self.numbers(hidden[others])
        if self.normalize:
            vectors = scaled(vectors)
        return Ragged(texts[1:] - np.arange(1, len(texts)), (np.ascontiguousarray(vectors),))


def scaled(vectors: Float32) -> Float32:
    """Vectors float32 [n, dimension], each scaled to length 1 as torch does it."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
    divided: Float32 = vectors / np.maximum(lengths, np.float32(1e-12))[:, None]
    return divided


class PackedM3(PackedNetwork):
    """BGE-M3 for one of its outputs, sparse or multi-vector, from the `.npz` of `packing.pack_model`."""

    def __init__(self, path: Path, output: str, normalize: bool) -> None:
        super().__init__(path)
        with np.load(path, allow_pickle=False) as stored:
            self.head = read_packed(stored, output, normalize)

    def rows(self, ids: Int64, mask: Int64) -> Ragged:
        """What the head makes of each text of a batch, int64 [b, tokens] with its mask."""
        hidden, texts = self.hidden(ids, mask, only_first=False)
        return self.head.rows(hidden, texts, self.kept_ids(ids, mask))

    def compared(self, ids: Int64, mask: Int64) -> Float32:
        """See `PackedNetwork.compared`: the numbers of some tokens of each text, [b, numbers]."""
        hidden, texts = self.hidden(ids, mask, only_first=False)
        numbers = self.head.numbers(hidden)
        made = [numbers[start:stop] for start, stop in itertools.pairwise(texts)]
        return np.stack([each[spread(len(each))].reshape(-1) for each in made])


def spread(count: int) -> Int64:
    """The places of COMPARED tokens of a text of `count`, in equal distances."""
    places: Int64 = np.linspace(0, count - 1, COMPARED).astype(np.int64)
    return places


def m3_network(folder: Path, settings: Settings) -> Any:
    """A torch module from token ids and mask, int64 [1, tokens], to what `PackedM3.compared` gives.

    Its attribute `body` is the network, and `arrays` are the head's, as `read_packed` reads them.
    """
    import torch

    pooled = pooled_network(folder, settings)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = pooled.body
            self.arrays = head_arrays(folder, settings.output, settings.trust_remote_code)
            self.weight, self.bias = (
                torch.from_numpy(self.arrays[f"head.{part}"]) for part in ("weight", "bias")
            )

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[0]
            numbers = torch.nn.functional.linear(hidden, self.weight, self.bias)
            return numbers[torch.from_numpy(spread(len(numbers)))].reshape(1, -1)

    return Network()


def head_arrays(folder: Path, output: str, trust_remote_code: bool) -> dict[str, Any]:
    """The arrays of the head of an output, from the model's files."""
    head = {part: weights.float().numpy() for part, weights in read_head(folder, output).items()}
    arrays: dict[str, Any] = {f"head.{part}": head[part] for part in ("weight", "bias")}
    if output == "sparse":
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        return {**arrays, "head.unused": unused_tokens(tokenizer)}
    more = -len(head["weight"]) % PANEL
    pairs, factors = pack_rows(np.pad(head["weight"], ((0, more), (0, 0))))
    packed = Linear(pairs[None], factors[None], np.pad(head["bias"], (0, more))[None])
    return {**arrays, **{f"packed.{name}": value for name, value in packed._asdict().items()}}


def read_packed(stored: Any, output: str, normalize: bool) -> WordHead | TokenHead:
    """The head of an output, of the arrays of `head_arrays`."""
    weight, bias = stored["head.weight"], stored["head.bias"]
    if output == "sparse":
        return WordHead(weight[0], bias, stored["head.unused"])
    return TokenHead(Linear(*(stored[f"packed.{name}"] for name in Linear._fields)), len(weight), normalize)
