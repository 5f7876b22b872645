"""Encoder backends: what a config's model is resolved to, and how texts become vectors.

A backend has an `Opener`, and a class with the interface `batching.Backend` (one that runs PyTorch extends
`torch.backend.TorchBackend`). `backends.OPENERS` lists them; see docs/models.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from pipeline.config import EncoderSettings, ModelSettings, RowSettings
from pipeline.core.display import Bar
from pipeline.core.records import JsonObject, VectorForm
from pipeline.encoders import backends, batching
from pipeline.encoders.agreement import Watch
from pipeline.encoders.base import RowSource
from pipeline.encoders.batching import Rows, Usage
from pipeline.models import tokenizer
from pipeline.models.files import find_model
from pipeline.models.model import ROLES, CalibrationCorpus, Model, Ready, Role
from pipeline.models.resolution import FindModel, resolve_model
from pipeline.storage.artifacts import Artifact
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import check_dimensions

__all__ = [
    "CalibrationCorpus",
    "Encoder",
    "Model",
    "Network",
    "Resolved",
    "Role",
    "RowSource",
    "Usage",
    "open_encoder",
    "open_source",
    "prepare",
    "prepared_keys",
    "ready",
    "resolve",
    "room_for_text",
    "token_counter",
    "token_spans",
    "vector_form",
]  # fmt: skip

Resolved = Model | RowSource
"""What a config's model is: one that is run here, or what gives rows: files, a server."""


def resolve(config: ModelSettings, find: FindModel = find_model) -> Resolved:
    """What a config's model section names, without loading anything (see `resolve_model`)."""
    if isinstance(config, EncoderSettings):
        return resolve_model(config, find)
    return backends.SOURCES[config.backend](config)


def vector_form(config: RowSettings, source: Resolved) -> VectorForm:
    """What a config makes of whole vectors, its number format apart; see `RowSource.form`."""
    return open_source(config, source).form(config)


def prepared_keys(config: ModelSettings, source: Resolved) -> dict[str, str]:
    """Keys of what the backend prepares of the model: vectors are made from that."""
    recipe = backends.OPENERS[config.backend]().recipe(source) if isinstance(source, Model) else None
    return {config.backend: recipe.key} if recipe else {}


def prepare(config: EncoderSettings, model: Model, store: Store) -> Artifact | None:
    """What the backend prepares of a model, reused or made; None if it uses the model's own files."""
    prepared = backends.OPENERS[config.backend]().prepare(model, store)
    if prepared:
        model.files.check()
    return prepared


def ready(config: EncoderSettings, model: Model, store: Store) -> Ready:
    """The model, after its backend has prepared it in `store`, if it needs to."""
    return Ready(replace(model, corpus=None), prepare(config, model, store), partial(Encoder, config))


def open_encoder(config: EncoderSettings, model: Model, store: Store) -> Encoder:
    """The loaded model; before that its backend prepares it in `store`, if it needs to."""
    encoder: Encoder = ready(config, model, store).load()
    return encoder


def token_counter(source: Resolved) -> Callable[[list[str]], list[int]] | None:
    """A function that counts the tokens of whole texts with the model's tokenizer; None without a model."""
    if not isinstance(source, Model):
        return None
    found = tokenizer.load_tokenizer(source, source.files.tokenizer_folder())
    found.no_padding()
    found.no_truncation()
    return lambda texts: [len(encoding.ids) for encoding in found.encode_batch_fast(texts)]


def token_spans(model: Model) -> Callable[[list[str], int], list[list[tuple[int, int]] | None]]:
    """A function that finds the tokens of whole texts; see `pipeline.models.tokenizer.token_spans`."""
    return tokenizer.token_spans(tokenizer.load_tokenizer(model, model.files.tokenizer_folder()))


def room_for_text(model: Model) -> int:
    """How many tokens a model reads of a passage, besides special tokens and the passage instruction."""
    found = tokenizer.load_tokenizer(model, model.files.tokenizer_folder())
    found.no_padding()
    found.no_truncation()
    around = found.encode("".join(model.prompts["passages"])).ids
    return model.max_lengths["passages"] - len(around)


@dataclass(frozen=True)
class Network(RowSource):
    """A model that runs here, as a backend's settings have it run."""

    settings: EncoderSettings
    model: Model

    @property
    @override
    def device(self) -> str:
        return self.model.device

    @override
    def recipe(self, role: Role) -> JsonObject:
        return self.model.recipe(role)

    @override
    def ingredients(self, role: Role) -> JsonObject:
        return {**super().ingredients(role), **prepared_keys(self.settings, self.model)}

    @override
    def shared_key(self) -> JsonObject:
        return {
            "settings": self.settings.model_dump(mode="json"),
            "device": self.model.device,
            "model": [self.model.recipe(role) for role in ROLES],
            "prepared": prepared_keys(self.settings, self.model),
        }

    @override
    def ready(self, store: Store) -> Ready:
        return ready(self.settings, self.model, store)


def open_source(config: RowSettings, source: Resolved) -> RowSource:
    """What gives the rows of a config's resolved model section."""
    if isinstance(source, Model):
        assert isinstance(config, EncoderSettings)
        return Network(config, source)
    return source


class Encoder:
    """A loaded model, which turns texts into vectors.

    Args:
        config: The model section.
        model: The resolved model.
        prepared: The folder of what `prepare` made of it; None if it made nothing.
    """

    def __init__(self, config: EncoderSettings, model: Model, prepared: Path | None) -> None:
        self.config, self.model = config, model
        opener = backends.OPENERS[config.backend]()
        loaded: Any = opener.load(config, model, prepared)
        self.backend: batching.Backend = loaded
        reference = opener.reference(model, prepared)
        self.watch = Watch(model.name, reference, self.backend.tokenizer) if reference else None
        if prepared is None:
            model.files.check()
        if model.truncate_dim:
            check_dimensions(model.truncate_dim, loaded.dimension)

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Rows:
        """Encode texts as passages or queries.

        Args:
            texts: The texts, in any order; batches are made of texts of similar length.
            role: Decides prompt and length.
            usage: What encoding costs is added to it.
            bar: Progress bar, updated for every encoded text.

        Returns:
            Rows in the order of `texts`: float32 [texts, dimension], whole and not normalized, or `Ragged`.

        Raises:
            InputError: A text's vector is too far from that of the fp32 model.
        """
        before, after = self.model.prompts[role]
        prompted = [before + text + after for text in texts] if before or after else texts
        length = self.model.max_lengths[role]
        backend = self.backend
        if isinstance(backend, batching.RoleDependent):
            backend = backend.for_role(role)
        rows = batching.encode(backend, prompted, length, usage, bar, self.config.batch_size)
        if self.watch:
            self.watch.check(prompted, length, rows)
        return rows
