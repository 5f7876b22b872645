"""BGE-M3 as FlagEmbedding loads it: a network, and heads for word weights and for token vectors.

A head makes one output of the network's last hidden states. A backend has the head of its own output;
`SeveralOutputs` has several, and runs the network once for all of them.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64, Ragged
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.encoders.torch.first_token import limit_last_layer_to_first_token
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.encoders.torch.token_vectors import kept_vectors, packed
from pipeline.models.model import Model
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

TOKEN_HEAD, WORD_HEAD = "colbert_linear.pt", "sparse_linear.pt"
"""Files of the heads; if one is missing, FlagEmbedding takes random weights for both."""
UNUSED = ("cls_token", "eos_token", "pad_token", "unk_token")
"""Special tokens that FlagEmbedding gives no weight."""


class Head(ABC):
    """Makes one output of a batch's last hidden states."""

    @abstractmethod
    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Some numbers, float32, of hidden states [b, tokens, width]; ids and mask are int64 [b, tokens]."""

    def finish(self, numbers: Float32) -> Any:
        """The rows of the batch's texts, given what `read` returned."""
        return numbers


class FirstToken(Head):
    """The state of the first token: the dense vector, whole and not normalized.

    Args:
        limited: What `limit_last_layer_to_first_token` returned for the network.
    """

    def __init__(self, limited: Any) -> None:
        self.limited = limited

    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `Head.read`: float32 [b, width]."""
        first: torch.Tensor = hidden if self.limited is None else self.limited.first
        return first[:, 0].float()


class WordWeights(Head):
    """A weight for each token; of equal tokens the largest counts. `unused` ones have none."""

    def __init__(self, linear: Any, unused: Int64) -> None:
        self.linear, self.unused = linear, unused

    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `Head.read`: the tokens, as the bits of int32, and their weights, [b, 2, tokens]."""
        import torch

        weights = torch.relu(self.linear(hidden)).squeeze(-1).float() * mask
        return torch.stack([ids.to(torch.int32).view(torch.float32), weights], dim=1)

    def finish(self, numbers: Float32) -> Ragged:
        """See `Head.finish`."""
        words = np.ascontiguousarray(numbers[:, 0]).view(np.int32)
        weights = numbers[:, 1]
        rows, places = np.nonzero(weights > 0)
        return largest_weights(rows, words[rows, places], weights[rows, places], self.unused, len(numbers))


class TokenVectors(Head):
    """A vector for each token but the first, CLS."""

    def __init__(self, linear: Any, normalize: bool) -> None:
        self.linear, self.normalize = linear, normalize

    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `Head.read` and `token_vectors.packed`."""
        return packed(self.linear(hidden[:, 1:]), mask[:, 1:], self.normalize)

    def finish(self, numbers: Float32) -> Ragged:
        """See `Head.finish`."""
        return kept_vectors(numbers)


def largest_weights(rows: Int64, words: Any, weights: Float32, unused: Int64, count: int) -> Ragged:
    """The words of each text, ascending, and of each word the largest weight.

    Args:
        rows: int64 [n], the text of each token, of `count` texts.
        words: [n], the number of each token.
        weights: float32 [n], above 0.
        unused: The tokens that have no weight.
        count: How many texts there are.
    """
    used = ~np.isin(words, unused)
    pairs = rows[used] * (1 << 32) + words[used]
    order = np.argsort(pairs, kind="stable")
    firsts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    chosen = pairs[order][firsts]
    largest = weights[used][order]
    largest = np.maximum.reduceat(largest, firsts) if len(firsts) else largest
    lengths = np.bincount(chosen >> 32, minlength=count)
    return Ragged(np.cumsum(lengths), ((chosen & 0xFFFFFFFF).astype(np.int32), largest))


class M3Backend(TorchRunner):
    """BGE-M3's network with the head of one of its outputs, sparse or multi-vector."""

    network: Any
    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        flag = load_m3(model)
        module = flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network = module.model
        self.tokenizer = fast_tokenizer(model.name, flag.tokenizer)
        self.unused = unused_tokens(flag.tokenizer)
        linear = module.sparse_linear if model.output == "sparse" else module.colbert_linear
        self.head = _head(model, linear, self.unused)

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """See `Head.read`."""
        import torch

        with torch.inference_mode():
            ids, mask = self.on_device(batch.ids), self.on_device(batch.mask)
            hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
            return self.head.read(hidden, ids, mask)

    def finish(self, count: int, *computed: Float32) -> Any:
        """See `TorchRunner.finish`."""
        return self.head.finish(computed[0])


