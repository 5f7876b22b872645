"""The `auto` backend: the fastest one here whose vectors equal FlagEmbedding's (see `choice`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

from pydantic import model_validator

from pipeline.config import (
    BACKENDS,
    DenseEncoderSettings,
    EncoderSettings,
    ModelSettings,
    MultiVectorEncoderSettings,
    SparseEncoderSettings,
)
from pipeline.config.runs_model import RunsModel
from pipeline.encoders import choice


class AutoSettings(DenseEncoderSettings):
    """The fastest backend here that gives FlagEmbedding's vectors in this precision."""

    backend: Literal["auto"] = ModelSettings.narrowed("backend", "auto")
    precision: Literal["fp32", "fp16", "bf16", "int16", "int8"] = EncoderSettings.narrowed(
        "precision",
        "fp32",
        doc="number format the model computes in; fp16 is fp32 on a CPU, and int16 may be taken for fp32",
    )

    @model_validator(mode="after")
    def _has_device(self) -> Self:
        if self.precision in choice.CPU_ALONE and self.device.startswith("cuda"):
            raise ValueError(
                f"model.precision is {self.precision}, which is computed on the CPU alone, and model.device "
                f"is {self.device}: change one of the two"
            )
        return self

    def candidates(self, resolve: Callable[[Any], Any]) -> Sequence[RunsModel]:
        """See `RunsModel.candidates`."""
        return choice.candidates(self, BACKENDS)


class AutoSparseSettings(SparseEncoderSettings):
    """The fastest backend here that gives FlagEmbedding's weights, or those of sentence-transformers."""

    backend: Literal["auto"] = ModelSettings.narrowed("backend", "auto")
    precision: Literal["fp32", "fp16", "bf16"] = EncoderSettings.narrowed("precision", "fp32")

    def candidates(self, resolve: Callable[[Any], Any]) -> Sequence[RunsModel]:
        """See `RunsModel.candidates`."""
        return choice.candidates_of_output(self, BACKENDS, resolve)


class AutoMultiVectorSettings(MultiVectorEncoderSettings):
    """The fastest backend here that gives FlagEmbedding's vectors, or those of sentence-transformers."""

    backend: Literal["auto"] = ModelSettings.narrowed("backend", "auto")
    precision: Literal["fp32", "fp16", "bf16"] = EncoderSettings.narrowed("precision", "fp32")

    def candidates(self, resolve: Callable[[Any], Any]) -> Sequence[RunsModel]:
        """See `RunsModel.candidates`."""
        return choice.candidates_of_output(self, BACKENDS, resolve)
