"""Encoders: the registry of backends, and the encoder that runs a model with one of them.

To add a backend, write a file with a class that implements `batching.Backend` (a subclass of
`torch.backend.TorchBackend` if it runs PyTorch), and add its line to `_BACKENDS` and its name to
`config.ModelConfig.backend`; see docs/models.md.
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
from pipeline.encoders.bm25 import Lexical
from pipeline.encoders.precomputed import Precomputed
from pipeline.models.files import find_model
from pipeline.models.model import CalibrationCorpus, Model, Role
from pipeline.models.resolution import BackendSupport, FindModel, resolve_model
from pipeline.models.tokenizer import load_tokenizer
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
    "resolve",
    "token_counter",
]


@dataclass(frozen=True)
class _Backend:
    """A backend's class, which is not yet imported, and what it supports.

    Attributes:
        module: The module of the class; it is imported when a model is loaded.
        name: The class, a `batching.Backend`; it is called with the model and the store.
        support: Precisions, devices and models that it supports.
        keeps: Function of the module that gives the recipe of the converted model which the backend keeps in
            the store; None if it converts nothing.
    """

    module: str
    name: str
    support: BackendSupport
    keeps: str | None = None


_BACKENDS = {
    "flag": _Backend("pipeline.encoders.torch.flag", "FlagBackend", BackendSupport(("fp32", "fp16", "bf16"))),
    "sentence-transformers": _Backend(
        "pipeline.encoders.torch.sentence_transformers",
        "SentenceTransformersBackend",
        BackendSupport(("fp32", "fp16", "bf16"), as_sentence_transformers=True),
    ),
    "openvino": _Backend(
        "pipeline.encoders.openvino.backend",
        "OpenVINOBackend",
        BackendSupport(("fp32", "bf16", "int8"), devices=("cpu",)),
        keeps="network_recipe",
    ),
    "native": _Backend(
        "pipeline.encoders.native.backend",
        "NativeBackend",
        BackendSupport(("int16",), devices=("cpu",)),
        keeps="packed_recipe",
    ),
}


Source = Model | Precomputed | Lexical
"""What a config's model section resolves to: a model to run, vectors from files, or words alone."""


class Encoder(Protocol):
    """Turns texts into vectors."""

    def load(self) -> None:
        """Load the model now, so that encoding can be timed without it."""
        ...

    def encode(self, texts: Texts, rows: range, role: Role, usage: Usage, bar: Bar) -> Float32:
        """Encode some consecutive texts as passages or queries.

        Args:
            texts: All texts of the role.
            rows: Which of them to encode.
            role: Decides prompt and length.
            usage: What encoding costs is added to it.
            bar: Progress bar, updated for every encoded text.

        Returns:
            float32 [rows, dimension], in order.
        """
        ...


def resolve(config: ModelConfig, find: FindModel = find_model) -> Source:
    """Resolve a config's model section without loading anything (see `resolve_model`)."""
    if config.backend == "precomputed":
        return Precomputed.find(config)
    if config.backend == "bm25":
        return Lexical.of(config)
    return resolve_model(config, _BACKENDS[config.backend].support, find)


def kept_keys(config: ModelConfig, source: Source) -> dict[str, str]:
    """The keys of the converted models that the vectors are computed with, by backend."""
    known = _BACKENDS.get(config.backend)
    if known is None or known.keeps is None or not isinstance(source, Model):
        return {}
    recipe = getattr(importlib.import_module(known.module), known.keeps)
    return {config.backend: recipe(source).key}


def open_encoder(config: ModelConfig, source: Source, store: Store) -> Encoder:
    """The encoder for what `resolve` returned; a backend keeps the model that it converts in `store`."""
    if isinstance(source, Lexical):
        raise TypeError("words are not vectors: see pipeline.lexical")
    return source if isinstance(source, Precomputed) else ModelEncoder(config, source, store)


def token_counter(source: Source) -> Callable[[list[str]], list[int]] | None:
    """A function that counts the tokens of whole texts with the model's tokenizer; None without a model."""
    if not isinstance(source, Model):
        return None
    tokenizer = load_tokenizer(source, source.files.tokenizer_folder())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return lambda texts: [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts)]


class ModelEncoder:
    """An encoder that loads its model when it is first used.

    Args:
        config: The model section.
        model: The resolved model.
        store: Where a backend keeps the model that it converts.
    """

    def __init__(self, config: ModelConfig, model: Model, store: Store) -> None:
        self.config, self.model, self.store = config, model, store

    @cached_property
    def backend(self) -> batching.Backend:
        """The loaded model; loading may fetch and convert it."""
        known = _BACKENDS[self.config.backend]
        loaded = getattr(importlib.import_module(known.module), known.name)
        backend: batching.Backend = loaded(self.model, self.store)
        self.model.files.check()
        if self.model.truncate_dim and self.model.truncate_dim > backend.dimension:
            raise InputError(
                f"model.truncate_dim: {self.model.truncate_dim}, but '{self.model.name}' makes vectors of "
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
        chosen = texts.texts.slice(rows.start, len(rows)).to_pylist()
        prompted = [before + text + after for text in chosen] if before or after else chosen
        length = self.model.max_lengths[role]
        vectors = batching.encode(self.backend, prompted, length, usage, bar, self.config.batch_size)
        return _truncated(vectors, self.model.truncate_dim, self.model.normalize)


def _truncated(vectors: Float32, dimensions: int | None, normalize: bool) -> Float32:
    """The first dimensions of each vector, scaled to length 1 again if vectors are normalized."""
    if dimensions is None or dimensions == vectors.shape[1]:
        return vectors
    vectors = vectors[:, :dimensions].copy()
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return vectors
