"""The `flag` backend for sparse output: BGE-M3's lexical weights, as FlagEmbedding computes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pipeline.config import EncoderSettings, ModelSettings, SparseEncoderSettings
from pipeline.encoders.torch.m3 import M3Backend, SeveralOutputs
from pipeline.models.model import Model


class FlagSparseSettings(SparseEncoderSettings):
    """FlagEmbedding, on CPU or GPU: lexical weights of BGE-M3."""

    backend: Literal["flag"] = ModelSettings.narrowed("backend", "flag")
    precision: Literal["fp32", "fp16", "bf16"] = EncoderSettings.narrowed("precision", "fp32")

    def load(self, model: Model, prepared: Path | None) -> M3Backend:
        """See `EncoderSettings.load`."""
        return M3Backend(model)

    def shares_pass(self, model: Model) -> bool:
        """See `EncoderSettings.shares_pass`."""
        return True

    def with_others(self, backend: M3Backend, model: Model, others: Sequence[Model]) -> SeveralOutputs:
        """See `EncoderSettings.with_others`."""
        return SeveralOutputs(backend, model, others)