class SeveralOutputs(TorchRunner):
    """A loaded network with the heads of several outputs; what it makes of a batch is a list, one for each.

    Every output has the bits that it has when it is made alone. Dense vectors alone are computed by a last
    layer of one token; so that layer is computed twice here, the second time at a sixth of its cost.

    Args:
        backend: An `M3Backend`, or the backend of dense vectors with `cls` pooling, which goes on as before.
        own: Its model.
        others: The same model, resolved for other outputs.
    """

    def __init__(self, backend: Any, own: Model, others: Sequence[Model]) -> None:
        super().__init__(own)
        self.network, self.tokenizer = backend.network, backend.tokenizer
        self.limited = getattr(backend, "limited", None)
        self.always_whole = isinstance(backend, M3Backend)
        dense = any(model.output == "dense" for model in others)
        if self.always_whole and dense and self.limited is None:
            self.limited = backend.limited = limit_last_layer_to_first_token(self.network)
        if self.always_whole and self.limited is not None:
            self.limited.whole = True
        self.heads = [self._head_of(model, backend.unused) for model in (own, *others)]

    def _head_of(self, model: Model, unused: Int64) -> Head:
        if model.output == "dense":
            return FirstToken(self.limited)
        return _head(model, _read_linear(model).to(device=self.device, dtype=self.dtype).eval(), unused)

    def compute(self, batch: TokenBatch) -> list[torch.Tensor]:
        """See `Head.read`."""
        import torch

        with torch.inference_mode(), self._all_tokens():
            ids, mask = self.on_device(batch.ids), self.on_device(batch.mask)
            hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
            return [head.read(hidden, ids, mask) for head in self.heads]

    @contextlib.contextmanager
    def _all_tokens(self) -> Iterator[None]:
        """While the last layer computes all tokens."""
        if self.limited is None:
            yield
            return
        self.limited.whole = True
        try:
            yield
        finally:
            self.limited.whole = self.always_whole

    def finish(self, count: int, *computed: Float32) -> list[Any]:
        """See `TorchRunner.finish`."""
        return [head.finish(numbers) for head, numbers in zip(self.heads, computed, strict=True)]


def unused_tokens(tokenizer: Any) -> Int64:
    """The numbers of the special tokens that have no weight, of a tokenizer of transformers."""
    named = tokenizer.special_tokens_map
    return np.array(
        [tokenizer.convert_tokens_to_ids(named[name]) for name in UNUSED if name in named], np.int64
    )


def load_m3(model: Model) -> Any:
    """FlagEmbedding's inference module of BGE-M3, in the model's precision on its device.

    Its `model` is the network; `colbert_linear` and `sparse_linear` are the heads.
    """
    refuse_missing_heads(model)
    folder = model.files.folder()
    with explain_loading_errors(model, "FlagEmbedding"):
        flag = _load(model, folder)
    refuse_missing_weights(model, folder, flag.model.model)
    return flag


def refuse_missing_heads(model: Model) -> None:
    """Raise an `InputError` if a model is without the files of BGE-M3's heads."""
    folder = model.files.folder()
    missing = [name for name in (TOKEN_HEAD, WORD_HEAD) if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"model '{model.name}' has no {missing[0]}",
            allowed="BGE-M3, or a model that was fine-tuned from it by FlagEmbedding",
            fix="choose such a model, backend sentence-transformers, or model.output: dense",
        )


def _load(model: Model, folder: Path) -> Any:
    from FlagEmbedding import FlagAutoModel

    return FlagAutoModel.from_finetuned(
        str(folder),
        model_class="encoder-only-m3",
        normalize_embeddings=model.normalize,
        use_fp16=model.precision == "fp16",
        use_bf16=model.precision == "bf16",
        devices=[model.device],
        pooling_method="cls",
        trust_remote_code=model.trust_remote_code,
        query_instruction_format="{}{}",
        colbert_dim=len(read_head(folder, "multivector")["weight"]),
    )


def _head(model: Model, linear: Any, unused: Int64) -> Head:
    """The head of a model's output, sparse or multi-vector."""
    return WordWeights(linear, unused) if model.output == "sparse" else TokenVectors(linear, model.normalize)


def _read_linear(model: Model) -> Any:
    """The linear layer of a model's output, from its file."""
    import torch

    weights = read_head(model.files.folder(), model.output)
    height, width = weights["weight"].shape
    linear = torch.nn.Linear(width, height)
    linear.load_state_dict(weights)
    return linear


def read_head(folder: Path, output: str) -> Any:
    """The weights of a linear head, `weight` and `bias`, by the output that it makes."""
    import torch

    path = folder / (WORD_HEAD if output == "sparse" else TOKEN_HEAD)
    return torch.load(path, map_location="cpu", weights_only=True)
