"""BGE-M3 as FlagEmbedding loads it: a network, and heads for word weights and for token vectors.

FlagEmbedding computes them so, and the `flag` backend runs them for sparse and multi-vector output.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64, Ragged
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.encoders.torch.loading import explain_loading_errors, refuse_missing_weights
from pipeline.encoders.torch.multi_vector_encoder import kept_vectors, packed
from pipeline.models.model import Model
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer


class _M3(TorchRunner):
    """BGE-M3's network with the head of one output."""

    network: Any
    tokenizer: Tokenizer

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        flag = load_m3(model)
        module = flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network = module.model
        self.tokenizer = fast_tokenizer(model.name, flag.tokenizer)
        self.unused = unused_tokens(flag.tokenizer)
        self.normalize = model.normalize
        self.linear = module.sparse_linear if model.output == "sparse" else module.colbert_linear

    @abstractmethod
    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The head's float32 numbers of hidden states [b, tokens, width]; ids and mask: int64 [b, tokens]."""

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """The head's numbers of a batch; see `read`."""
        import torch

        with torch.inference_mode():
            ids, mask = self.on_device(batch.ids), self.on_device(batch.mask)
            hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
            return self.read(hidden, ids, mask)


class M3Weights(_M3):
    """A weight for each token; of equal tokens the largest counts."""

    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The tokens, as the bits of int32, and their weights, float32 [b, 2, tokens]."""
        import torch

        weights = torch.relu(self.linear(hidden)).squeeze(-1).float() * mask
        return torch.stack([ids.to(torch.int32).view(torch.float32), weights], dim=1)

    def finish(self, count: int, computed: Float32) -> Ragged:
        """The words of each text, ascending, with weights above 0; special tokens have none."""
        words = np.ascontiguousarray(computed[:, 0]).view(np.int32)
        weights = computed[:, 1]
        rows, places = np.nonzero(weights > 0)
        return largest_weights(rows, words[rows, places], weights[rows, places], self.unused, len(computed))


class M3TokenVectors(_M3):
    """A vector for each token but the first, CLS."""

    @override
    def read(self, hidden: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return packed(self.linear(hidden[:, 1:]), mask[:, 1:], self.normalize)

    def finish(self, count: int, computed: Float32) -> Ragged:
        """The token vectors of each text."""
        return kept_vectors(computed)


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


TOKEN_HEAD, WORD_HEAD = "colbert_linear.pt", "sparse_linear.pt"
"""Files of the heads; if one is missing, FlagEmbedding takes random weights for both."""
UNUSED = ("cls_token", "eos_token", "pad_token", "unk_token")
"""Special tokens that FlagEmbedding gives no weight."""


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


def read_head(folder: Path, output: str) -> Any:
    """The weights of a linear head, `weight` and `bias`, by the output that it makes."""
    import torch

    path = folder / (WORD_HEAD if output == "sparse" else TOKEN_HEAD)
    return torch.load(path, map_location="cpu", weights_only=True)


def unused_tokens(tokenizer: Any) -> Int64:
    """The numbers of the special tokens that have no weight, of a tokenizer of transformers."""
    named = tokenizer.special_tokens_map
    return np.array(
        [tokenizer.convert_tokens_to_ids(named[name]) for name in UNUSED if name in named], np.int64
    )


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
