"""The `native` backend: encoders computed in int16 by this project's kernels, without torch.

It computes dense vectors, word weights of SPLADE models and of BGE-M3, and token vectors of BGE-M3.
"""

from __future__ import annotations

import collections
import logging
from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Float32, Int64, RaggedRows
from pipeline.encoders import conversion
from pipeline.encoders.agreement import CHECKS, PROBES, Watch
from pipeline.encoders.batching import TokenBatch
from pipeline.encoders.conversion import TOKENIZER, Conversion
from pipeline.encoders.torch.loading import largest_weights, refuse_missing_heads
from pipeline.models.model import ResolvedModel
from pipeline.models.outputs import splade_obstacle
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from pipeline.native.vectors import PackedM3, PackedModel, PackedNetwork, PackedSplade

log = logging.getLogger(__name__)

SCHEMA = 12
WEIGHTS = "weights.npz"
TOKENS = 512  # tokens per batch, twice as many with AMX: their states stay in the processor's cache
PLAIN = ("bert", "roberta", "xlm-roberta", "distilbert")
TYPES = (*PLAIN, "mpnet", "modernbert", "nomic_bert", "gte")
"""The values of `model_type` in `config.json` of networks that the kernels compute; first those like BERT."""
LIMITS = "BERT, RoBERTa, XLM-RoBERTa, DistilBERT and MPNet with GELU; ModernBERT, Nomic-BERT and GTE"
INSTEAD = {"dense": "openvino", "splade": "sentence-transformers", "m3": "flag"}
"""By network the backend to take if it cannot be packed, or gives other vectors than torch."""
_ACTIVATIONS = ("hidden_act", "activation", "hidden_activation", "activation_function")


class NativeConversion(Conversion):
    """A model packed once for the kernels."""

    @override
    def suits(self, model: ResolvedModel) -> bool:
        """Whether the kernels are fast here and compute a network, as far as its `config.json` tells."""
        config = model.card.config
        kind = config.get("model_type")
        activation = next((config[name] for name in _ACTIVATIONS if name in config), "gelu")
        return (
            machine.has_vnni()
            and kind in TYPES
            and (activation == "gelu" or kind in ("nomic_bert", "gte"))
            and config.get("position_embedding_type", "absolute") in ("absolute", "rope")
            and not config.get("is_decoder")
            and not (model.trust_remote_code and "auto_map" in config)
            and not (_network(model) == "splade" and splade_obstacle(model.card))
        )

    @override
    def recipe(self, model: ResolvedModel) -> Recipe:
        recipe = conversion.conversion_recipe(model, "native", SCHEMA, "numba")
        return replace(recipe, plain={**recipe.plain, "kernels": machine.float_kernels()})

    @override
    def make(self, model: ResolvedModel, store: Store) -> Artifact:
        if model.output == "multivector":
            refuse_missing_heads(model)
        return store.make(self.recipe(model), lambda draft: _pack(model, draft, self.fix(model)))

    @override
    def fix(self, model: ResolvedModel) -> str:
        return f"set model.backend to {INSTEAD[_network(model)]} and model.precision to fp32"

    @override
    def watch(self, model: ResolvedModel, folder: Path, tokenizer: Tokenizer) -> Watch:
        from pipeline.native.vectors import Fp32M3, Fp32Model, Fp32Splade

        weights, network = folder / WEIGHTS, _network(model)
        same: Fp32Model
        if network == "dense":
            same = Fp32Model(weights, model.pooling)
        elif network == "splade":
            same = Fp32Splade(weights)
        else:
            same = Fp32M3(weights, model.output)
        return Watch(model.name, same.vector, "int16", self.fix(model), tokenizer)


CONVERSION = NativeConversion()


def load(model: ResolvedModel, prepared: Path) -> NativeRunner:
    """The packed network of a model."""
    from pipeline.native import vectors

    path, network = prepared / WEIGHTS, _network(model)
    if network == "dense":
        return NativeBackend(model, prepared, vectors.PackedModel(path, model.pooling))
    if network == "splade":
        return NativeSpladeBackend(model, prepared, vectors.PackedSplade(path))
    return NativeM3Backend(model, prepared, vectors.PackedM3(path))


def _network(model: ResolvedModel) -> str:
    """Which network is packed: that of dense vectors, a SPLADE, or BGE-M3 with the head of an output."""
    if model.output == "dense":
        return "dense"
    return "splade" if model.output == "sparse" and not model.card.has_m3_heads else "m3"


