"""The `native` backend: BERT networks computed in int16 by this project's kernels, without torch."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipeline.config import DenseEncoderSettings, EncoderSettings, ModelSettings
from pipeline.core import machine
from pipeline.core.errors import InputError, UnsuitedError
from pipeline.core.records import Float32, Int64
from pipeline.encoders import conversion
from pipeline.encoders.agreement import Reference, TorchVectors, disagreement
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.native import abilities
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedModel, PackedNetwork

log = logging.getLogger(__name__)

SCHEMA = 3
TOKENS = 1024  # tokens per batch
WEIGHTS, TOKENIZER = "weights.npz", "tokenizer.json"
INSTEAD = "set model.backend to openvino and model.precision to fp32"


class NativeSettings(DenseEncoderSettings):
    """This project's own kernels, on the CPU."""

    on_gpu = False

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed(
        "precision", "int16", doc="number format the model computes in: int16 and no other"
    )
    device: Literal["auto", "cpu"] = ModelSettings.narrowed(
        "device", "auto", doc="auto or cpu: it computes nowhere else"
    )

    def suits(self, model: Model) -> bool:
        """See `RunsModel.suits`."""
        return abilities.has_vnni() and abilities.computes(model.config, model.trust_remote_code)

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
        return conversion.conversion_recipe(model, "native", SCHEMA, "numba")

    def prepare(self, model: Model, store: Store) -> Artifact:
        """See `EncoderSettings.prepare`: the packed model and its tokenizer."""
        return store.make(self.prepared_recipe(model), lambda draft: (_pack(model, draft), {}))[0]


class NativeRunner:
    """Computes batches of a packed network: every core computes a batch of its own in one thread."""

    length_settings = "model.passage_max_length and model.query_max_length"  # for messages

    def __init__(self, name: str, pad_id: int, network: PackedNetwork) -> None:
        self.name, self.pad_id, self.network = name, pad_id, network
        self.token_budget, self.width_multiple, self.computes_padding = TOKENS, 1, False
        self.threads = machine.threads_allowed() or machine.cores()

    def compute(self, batch: TokenBatch) -> Float32:
        """Some numbers for each row of a batch, float32 [b, …]; called in a thread."""
        raise NotImplementedError

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Float32]]:
        """See `pipeline.encoders.batching.Backend`."""
        busy = collections.deque[tuple[Int64, Future[Float32]]]()
        with ThreadPoolExecutor(self.threads) as threads:
            for batch in batches:
                self._check(batch)
                if len(busy) > self.threads:
                    rows, computed = busy.popleft()
                    yield rows, computed.result()
                busy.append((batch.rows, threads.submit(self.compute, batch)))
            for rows, computed in busy:
                yield rows, computed.result()

    def _check(self, batch: TokenBatch) -> None:
        """Refuse tokens and positions that the weights have no embedding of: the kernels check no bounds."""
        if batch.ids.max() >= self.network.vocabulary:
            raise InputError(
                f"the tokenizer of model '{self.name}' gives token {batch.ids.max()}, "
                f"and its weights hold {self.network.vocabulary}",
                fix="restore the model's files",
            )
        if batch.ids.shape[1] > self.network.longest:  # config.json may not declare it
            raise InputError(
                f"a text has {batch.ids.shape[1]} tokens, and model '{self.name}' has positions for "
                f"{self.network.longest}",
                fix=f"lower {self.length_settings}",
            )


class NativeBackend(NativeRunner):
    """A packed model, from the folder `prepared`."""

    network: PackedModel

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        from pipeline.encoders.native.packed_model import PackedModel

        ready_kernels()
        network = PackedModel(prepared / WEIGHTS, model.pooling)
        super().__init__(model.name, model.pad_id, network)
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.dimension = network.dimension

    def compute(self, batch: TokenBatch) -> Float32:
        """The vectors of a batch, float32 [b, dimension]."""
        return self.network.vectors(batch.ids, batch.mask)


def ready_kernels() -> None:
    """Compile the kernels or load them from disk, and warn if they are slow on this CPU."""
    from pipeline.encoders.native import kernels

    kernels.compile_all()
    if not abilities.has_vnni():
        log.warning("int16 is not native on this CPU, which has no VNNI: slower than fp32 with openvino")


def _pack(model: Model, draft: Draft) -> dict[str, Any]:
    from pipeline.encoders.native.kernels import compile_all
    from pipeline.encoders.native.packed_model import PackedModel
    from pipeline.encoders.native.packing import TORCH_VECTORS
    from pipeline.encoders.native.reference import LINEAR, matrix_file

    log.info("packing %s in int16, once", model.name)
    with draft.scratch() as aside, ThreadPoolExecutor(1) as thread:
        compiling = thread.submit(compile_all)  # while a subprocess packs the model
        conversion.convert_in_subprocess(
            model,
            "pipeline.encoders.native.packing",
            aside / WEIGHTS,
            made="packed in int16",
            allowed=abilities.LIMITS,
            fix=INSTEAD,
        )
        compiling.result()
        with np.load(aside / TORCH_VECTORS, allow_pickle=False) as stored:
            expected = TorchVectors(**stored)
        packed = PackedModel(aside / WEIGHTS, model.pooling)
        differs = disagreement(packed.vectors, expected, "int16")
        if differs:
            raise UnsuitedError(f"model '{model.name}' cannot be computed in int16: {differs}", fix=INSTEAD)
        conversion.keep_files(aside, draft, (WEIGHTS, TOKENIZER, *map(matrix_file, LINEAR)))
    return {"name": model.name}
