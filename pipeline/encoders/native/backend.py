"""The `native` backend: encoders computed in int16 by this project's kernels, without torch.

This is the one for dense vectors; `outputs` has those for what it gives besides.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.records import Float32
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.native.prepared import TOKENIZER, WEIGHTS
from pipeline.encoders.native.running import NativeRunner
from pipeline.models.model import Model

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedModel

INSTEAD = "set model.backend to openvino and model.precision to fp32"


class NativeBackend(NativeRunner):
    """A packed model, from the folder `prepared`."""

    network: PackedModel

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        network = read_dense(model, prepared / WEIGHTS)
        super().__init__(model.name, model.pad_id, network)
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.dimension = network.dimension

    def compute(self, batch: TokenBatch) -> Float32:
        """The vectors of a batch, float32 [b, dimension]."""
        return self.network.vectors(batch.ids, batch.mask)


def read_dense(model: Model, path: Path) -> PackedModel:
    """The packed network of dense vectors in a file."""
    from pipeline.encoders.native.packed_model import PackedModel

    return PackedModel(path, model.pooling)
