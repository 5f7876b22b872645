"""Which backend runs the model? A backend is one file here that turns token ids into vectors.

To add one, write its file with a class that keeps `batching.Backend` (one that runs PyTorch extends
`torch_backend.TorchBackend`), and add its line to `_BACKENDS` and its name to `config.ModelConfig.backend`;
see docs/models.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pipeline.config import ModelConfig
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Float32, Texts
from pipeline.encoders import batching
from pipeline.encoders.batching import Usage
from pipeline.encoders.precomputed import Precomputed
from pipeline.models import files as model_files
from pipeline.models import loading
from pipeline.models import model as models
from pipeline.models.model import Abilities, CalibrationCorpus, Model, Role
from pipeline.storage.store import Store

__all__ = [
    "CalibrationCorpus",
    "Encoder",
    "Model",
    "Precomputed",
    "Role",
    "Source",
    "Usage",
    "kept_keys",
    "open_encoder",
    "resolve",
    "token_counter",
]


@dataclass(frozen=True)
class _Backend:
    """Where a backend is, and what it does.

    Attributes:
        module: Imported when a model is loaded.
        name: Of the class in it, a `batching.Backend`; it is called with the model and the store.
        can: What decides how a model is resolved.
        keeps: The module's function that gives the recipe of what the backend makes of a model and keeps in
            the store; none if it keeps nothing.
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


Source = Model | Precomputed
"""What a config's model is: one that is run, or vectors that are given."""


class Encoder(Protocol):
    """Turns texts into vectors."""

    def load(self) -> None:
        """Make ready, so that encoding alone can be timed."""
        ...

    def encode(self, texts: Texts, rows: range, role: Role, usage: Usage, bar: Bar) -> Float32:
        """Encode some consecutive texts as passages or queries.

        Args:
            texts: All of them.
            rows: Which; these are sorted by length among themselves.
            role: Decides prompt and length.
            usage: Added to.
            bar: Told of every text encoded.

        Returns:
            float32 [rows, dimension], in order.
        """
        ...


def resolve(config: ModelConfig, find: models.Find = model_files.find) -> Source:
    """What the config's model is, without loading it (see `models.resolve`)."""
    if config.backend == "precomputed":
        return Precomputed.find(config)
    return models.resolve(config, _BACKENDS[config.backend].can, find)


def kept_keys(config: ModelConfig, source: Source) -> dict[str, str]:
    """Keys of what a backend makes of the model and keeps: vectors are made from that."""
    known = _BACKENDS.get(config.backend)
    if known is None or known.keeps is None or not isinstance(source, Model):
        return {}
    recipe = getattr(importlib.import_module(known.module), known.keeps)
    return {config.backend: recipe(source).key}


def open_encoder(config: ModelConfig, source: Source, store: Store) -> Encoder:
    """The encoder for what `resolve` found; `store` is where a backend may keep what it prepares."""
    return source if isinstance(source, Precomputed) else ModelEncoder(config, source, store)


def token_counter(source: Source) -> Callable[[list[str]], list[int]] | None:
    """Counts the tokens of texts with the model's tokenizer, uncut; None where there is no model."""
    if not isinstance(source, Model):
        return None
    tokenizer = loading.load_tokenizer(source, source.files.of_tokenizer())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]


class ModelEncoder:
    """A model, loaded when first used.

    Args:
        config: The model section.
        model: What it resolved to.
        store: Where a backend may keep what it prepares.
    """

    def __init__(self, config: ModelConfig, model: Model, store: Store) -> None:
        self.config, self.model, self.store = config, model, store

    @cached_property
    def backend(self) -> batching.Backend:
        """The loaded model; loading may convert or fetch it."""
        known = _BACKENDS[self.config.backend]
        loaded = getattr(importlib.import_module(known.module), known.name)
        backend: batching.Backend = loaded(self.model, self.store)
        self.model.files.check()
        if self.model.truncate_dim and self.model.truncate_dim > backend.dimension:
            raise InputError(
                f"model.truncate_dim: {self.model.truncate_dim}, and '{self.model.name}' makes vectors of "
                f"{backend.dimension} dimensions",
                allowed=f"1 to {backend.dimension}",
                fix="lower it, or set it to null",
            )
        return backend

    def load(self) -> None:
        """Load the model now."""
        _ = self.backend

    def encode(self, texts: Texts, rows: range, role: Role, usage: Usage, bar: Bar) -> Float32:
        """See `Encoder.encode`."""
        before, after = self.model.prompts[role]
        part = texts.texts.slice(rows.start, len(rows)).to_pylist()
        prompted = [before + text + after for text in part] if before or after else part
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