def _pack(model: ResolvedModel, draft: Draft, fix: str) -> dict[str, Any]:
    """Write the packed weights, the matrices in fp32, the tokenizer, and rows of torch."""
    from pipeline.native.vectors import MATRICES, compile_forward

    log.info("packing %s in int16, once", model.name)
    files = (WEIGHTS, TOKENIZER, PROBES, CHECKS, *MATRICES.values())
    with ThreadPoolExecutor(1) as thread:
        if model.card.config.get("model_type") in PLAIN:
            thread.submit(compile_forward)  # while a subprocess packs the model
        module = "pipeline.encoders.native_packing"
        return conversion.convert(model, draft, module, files, "packed in int16", LIMITS, fix)


class NativeRunner:
    """A packed network, from the folder `prepared`: every core computes a batch of its own in one thread."""

    def __init__(self, model: ResolvedModel, prepared: Path, network: PackedNetwork) -> None:
        from tokenizers import Tokenizer

        self.network, self.model = network, model
        network.compile()
        if not machine.has_vnni():
            log.warning("int16 is not native on this CPU, which has no VNNI: slower than fp32 with openvino")
        self.name, self.pad_id = model.name, model.pad_id
        self.tokenizer = Tokenizer.from_file(str(prepared / TOKENIZER))
        self.token_budget = 2 * TOKENS if machine.has_amx() else TOKENS
        self.width_multiple, self.computes_padding = 1, False
        self.embedded, self.reads_padding = network.vocabulary, False
        self.threads = machine.threads()

    @abstractmethod
    def compute(self, batch: TokenBatch) -> Float32 | RaggedRows:
        """The rows of a batch, as `Backend.forward` gives them; called in a thread."""

    def forward(self, batches: Iterator[TokenBatch]) -> Iterator[tuple[Int64, Float32 | RaggedRows]]:
        """For each batch its `rows` and what the model makes of them, in their order."""
        busy = collections.deque[tuple[Int64, Future[Float32 | RaggedRows]]]()
        with ThreadPoolExecutor(self.threads) as threads:
            for batch in batches:
                # the kernels check no bounds, and config.json may not declare them
                if batch.ids.shape[1] > self.network.longest:
                    raise InputError(
                        f"a text has {batch.ids.shape[1]} tokens, and model '{self.name}' has positions for "
                        f"{self.network.longest}",
                        fix="lower model.passage_max_length and model.query_max_length",
                    )
                if len(busy) > self.threads:  # one batch waits, so that no thread does
                    rows, computed = busy.popleft()
                    yield rows, computed.result()
                busy.append((batch.rows, threads.submit(self.compute, batch)))
            for rows, computed in busy:
                yield rows, computed.result()


class NativeBackend(NativeRunner):
    """A packed model that gives a vector for each text."""

    network: PackedModel

    def __init__(self, model: ResolvedModel, prepared: Path, network: PackedModel) -> None:
        super().__init__(model, prepared, network)
        self.dimension = network.dimension

    @override
    def compute(self, batch: TokenBatch) -> Float32:
        return self.network.vectors(batch.ids, batch.mask)


class NativeSpladeBackend(NativeRunner):
    """A packed SPLADE: the words of each text, ascending, with weights above 0."""

    network: PackedSplade

    @override
    def compute(self, batch: TokenBatch) -> RaggedRows:
        weights = self.network.vectors(batch.ids, batch.mask)
        rows, words = np.nonzero(weights)
        ends = np.cumsum(np.bincount(rows, minlength=len(weights)))
        return RaggedRows(ends, (words.astype(np.int32), weights[rows, words]))


class NativeM3Backend(NativeRunner):
    """BGE-M3 packed for one output: the words of each text with weights, or vectors of its tokens but CLS."""

    network: PackedM3

    @override
    def compute(self, batch: TokenBatch) -> RaggedRows:
        numbers, texts, ids = self.network.numbers(batch.ids, batch.mask)
        if self.network.unused is not None:
            weights = numbers[:, 0]
            owners = np.repeat(np.arange(len(texts) - 1), np.diff(texts))
            positive = weights > 0
            entries = owners[positive], ids[positive], weights[positive]
            return largest_weights(*entries, self.network.unused, len(texts) - 1)
        others = np.ones(len(numbers), bool)
        others[texts[:-1]] = False  # CLS
        vectors = numbers[others]
        lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
        vectors = vectors / np.maximum(lengths, np.float32(1e-12))[:, None]  # as torch normalizes
        return RaggedRows(texts[1:] - np.arange(1, len(texts)), (np.ascontiguousarray(vectors),))
