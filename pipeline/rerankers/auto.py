"""The `auto` backend of rerankers: the fastest one here that gives FlagEmbedding's scores.

See `pipeline.encoders.choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pipeline.config import RERANKERS, RerankSettings
from pipeline.config.rerank import FlagRerankSettings
from pipeline.config.runs_model import RunsModel
from pipeline.encoders import choice


class AutoRerankSettings(FlagRerankSettings):
    """The fastest backend here that gives FlagEmbedding's scores in this precision."""

    backend: Literal["auto"] = RerankSettings.narrowed("backend", "auto")
    precision: Literal["fp32", "fp16", "bf16"] = RerankSettings.narrowed(
        "precision",
        "fp32",
        doc="number format the model computes in; fp16 is fp32 on a CPU, and int16 may be taken for fp32",
    )

    def candidates(self, resolve: Callable[[Any], Any]) -> Sequence[RunsModel]:
        """See `RunsModel.candidates`."""
        return choice.candidates(self, RERANKERS)
