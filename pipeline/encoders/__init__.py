"""Encoder backends: what a config's model is resolved to, and how texts become vectors.

A backend is one file here: its settings, and a class that keeps `batching.Backend` and turns token ids into
vectors (one that runs PyTorch extends `torch.backend.TorchBackend`). `config.model.BACKENDS` lists them; see
docs/models.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from pipeline.config import EncoderSettings, ModelSettings
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.core.records import Float32, Texts
from pipeline.encoders import batching
from pipeline.encoders.batching import Usage
from pipeline.encoders.precomputed import Precomputed
from pipeline.models.files import find_model
from pipeline.models.model import CalibrationCorpus, Model, Role
from pipeline.models.resolution import FindModel, resolve_model
from pipeline.models.tokenizer import load_tokenizer
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


Source = Model | Precomputed
"""What a config's model is: one that is run, or vectors that are given."""


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


def resolve(config: ModelSettings, find: FindModel = find_model) -> Source:
    """What a config's model section names, without loading anything (see `resolve_model`)."""
    if isinstance(config, EncoderSettings):
        return resolve_model(config, find)
    found: Source = config.open()
    return found


def kept_keys(config: ModelSettings, source: Source) -> dict[str, str]:
    """Keys of what a backend makes of the model and keeps: vectors are made from that."""
    recipe = config.kept_recipe(source) if isinstance(config, EncoderSettings) else None
    return {config.backend: recipe.key} if recipe else {}


def open_encoder(config: ModelSettings, source: Source, store: Store) -> Encoder:
    """The encoder for what `resolve` found; `store` is where a backend may keep what it prepares."""
    if isinstance(source, Precomputed):
        return source
    if not isinstance(config, EncoderSettings):
        raise TypeError(f"backend '{config.backend}' runs no model")
    return ModelEncoder(config, source, store)


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

    def __init__(self, config: EncoderSettings, model: Model, store: Store) -> None:
        self.config, self.model, self.store = config, model, store

    @cached_property
    def backend(self) -> batching.Backend:
        """The loaded model; loading may convert or fetch it."""
        backend: batching.Backend = self.config.load(self.model, self.store)
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
