"""Which backend runs the model? A backend is one file here that turns token ids into vectors.

To add one, write its file with a class that keeps `batching.Backend` (one that runs PyTorch extends
`torch_backend.TorchBackend`), and add its line to `_BACKENDS` and its name to `config.ModelConfig.backend`;
see docs/models.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pipeline.config import ModelConfig
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Float32
from pipeline.encoders import batching
from pipeline.encoders.batching import Usage
from pipeline.encoders.bm25 import Lexical
from pipeline.encoders.precomputed import Precomputed
from pipeline.models import files as model_files
from pipeline.models import loading
from pipeline.models import model as models
from pipeline.models.model import Abilities, CalibrationCorpus, Model, Role
from pipeline.storage.artifacts import Artifact
from pipeline.storage.store import Store

__all__ = [
    "CalibrationCorpus",
    "Encoder",
    "Lexical",
    "Model",
    "Precomputed",
    "Role",
    "Source",
    "Usage",
    "kept_keys",
    "open_encoder",
    "prepare",
    "resolve",
    "token_counter",
]


@dataclass(frozen=True)
class _Backend:
    """Where a backend is, and what it does.

    Attributes:
        module: Imported when a model is loaded.
        name: Of the class in it, a `batching.Backend`; it is called with the model and, if the backend
            prepares models, the folder of what it prepared.
        can: What decides how a model is resolved.
        keeps: The module's function that gives the recipe of what the backend prepares of a model; its
            function `prepare` makes that in a store. None if the backend uses the model's own files.
    """

    module: str
    name: str
    can: Abilities
    keeps: str | None = None


_BACKENDS = {
    "flag": _Backend("pipeline.encoders.torch.flag", "FlagBackend", Abilities(("fp32", "fp16", "bf16"))),
    "sentence-transformers": _Backend(
        "pipeline.encoders.torch.sentence_transformers",
        "SentenceTransformersBackend",
        Abilities(("fp32", "fp16", "bf16"), as_sentence_transformers=True),
    ),
    "openvino": _Backend(
        "pipeline.encoders.openvino.backend",
        "OpenVINOBackend",
        Abilities(("fp32", "bf16", "int8"), devices=("cpu",)),
        keeps="network_recipe",
    ),
    "native": _Backend(
        "pipeline.encoders.native.backend",
        "NativeBackend",
        Abilities(("int16",), devices=("cpu",)),
        keeps="packed_recipe",
    ),
}


Source = Model | Precomputed | Lexical
"""What a config's model is: one that is run, vectors that are there, or words alone."""


class Encoder(Protocol):
    """A loaded model, which turns texts into vectors."""

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        """Encode texts as passages or queries.

        Args:
            texts: The texts, in any order; batches are made of texts of similar length.
            role: Decides prompt and length.
            usage: Added to.
            bar: Advanced by every text encoded.

        Returns:
            float32 [texts, dimension], in the order of `texts`.
        """
        ...


def resolve(config: ModelConfig, find: models.Find = model_files.find) -> Source:
    """What the config's model is, without loading it (see `models.resolve`)."""
    if config.backend == "precomputed":
        return Precomputed.find(config)
    if config.backend == "bm25":
        return Lexical.of(config)
    return models.resolve(config, _BACKENDS[config.backend].can, find)


def kept_keys(config: ModelConfig, source: Source) -> dict[str, str]:
    """Keys of what a backend makes of the model and keeps: vectors are made from that."""
    known = _BACKENDS.get(config.backend)
    if known is None or known.keeps is None or not isinstance(source, Model):
        return {}
    recipe = getattr(importlib.import_module(known.module), known.keeps)
    return {config.backend: recipe(source).key}


def prepare(config: ModelConfig, model: Model, store: Store) -> Artifact | None:
    """What the backend prepares of a model, reused or made; None if it uses the model's own files."""
    known = _BACKENDS[config.backend]
    if known.keeps is None:
        return None
    prepared: Artifact = importlib.import_module(known.module).prepare(model, store)
    model.files.check()
    return prepared


def open_encoder(config: ModelConfig, model: Model, store: Store) -> Encoder:
    """The loaded model, after its backend has prepared it in `store` if it does so."""
    prepared = prepare(config, model, store)
    return ModelEncoder(config, model, prepared.folder if prepared else None)


def token_counter(source: Source) -> Callable[[list[str]], list[int]] | None:
    """Counts the tokens of texts with the model's tokenizer, uncut; None where there is no model."""
    if not isinstance(source, Model):
        return None
    tokenizer = loading.load_tokenizer(source, source.files.of_tokenizer())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]


class ModelEncoder:
    """A model that one of the backends runs, loaded.

    Args:
        config: The model section.
        model: What it resolved to.
        prepared: The folder of what `prepare` made of it; None if it made nothing.

    Raises:
        InputError: The model cannot be loaded, or makes vectors of fewer dimensions than are to be kept.
    """

    def __init__(self, config: ModelConfig, model: Model, prepared: Path | None) -> None:
        known = _BACKENDS[config.backend]
        backend = getattr(importlib.import_module(known.module), known.name)
        self.config, self.model = config, model
        self.backend: batching.Backend = backend(model, prepared) if prepared else backend(model)
        if prepared is None:
            model.files.check()
        if model.truncate_dim and model.truncate_dim > self.backend.dimension:
            raise InputError(
                f"model.truncate_dim: {model.truncate_dim}, and '{model.name}' makes vectors of "
                f"{self.backend.dimension} dimensions",
                allowed=f"1 to {self.backend.dimension}",
                fix="lower it, or set it to null",
            )

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Float32:
        """See `Encoder.encode`."""
        before, after = self.model.prompts[role]
        prompted = [before + text + after for text in texts] if before or after else texts
        length = self.model.max_lengths[role]
        vectors = batching.encode(self.backend, prompted, length, usage, bar, self.config.batch_size)
        return _truncated(vectors, self.model.truncate_dim, self.model.normalize)


def _truncated(vectors: Float32, dimensions: int | None, normalize: bool) -> Float32:
    """The first dimensions of each vector, of length 1 again if that is wanted."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    vectors = vectors[:, :dimensions].copy()
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors
