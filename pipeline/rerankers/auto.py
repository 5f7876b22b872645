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

ON_CPU = {
    "fp32": {"openvino": "fp32", "flag": "fp32"},
    "fp16": {"openvino": "fp32", "flag": "fp16"},  # which a CPU computes in fp32
    "bf16": {"flag": "bf16"},
}
"""As that of `choice`."""


class AutoRerankSettings(FlagRerankSettings):
    """The fastest backend here that gives FlagEmbedding's scores in this precision."""

    backend: Literal["auto"] = RerankSettings.narrowed("backend", "auto")
    precision: Literal["fp32", "fp16", "bf16"] = RerankSettings.narrowed(
        "precision",
        "fp32",
    )

    def candidates(self, resolve: Callable[[Any], Any]) -> Sequence[RunsModel]:
        """See `RunsModel.candidates`."""
        return choice.candidates(self, RERANKERS, ON_CPU)
