"""The `native` backend for other outputs than dense: word weights, and vectors of tokens.

It computes them for SPLADE models, and for BGE-M3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.config.model import NativeSettings
from pipeline.core.records import Ragged
from pipeline.encoders.agreement import Reference
from pipeline.encoders.batching import Backend, TokenBatch
from pipeline.encoders.m3_heads import refuse_missing_heads
from pipeline.encoders.native import abilities
from pipeline.encoders.native.backend import INSTEAD, NativeBackend, read_dense
from pipeline.encoders.native.prepared import TOKENIZER, WEIGHTS, prepared_model, recipe
from pipeline.encoders.native.running import NativeRunner
from pipeline.encoders.opener import Opener
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.m3 import PackedM3
    from pipeline.encoders.native.packed_model import PackedSplade

INSTEAD_M3 = "set model.backend to flag and model.precision to fp32"
INSTEAD_SPLADE = "set model.backend to sentence-transformers and model.precision to fp32"


class NativeOpener(Opener[NativeSettings, Model, Backend]):
    """A model packed once for the kernels; sparse output is BGE-M3's or a SPLADE's."""

    def suits(self, model: Model) -> bool:
        """Whether the kernels run a model's architecture here; a SPLADE with two chains is not run."""
        two_chains = model.output == "sparse" and model.files.read_json("router_config.json")
        return not two_chains and abilities.runs_here(model.config, model.trust_remote_code)

    def recipe(self, model: Model) -> Recipe:
        """The recipe of the packed model."""
        return recipe(model)

    def prepare(self, model: Model, store: Store) -> Artifact:
        """The packed model and its tokenizer."""
        if model.output == "multivector":
            refuse_missing_heads(model)
        network = _network(model)
        if network == "dense":
            return prepared_model(model, store, partial(read_dense, model), INSTEAD)
        if network == "splade":
            return prepared_model(model, store, _read_splade, INSTEAD_SPLADE)
        return prepared_model(model, store, partial(_read_m3, model), INSTEAD_M3)

    def load(self, settings: NativeSettings, model: Model, prepared: Path | None) -> Backend:
        """Load the packed model for its output."""
        assert prepared is not None
        loads: dict[str, Callable[[Model, Path], Backend]] = {
            "dense": NativeBackend, "splade": NativeSpladeBackend, "m3": NativeM3Backend
        }  # fmt: skip
        return loads[_network(model)](model, prepared)

    def reference(self, model: Model, prepared: Path | None) -> Reference:
        """The same network in fp32."""
        from pipeline.encoders.native.reference import Fp32M3, Fp32Model, Fp32Splade

        assert prepared is not None
        weights, network = prepared / WEIGHTS, _network(model)
        if network == "dense":
            return Reference(Fp32Model(weights, model.pooling).vector, "int16", INSTEAD)
        if network == "splade":
            return Reference(Fp32Splade(weights).vector, "int16", INSTEAD_SPLADE)
        return Reference(Fp32M3(weights, model.output, model.normalize).vector, "int16", INSTEAD_M3)


def _network(model: Model) -> str:
    """Which network is packed: that of dense vectors, a SPLADE, or BGE-M3 with the head of an output."""
    if model.output == "dense":
        return "dense"
    return "splade" if model.output == "sparse" and not model.files.has_m3_heads else "m3"


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
