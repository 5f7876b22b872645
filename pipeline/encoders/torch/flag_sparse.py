"""The `flag` backend for sparse output: BGE-M3's lexical weights, as FlagEmbedding computes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.config import EncoderSettings, ModelSettings, SparseEncoderSettings
from pipeline.core.records import Float32, Int64, Ragged
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.torch.backend import TorchRunner
from pipeline.encoders.torch.m3 import load_m3
from pipeline.models.model import Model
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch

UNUSED = ("cls_token", "eos_token", "pad_token", "unk_token")
"""Special tokens that FlagEmbedding gives no weight."""


class FlagSparseSettings(SparseEncoderSettings):
    """FlagEmbedding, on CPU or GPU: lexical weights of BGE-M3."""

    backend: Literal["flag"] = ModelSettings.narrowed("backend", "flag")
    precision: Literal["fp32", "fp16", "bf16"] = EncoderSettings.narrowed("precision", "fp32")

    def load(self, model: Model, prepared: Path | None) -> FlagSparseBackend:
        """See `EncoderSettings.load`."""
        return FlagSparseBackend(model)


class FlagSparseBackend(TorchRunner):
    """BGE-M3's network and its head for the weights of tokens, of which a word has the largest."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        flag = load_m3(model)
        module = flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network, self.head = module.model, module.sparse_linear
        self.tokenizer = fast_tokenizer(model.name, flag.tokenizer)
        named = flag.tokenizer.special_tokens_map
        numbers = [flag.tokenizer.convert_tokens_to_ids(named[name]) for name in UNUSED if name in named]
        self.unused = np.array(numbers, np.int64)

    def compute(self, batch: TokenBatch) -> torch.Tensor:
        """The tokens, as the bits of int32, and their weights: float32 [b, 2, tokens]."""
        import torch

        with torch.inference_mode():
            ids, mask = self.on_device(batch.ids), self.on_device(batch.mask)
            hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
            weights = torch.relu(self.head(hidden)).squeeze(-1).float() * mask
            return torch.stack([ids.to(torch.int32).view(torch.float32), weights], dim=1)

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Ragged]]:  # type: ignore[override]
        """See `pipeline.encoders.batching.Backend`."""
        for rows, tokens in super().forward(batches):
            yield rows, _largest(tokens, self.unused)


def _largest(tokens: Float32, unused: Int64) -> Ragged:
    """The largest weight of each word of a text, of what `compute` returns; `unused` words are left out."""
    words = np.ascontiguousarray(tokens[:, 0]).view(np.int32)
    weights = tokens[:, 1]
    rows, places = np.nonzero((weights > 0) & ~np.isin(words, unused))
    pairs = rows * (1 << 32) + words[rows, places]
    order = np.argsort(pairs, kind="stable")
    firsts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    chosen = pairs[order][firsts]
    largest = weights[rows, places][order]
    largest = np.maximum.reduceat(largest, firsts) if len(firsts) else largest
    lengths = np.bincount(chosen >> 32, minlength=len(tokens))
    return Ragged(np.cumsum(lengths), ((chosen & 0xFFFFFFFF).astype(np.int32), largest))
