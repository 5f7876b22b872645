"""The `flag` backend for multi-vector output: BGE-M3's token vectors, as FlagEmbedding computes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pipeline.config import EncoderSettings, ModelSettings, MultiVectorEncoderSettings
from pipeline.encoders.torch.m3 import M3Backend, SeveralOutputs
from pipeline.models.model import Model


class FlagMultiVectorSettings(MultiVectorEncoderSettings):
    """FlagEmbedding, on CPU or GPU: token vectors of BGE-M3."""

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
