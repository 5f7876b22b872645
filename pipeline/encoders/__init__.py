"""Encoder backends: what a config's model is resolved to, and how texts become vectors.

A backend has an `Opener`, and a class with the interface `batching.Backend` (one that runs PyTorch extends
`torch.backend.TorchBackend`). `OPENERS` lists them; see docs/models.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from pipeline.config import BACKENDS, EncoderSettings, ModelSettings, RowSettings
from pipeline.core.display import Bar
from pipeline.core.records import JsonObject
from pipeline.encoders import batching
from pipeline.encoders.agreement import LIMITS, Reference, TorchVectors, Watch, disagreement, sample_tokens
from pipeline.encoders.base import Opener, RowSource, importing
from pipeline.encoders.batching import (
    Backend,
    Rows,
    TokenBatch,
    Usage,
    batches,
    encode,
    encode_parts,
    tokenize,
    tokenized_windows,
)
from pipeline.encoders.conversion import run_in_subprocess
from pipeline.models import tokenizer
from pipeline.models.files import find_model
from pipeline.models.model import ROLES, CalibrationCorpus, Model, Ready, Role
from pipeline.models.resolution import FindModel, resolve_model
from pipeline.storage.artifacts import Artifact
from pipeline.storage.store import Store
from pipeline.storage.vector_forms import check_dimensions

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "LIMITS", "CalibrationCorpus", "Encoder", "Model", "Network", "Opener", "Reference", "Resolved", "Role",
    "RowSource", "TokenBatch", "TorchVectors", "Usage", "Watch", "batches", "disagreement", "encode",
    "encode_parts", "open_encoder", "open_source", "opener_of", "resolve", "room_for_text",
    "run_in_subprocess", "sample_tokens", "token_counter", "token_spans", "tokenize", "tokenized_windows",
]  # fmt: skip

NetworkOpener: TypeAlias = Opener[Any, Model, Backend]
"""A backend that runs a model here, with settings of any class."""
Resolved = Model | RowSource
"""What a config's model is: one that is run here, or what gives rows: files, a server."""


OPENERS: dict[str, Callable[[], NetworkOpener]] = {
    "flag": importing("pipeline.encoders.torch.flag:FlagOpener"),
    "openvino": importing("pipeline.encoders.openvino:OpenVINOOpener"),
    "native": importing("pipeline.encoders.native:NativeOpener"),
    "sentence-transformers": importing(
        "pipeline.encoders.torch.sentence_transformers:SentenceTransformersOpener"
    ),
}
"""What opens a model that runs here, by the name of its built-in backend."""
SOURCES: dict[str, Callable[[Any], RowSource]] = {
    "http": importing("pipeline.encoders.http.backend:EmbeddingServer"),
    "precomputed": importing("pipeline.encoders.precomputed:open_files"),
}
"""What opens the settings of a backend that runs no model here."""


def resolve(config: ModelSettings, find: FindModel = find_model) -> Resolved:
    """What a config's model section names, without loading anything (see `resolve_model`)."""
    if isinstance(config, EncoderSettings):
        return resolve_model(config, find)
    opener: Callable[[Any], RowSource] = SOURCES.get(config.backend) or BACKENDS.opener(config.backend)
    return opener(config)


def opener_of(backend: str) -> NetworkOpener:
    """What opens a model that runs here."""
    opener: Callable[[], NetworkOpener] = OPENERS.get(backend) or BACKENDS.opener(backend)
    return opener()


@dataclass(frozen=True)
class Network(RowSource):
    """A model that runs here, as a backend's settings have it run."""

    settings: EncoderSettings
    model: Model

    @property
    def opener(self) -> NetworkOpener:
        """The backend."""
        return opener_of(self.settings.backend)

    @property
    @override
    def device(self) -> str:
        return self.model.device

    @override
    def recipe(self, role: Role) -> JsonObject:
        return self.model.recipe(role)

    def prepared_keys(self) -> dict[str, str]:
        """Keys of what the backend prepares of the model: rows are made from that."""
        recipe = self.opener.recipe(self.model)
        return {self.settings.backend: recipe.key} if recipe else {}

    @override
    def ingredients(self, role: Role) -> JsonObject:
        return {**super().ingredients(role), **self.prepared_keys()}

    @override
    def shared_key(self) -> JsonObject:
        return {
            "settings": self.settings.model_dump(mode="json"),
            "device": self.device,
            "model": [self.model.recipe(role) for role in ROLES],
            "prepared": self.prepared_keys(),
        }

    def prepare(self, store: Store) -> Artifact | None:
        """What the backend prepares of the model, reused or made; None if it uses the model's own files."""
        prepared = self.opener.prepare_once(self.model, store)
        if prepared:
            self.model.files.check()
        return prepared

    @override
    def ready(self, store: Store) -> Ready:
        return Ready(replace(self.model, corpus=None), self.prepare(store), partial(Encoder, self.settings))


