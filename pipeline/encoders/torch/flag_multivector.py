"""The `flag` backend for multi-vector output: BGE-M3's token vectors, as FlagEmbedding computes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.config import EncoderSettings, ModelSettings, MultiVectorEncoderSettings
from pipeline.encoders.torch.m3 import load_m3
from pipeline.encoders.torch.token_vectors import TokenVectorBackend
from pipeline.models.model import Model
from pipeline.models.tokenizer import fast_tokenizer

if TYPE_CHECKING:
    import torch


class FlagMultiVectorSettings(MultiVectorEncoderSettings):
    """FlagEmbedding, on CPU or GPU: token vectors of BGE-M3."""

    backend: Literal["flag"] = ModelSettings.narrowed("backend", "flag")
    precision: Literal["fp32", "fp16", "bf16"] = EncoderSettings.narrowed("precision", "fp32")

    def load(self, model: Model, prepared: Path | None) -> FlagMultiVectorBackend:
        """See `EncoderSettings.load`."""
        return FlagMultiVectorBackend(model)


class FlagMultiVectorBackend(TokenVectorBackend):
    """BGE-M3's network and its head for token vectors. The first token, CLS, has none."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        flag = load_m3(model)
        module = flag.model.to(device=self.device, dtype=self.dtype).eval()
        self.network, self.head = module.model, module.colbert_linear
        self.tokenizer = fast_tokenizer(model.name, flag.tokenizer)

    def token_vectors(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `TokenVectorBackend.token_vectors`."""
        hidden = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
        return self.head(hidden[:, 1:]), mask[:, 1:]
