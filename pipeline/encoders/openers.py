"""The backends: what loads the model of a section `model` or `rerank`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.config import BACKENDS, RERANKERS, EncoderSettings, RerankSettings, ScorerSettings
from pipeline.config.model import (
    FlagSettings,
    HttpSettings,
    NativeSettings,
    OnnxSettings,
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
from pipeline.config.settings import Kinds
from pipeline.encoders.opener import PairOpener, TextOpener
from pipeline.models.finding import find_model
from pipeline.models.reranker import resolve_reranker
from pipeline.models.resolution import FindModel, resolve_model


def resolve(settings: Any, find: FindModel = find_model, cache: Path | None = None) -> Any:
    """The `EmbeddingSource` or `ScoreSource` of a section, without loading anything.

    Args:
        settings: A section `model` or `rerank`, of a backend other than `auto`.
        find: Finds and hashes the model's files; a cached function does so once for several sections.
        cache: Where tokenizers are kept if the user's store cannot be written.
    """
    if isinstance(settings, EncoderSettings):
        return TextOpener(settings, resolve_model(settings, find, cache), *backend_of(settings))
    if isinstance(settings, RerankSettings):
        return PairOpener(settings, resolve_reranker(settings, find, cache), *backend_of(settings))
    if isinstance(settings, PrecomputedSettings):
        from pipeline.encoders.precomputed import open_files

        return open_files(settings)
    from pipeline.encoders.http.backend import EmbeddingServer, RerankServer

    if isinstance(settings, HttpSettings):
        return EmbeddingServer(settings)
    if isinstance(settings, HttpRerankSettings):
        return RerankServer(settings)
    raise TypeError(f"{type(settings).__name__} names no model")


def backend_of(settings: EncoderSettings | RerankSettings) -> tuple[Any, ...]:
    """The `function`, the `conversion` and the `library` of a section's backend; see `Opener`.

    No other backend is imported.
    """
    match settings:
        case FlagSettings():
            from pipeline.encoders.torch import flag

            return flag.load, None
        case SentenceTransformersSettings():
            from pipeline.encoders.torch import sentence_transformers

            return sentence_transformers.load, None
        case NativeSettings():
            from pipeline.encoders import native

            return native.load, native.NativeConversion()
        case OnnxSettings():
            from pipeline.encoders import onnx

            return onnx.OnnxBackend, onnx.OnnxConversion()
        case OpenVINOSettings():
            from pipeline.encoders import openvino

            return openvino.OpenVINOBackend, openvino.OpenVINOConversion()
        case FlagAutoRerankSettings():
            from pipeline.encoders.pairs import flag_rerankers

            return flag_rerankers.load, None, flag_rerankers.library_scores
        case SentenceTransformersRerankSettings():
            from pipeline.encoders.pairs import cross_encoders

            return cross_encoders.load, None, cross_encoders.library_scores
        case OpenVINORerankSettings():
            from pipeline.encoders.pairs import converted, flag_rerankers

            return converted.load, converted.RerankConversion(), flag_rerankers.library_scores
    kinds: Kinds[Any] = RERANKERS if isinstance(settings, ScorerSettings) else BACKENDS
    added = kinds.opener(settings.backend)
    return added if isinstance(added, tuple) else (added, None)