def open_source(config: RowSettings, source: Resolved) -> RowSource:
    """What gives the rows of a config's resolved model section."""
    if isinstance(source, RowSource):
        return source
    assert isinstance(config, EncoderSettings)
    return Network(config, source)


def open_encoder(config: EncoderSettings, model: Model, store: Store) -> Encoder:
    """The loaded model; before that its backend prepares it in `store`, if it needs to."""
    encoder: Encoder = Network(config, model).ready(store).load()
    return encoder


def token_counter(source: Resolved) -> Callable[[list[str]], list[int]] | None:
    """A function that counts the tokens of whole texts with the model's tokenizer; None without a model."""
    if not isinstance(source, Model):
        return None
    found = _of_whole_texts(source)
    return lambda texts: [len(encoding.ids) for encoding in found.encode_batch_fast(texts)]


def token_spans(model: Model) -> Callable[[list[str], int], list[list[tuple[int, int]] | None]]:
    """A function that finds the tokens of whole texts; see `pipeline.models.tokenizer.token_spans`."""
    return tokenizer.token_spans(_of_whole_texts(model))


def room_for_text(model: Model) -> int:
    """How many tokens a model reads of a passage, besides special tokens and the passage instruction."""
    around = _of_whole_texts(model).encode("".join(model.prompts["passages"])).ids
    return model.max_lengths["passages"] - len(around)


def _of_whole_texts(model: Model) -> Tokenizer:
    """The model's tokenizer, which neither truncates nor pads."""
    found = tokenizer.load_tokenizer(model, model.files.tokenizer_folder())
    found.no_padding()
    found.no_truncation()
    return found


class Encoder:
    """A loaded model, which turns texts into vectors; `prepared` is the folder of what the backend made."""

    def __init__(self, config: EncoderSettings, model: Model, prepared: Path | None) -> None:
        self.config, self.model = config, model
        opener = opener_of(config.backend)
        self.backend = opener.load(config, model, prepared)
        reference = opener.reference(model, prepared)
        self.watch = Watch(model.name, reference, self.backend.tokenizer) if reference else None
        if prepared is None:
            model.files.check()
        if model.truncate_dim:
            check_dimensions(model.truncate_dim, getattr(self.backend, "dimension"))  # noqa: B009

    def encode(self, texts: list[str], role: Role, usage: Usage, bar: Bar) -> Rows:
        """The rows of some texts, as `encode_parts` gives them; what they cost is added to `usage`."""
        ((rows, cost),) = self.encode_parts([texts], role, bar)
        usage.add(cost)
        return rows

    def encode_parts(self, parts: Iterable[list[str]], role: Role, bar: Bar) -> Iterator[tuple[Rows, Usage]]:
        """Encode parts of a collection as passages or queries, with the prompt and length of the role.

        `parts` are read by a thread, ahead of the computation, and `bar` is advanced by each text.

        Returns:
            For each part its rows in the order of its texts, float32 [texts, dimension], whole and not
            normalized, or `Ragged`; and what they cost.

        Raises:
            InputError: A text's vector is too far from that of the fp32 model.
        """
        before, after = self.model.prompts[role]
        prompted = ([before + text + after for text in texts] for texts in parts)
        length, backend = self.model.max_lengths[role], self.backend
        if isinstance(backend, batching.RoleDependent):
            backend = backend.for_role(role)
        watch = self.watch
        check = (lambda texts, rows: watch.check(texts, length, rows)) if watch else None
        return batching.encode_parts(
            backend, prompted if before or after else parts, length, bar, self.config.batch_size, check
        )
