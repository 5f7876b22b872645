"""The table of backends and rerankers: what opens the model of a section `model` or `rerank`."""

from __future__ import annotations

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
from pipeline.core.plugins import import_and_call
from pipeline.encoders.base import ModelSource
from pipeline.models.files import find_model
from pipeline.models.reranker import resolve_reranker
from pipeline.models.resolution import FindModel, resolve_model

OPENERS: dict[type[Section], Callable[..., ModelSource]] = {
    FlagSettings: partial(import_and_call, "encoders.torch.flag:FlagOpener"),
    OpenVINOSettings: partial(import_and_call, "encoders.openvino:OpenVINOOpener"),
    NativeSettings: partial(import_and_call, "encoders.native:NativeOpener"),
    SentenceTransformersSettings: partial(
        import_and_call, "encoders.torch.sentence_transformers:SentenceTransformersOpener"
    ),
    HttpSettings: partial(import_and_call, "encoders.http.backend:EmbeddingServer"),
    PrecomputedSettings: partial(import_and_call, "encoders.precomputed:open_files"),
    FlagAutoRerankSettings: partial(import_and_call, "encoders.pairs.flag_rerankers:FlagRerankOpener"),
    OpenVINORerankSettings: partial(import_and_call, "encoders.pairs.converted:OpenVINORerankOpener"),
    SentenceTransformersRerankSettings: partial(
        import_and_call, "encoders.pairs.cross_encoders:CrossEncoderOpener"
    ),
    HttpRerankSettings: partial(import_and_call, "encoders.http.backend:RerankServer"),
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
