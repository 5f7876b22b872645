"""The `native` backend: encoders computed in int16 by this project's kernels, without torch.

This is the one for dense vectors; `outputs` has those for what it gives besides.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline.config import DenseEncoderSettings, EncoderSettings, ModelSettings
from pipeline.core.records import Float32
from pipeline.encoders.agreement import Reference
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.native import abilities
from pipeline.encoders.native.prepared import CPU, INT16, TOKENIZER, WEIGHTS, prepared_model, recipe
from pipeline.encoders.native.running import NativeRunner
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedModel

INSTEAD = "set model.backend to openvino and model.precision to fp32"


class NativeSettings(DenseEncoderSettings):
    """This project's own kernels, on the CPU."""

    on_gpu = False

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed("precision", "int16", doc=INT16)
    device: Literal["auto", "cpu"] = ModelSettings.narrowed("device", "auto", doc=CPU)

    def suits(self, model: Model) -> bool:
        """See `RunsModel.suits`."""
        return abilities.runs_here(model.config, model.trust_remote_code)

    def load(self, model: Model, prepared: Path) -> NativeBackend:
        """See `EncoderSettings.load`."""
        return NativeBackend(model, prepared)

    def reference(self, model: Model, prepared: Path) -> Reference:
        """See `EncoderSettings.reference`: the same network in fp32."""
        from pipeline.encoders.native.reference import Fp32Model

        vector = Fp32Model(prepared / WEIGHTS, model.pooling).vector
        return Reference(vector, "int16", INSTEAD)

    def prepared_recipe(self, model: Model) -> Recipe:
        """See `EncoderSettings.prepared_recipe`."""
        return recipe(model)

    def prepare(self, model: Model, store: Store) -> Artifact:
        """See `EncoderSettings.prepare`: the packed model and its tokenizer."""
        return prepared_model(model, store, partial(_read, model), INSTEAD)


class NativeBackend(NativeRunner):
    """A packed model, from the folder `prepared`."""

    network: PackedModel

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        network = _read(model, prepared / WEIGHTS)
        super().__init__(model.name, model.pad_id, network)
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.dimension = network.dimension

    def compute(self, batch: TokenBatch) -> Float32:
        """The vectors of a batch, float32 [b, dimension]."""
        return self.network.vectors(batch.ids, batch.mask)


def _read(model: Model, path: Path) -> PackedModel:
    from pipeline.encoders.native.packed_model import PackedModel

    return PackedModel(path, model.pooling)
