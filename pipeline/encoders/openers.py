"""The table of backends and rerankers: what opens the model of a section `model` or `rerank`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.config import BACKENDS, RERANKERS, EncoderSettings, RerankSettings, ScorerSettings
from pipeline.config.model import (
    FlagSettings,
    HttpSettings,
    NativeSettings,
    OpenVINOSettings,
    PrecomputedSettings,
    SentenceTransformersSettings,
)
from pipeline.config.rerank import (
    FlagAutoRerankSettings,
    HttpRerankSettings,
    OpenVINORerankSettings,
    SentenceTransformersRerankSettings,
)
from pipeline.config.settings import Kinds, Section
from pipeline.encoders.base import ModelSource
from pipeline.models.files import find_model
from pipeline.models.reranker import resolve_reranker
from pipeline.models.resolution import FindModel, resolve_model


def _import_and_call(place: str, *arguments: object) -> Any:
    """Call what "module:name" names in this package, which is imported when it is first called."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"pipeline.{module}"), name)(*arguments)


def _importing(place: str) -> Callable[..., Any]:
    return partial(_import_and_call, place)


OPENERS: dict[type[Section], Callable[..., ModelSource]] = {
    FlagSettings: _importing("encoders.torch.flag:FlagOpener"),
    OpenVINOSettings: _importing("encoders.openvino:OpenVINOOpener"),
    NativeSettings: _importing("encoders.native:NativeOpener"),
    SentenceTransformersSettings: _importing(
        "encoders.torch.sentence_transformers:SentenceTransformersOpener"
    ),
    HttpSettings: _importing("encoders.http.backend:EmbeddingServer"),
    PrecomputedSettings: _importing("encoders.precomputed:open_files"),
    FlagAutoRerankSettings: _importing("encoders.pairs.flag_rerankers:FlagRerankOpener"),
    OpenVINORerankSettings: _importing("encoders.pairs.converted:OpenVINORerankOpener"),
    SentenceTransformersRerankSettings: _importing("encoders.pairs.cross_encoders:CrossEncoderOpener"),
    HttpRerankSettings: _importing("encoders.http.backend:RerankServer"),
}
"""What opens each section of a built-in backend, from the section and its resolved model if it has one."""


def resolve(settings: Any, find: FindModel = find_model, cache: Path | None = None) -> Any:
    """The `EmbeddingSource` or `ScoreSource` of a section, without loading anything.

    Args:
        settings: A section `model` or `rerank`, of a backend other than `auto`.
        find: Finds and hashes the model's files; a cached function does so once for several sections.
        cache: Where tokenizers are kept if the user's store cannot be written.
    """
    kinds: Kinds[Any] = RERANKERS if isinstance(settings, ScorerSettings) else BACKENDS
    opener = OPENERS.get(type(settings)) or kinds.opener(settings.backend)
    if isinstance(settings, EncoderSettings):
        return opener(settings, resolve_model(settings, find, cache))
    if isinstance(settings, RerankSettings):
        return opener(settings, resolve_reranker(settings, find, cache))
    return opener(settings)
