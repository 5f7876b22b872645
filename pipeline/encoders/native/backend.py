"""The `native` backend: BERT networks computed in int16 by this project's kernels, without torch.

It gives dense vectors, and the weights of words of SPLADE models.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipeline.config import DenseEncoderSettings, EncoderSettings, ModelSettings, SparseEncoderSettings
from pipeline.core import machine
from pipeline.core.errors import InputError, UnsuitedError
from pipeline.core.records import Float32, Int64, Ragged
from pipeline.encoders import conversion
from pipeline.encoders.agreement import Reference, TorchVectors, disagreement
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.native import abilities
from pipeline.models.model import Model
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from pipeline.encoders.native.packed_model import PackedModel, PackedNetwork, PackedSplade

log = logging.getLogger(__name__)

SCHEMA = 3
TOKENS = 1024  # tokens per batch
WEIGHTS, TOKENIZER = "weights.npz", "tokenizer.json"
INSTEAD = "set model.backend to openvino and model.precision to fp32"
INT16 = "number format the model computes in: int16 and no other"
CPU = "auto or cpu: it computes nowhere else"
INSTEAD_SPARSE = "set model.backend to sentence-transformers and model.precision to fp32"


def _recipe(model: Model) -> Recipe:
    """The recipe of the packed model and its tokenizer."""
    return conversion.conversion_recipe(model, "native", SCHEMA, "numba")


def _prepared(model: Model, store: Store) -> Artifact:
    """The packed model and its tokenizer, reused or made."""
    return store.make(_recipe(model), lambda draft: (_pack(model, draft), {}))[0]


class NativeSettings(DenseEncoderSettings):
    """This project's own kernels, on the CPU."""

    on_gpu = False

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed("precision", "int16", doc=INT16)
    device: Literal["auto", "cpu"] = ModelSettings.narrowed("device", "auto", doc=CPU)

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
        return _recipe(model)

    def prepare(self, model: Model, store: Store) -> Artifact:
        """See `EncoderSettings.prepare`: the packed model and its tokenizer."""
        return _prepared(model, store)


class NativeSparseSettings(SparseEncoderSettings):
    """This project's own kernels, on the CPU: SPLADE models on BERT."""

    on_gpu = False
    as_sentence_transformers = True

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed("precision", "int16", doc=INT16)
    device: Literal["auto", "cpu"] = ModelSettings.narrowed("device", "auto", doc=CPU)

    def load(self, model: Model, prepared: Path) -> NativeSparseBackend:
        """See `EncoderSettings.load`."""
        return NativeSparseBackend(model, prepared)

    def reference(self, model: Model, prepared: Path) -> Reference:
        """See `EncoderSettings.reference`: the same network in fp32."""
        from pipeline.encoders.native.reference import Fp32Splade

        return Reference(Fp32Splade(prepared / WEIGHTS).vector, "int16", INSTEAD_SPARSE)

    def prepared_recipe(self, model: Model) -> Recipe:
        """See `EncoderSettings.prepared_recipe`."""
        return _recipe(model)

    def prepare(self, model: Model, store: Store) -> Artifact:
        """See `EncoderSettings.prepare`: the packed model and its tokenizer."""
        return _prepared(model, store)


class NativeRunner:
    """Computes batches of a packed network: every core computes a batch of its own in one thread."""

    length_settings = "model.passage_max_length and model.query_max_length"  # for messages

    def __init__(self, name: str, pad_id: int, network: PackedNetwork) -> None:
        self.name, self.pad_id, self.network = name, pad_id, network
        self.token_budget, self.width_multiple, self.computes_padding = TOKENS, 1, False
        self.threads = machine.threads_allowed() or machine.cores()

    def compute(self, batch: TokenBatch) -> Any:
        """What is made of a batch, as `pipeline.encoders.batching.Backend` says; called in a thread."""
        raise NotImplementedError

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Any]]:
        """See `pipeline.encoders.batching.Backend`."""
        busy = collections.deque[tuple[Int64, Future[Any]]]()
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


class NativeSparseBackend(NativeRunner):
    """A packed SPLADE, from the folder `prepared`."""

    network: PackedSplade

    def __init__(self, model: Model, prepared: Path) -> None:
        from tokenizers import Tokenizer

        from pipeline.encoders.native.kernels import compile_logits
        from pipeline.encoders.native.packed_model import PackedSplade

        ready_kernels()
        compile_logits()
        super().__init__(model.name, model.pad_id, PackedSplade(prepared / WEIGHTS))
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))

    def compute(self, batch: TokenBatch) -> Ragged:
        """The words of each text, ascending, with weights above 0."""
        weights = self.network.vectors(batch.ids, batch.mask)
        rows, words = np.nonzero(weights)
        ends = np.cumsum(np.bincount(rows, minlength=len(weights)))
        return Ragged(ends, (words.astype(np.int32), weights[rows, words]))


def ready_kernels() -> None:
    """Compile the kernels or load them from disk, and warn if they are slow on this CPU."""
    from pipeline.encoders.native import kernels

    kernels.compile_all()
    if not abilities.has_vnni():
        log.warning("int16 is not native on this CPU, which has no VNNI: slower than fp32 with openvino")


def _pack(model: Model, draft: Draft) -> dict[str, Any]:
    from pipeline.encoders.native.kernels import compile_all
    from pipeline.encoders.native.packed_model import PackedModel, PackedSplade
    from pipeline.encoders.native.packing import TORCH_VECTORS
    from pipeline.encoders.native.reference import LINEAR, matrix_file

    log.info("packing %s in int16, once", model.name)
    sparse = model.output == "sparse"
    instead = INSTEAD_SPARSE if sparse else INSTEAD
    with draft.scratch() as aside, ThreadPoolExecutor(1) as thread:
        compiling = thread.submit(compile_all)  # while a subprocess packs the model
        conversion.convert_in_subprocess(
            model,
            "pipeline.encoders.native.packing",
            aside / WEIGHTS,
            made="packed in int16",
            allowed=abilities.LIMITS,
            fix=instead,
        )
        compiling.result()
        with np.load(aside / TORCH_VECTORS, allow_pickle=False) as stored:
            expected = TorchVectors(**stored)
        packed = PackedSplade(aside / WEIGHTS) if sparse else PackedModel(aside / WEIGHTS, model.pooling)
        differs = disagreement(packed.vectors, expected, "int16")
        if differs:
            raise UnsuitedError(f"model '{model.name}' cannot be computed in int16: {differs}", fix=instead)
        conversion.keep_files(aside, draft, (WEIGHTS, TOKENIZER, *map(matrix_file, LINEAR)))
    return {"name": model.name}
