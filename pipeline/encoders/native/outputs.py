"""The `native` backend for other outputs than dense: word weights, and vectors of tokens.

It computes them for SPLADE models, and for BGE-M3.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipeline.config import (
    EncoderSettings,
    ModelSettings,
    MultiVectorEncoderSettings,
    SparseEncoderSettings,
)
from pipeline.core.records import Ragged
from pipeline.encoders.agreement import Reference
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.m3_heads import refuse_missing_heads
from pipeline.encoders.native import abilities
from pipeline.encoders.native.prepared import CPU, INT16, TOKENIZER, WEIGHTS, prepared_model, recipe
from pipeline.encoders.native.running import NativeRunner
from pipeline.models.files import Files
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.m3 import PackedM3
    from pipeline.encoders.native.packed_model import PackedSplade

INSTEAD_M3 = "set model.backend to flag and model.precision to fp32"
INSTEAD_SPLADE = "set model.backend to sentence-transformers and model.precision to fp32"


class NativeSparseSettings(SparseEncoderSettings):
    """This project's own kernels, on the CPU: BGE-M3, and SPLADE models."""

    on_gpu = False

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed("precision", "int16", doc=INT16)
    device: Literal["auto", "cpu"] = ModelSettings.narrowed("device", "auto", doc=CPU)

    def follows_sentence_transformers(self, files: Files) -> bool:
        """See `EncoderSettings.follows_sentence_transformers`: SPLADE models are, and BGE-M3 is not."""
        return not files.has_m3_heads

    def suits(self, model: Model) -> bool:
        """See `RunsModel.suits`."""
        one_chain = not model.files.read_json("router_config.json")
        return one_chain and abilities.runs_here(model.config, model.trust_remote_code)

    def load(self, model: Model, prepared: Path) -> NativeRunner:
        """See `EncoderSettings.load`."""
        backend = NativeM3Backend if model.files.has_m3_heads else NativeSpladeBackend
        return backend(model, prepared)

    def reference(self, model: Model, prepared: Path) -> Reference:
        """See `EncoderSettings.reference`: the same network in fp32."""
        from pipeline.encoders.native.reference import Fp32Splade

        if model.files.has_m3_heads:
            return _reference_of_m3(model, prepared)
        return Reference(Fp32Splade(prepared / WEIGHTS).vector, "int16", INSTEAD_SPLADE)

    def prepared_recipe(self, model: Model) -> Recipe:
        """See `EncoderSettings.prepared_recipe`."""
        return recipe(model)

    def prepare(self, model: Model, store: Store) -> Artifact:
        """See `EncoderSettings.prepare`: the packed model and its tokenizer."""
        if model.files.has_m3_heads:
            return prepared_model(model, store, partial(_read_m3, model), INSTEAD_M3)
        return prepared_model(model, store, _read_splade, INSTEAD_SPLADE)


class NativeMultiVectorSettings(MultiVectorEncoderSettings):
    """This project's own kernels, on the CPU: BGE-M3."""

    on_gpu = False

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed("precision", "int16", doc=INT16)
    device: Literal["auto", "cpu"] = ModelSettings.narrowed("device", "auto", doc=CPU)

    def suits(self, model: Model) -> bool:
        """See `RunsModel.suits`."""
        return abilities.runs_here(model.config, model.trust_remote_code)

    def load(self, model: Model, prepared: Path) -> NativeM3Backend:
        """See `EncoderSettings.load`."""
        return NativeM3Backend(model, prepared)

    def reference(self, model: Model, prepared: Path) -> Reference:
        """See `EncoderSettings.reference`: the same network in fp32."""
        return _reference_of_m3(model, prepared)

    def prepared_recipe(self, model: Model) -> Recipe:
        """See `EncoderSettings.prepared_recipe`."""
        return recipe(model)

    def prepare(self, model: Model, store: Store) -> Artifact:
        """See `EncoderSettings.prepare`: the packed model and its tokenizer."""
        refuse_missing_heads(model)
        return prepared_model(model, store, partial(_read_m3, model), INSTEAD_M3)


class NativeSpladeBackend(NativeRunner):
    """A packed SPLADE, from the folder `prepared`."""

    network: PackedSplade

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        from pipeline.encoders.native.heads import compile_logits

        compile_logits()
        super().__init__(model.name, model.pad_id, _read_splade(prepared / WEIGHTS))
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))

    def compute(self, batch: TokenBatch) -> Ragged:
        """The words of each text, ascending, with weights above 0."""
        weights = self.network.vectors(batch.ids, batch.mask)
        rows, words = np.nonzero(weights)
        ends = np.cumsum(np.bincount(rows, minlength=len(weights)))
        return Ragged(ends, (words.astype(np.int32), weights[rows, words]))


class NativeM3Backend(NativeRunner):
    """BGE-M3 packed for one of its outputs, sparse or multi-vector, from the folder `prepared`."""

    network: PackedM3

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        from pipeline.encoders.native.heads import compile_projection

        compile_projection()
        super().__init__(model.name, model.pad_id, _read_m3(model, prepared / WEIGHTS))
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))

    def compute(self, batch: TokenBatch) -> Ragged:
        """The words of each text with their weights, or the vectors of its tokens."""
        return self.network.rows(batch.ids, batch.mask)


def _read_splade(path: Path) -> PackedSplade:
    from pipeline.encoders.native.packed_model import PackedSplade

    return PackedSplade(path)


def _read_m3(model: Model, path: Path) -> PackedM3:
    from pipeline.encoders.native.m3 import PackedM3

    return PackedM3(path, model.output, model.normalize)


def _reference_of_m3(model: Model, prepared: Path) -> Reference:
    from pipeline.encoders.native.reference import Fp32M3

    vector = Fp32M3(prepared / WEIGHTS, model.output, model.normalize).vector
    return Reference(vector, "int16", INSTEAD_M3)
