"""The backends: what loads the model of a section `model` or `rerank`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from pipeline.config import BACKENDS, RERANKERS, EncoderSettings, RerankSettings
from pipeline.config.model import HttpSettings, PrecomputedSettings
from pipeline.config.rerank import HttpRerankSettings
from pipeline.config.settings import Kinds
from pipeline.encoders.opener import Opener, PairOpener, TextOpener
from pipeline.models.finding import find_model
from pipeline.models.reranker import resolve_reranker
from pipeline.models.resolution import FindModel, resolve_model

TEXTS = {
    "flag": "pipeline.encoders.torch.flag",
    "sentence-transformers": "pipeline.encoders.torch.sentence_transformers",
    "native": "pipeline.encoders.native",
    "onnx": "pipeline.encoders.onnx",
    "openvino": "pipeline.encoders.openvino",
}
PAIRS = {
    "flag": "pipeline.encoders.pairs.flag_rerankers",
    "sentence-transformers": "pipeline.encoders.pairs.cross_encoders",
    "openvino": "pipeline.encoders.pairs.converted",
}
"""The modules of backends for texts, and of those for pairs of texts, which are imported when they are used.

Each has a function `load`, may have a `CONVERSION`, and for pairs has `library_scores`; see `Opener`.
"""


def resolve(settings: Any, find: FindModel = find_model, cache: Path | None = None) -> Any:
    """The `EmbeddingSource` or `ScoreSource` of a section, without loading anything.

    Args:
        settings: A section `model` or `rerank`, of a backend other than `auto`.
        find: Finds and hashes the model's files; a cached function does so once for several sections.
        cache: Where tokenizers are kept if the user's store cannot be written.
    """
    if isinstance(settings, EncoderSettings | RerankSettings):
        model: Any
        opener: type[Opener]
        kinds: Kinds[Any]
        if isinstance(settings, EncoderSettings):
            model, opener = resolve_model(settings, find, cache), TextOpener
            modules, kinds = TEXTS, BACKENDS
        else:
            model, opener = resolve_reranker(settings, find, cache), PairOpener
            modules, kinds = PAIRS, RERANKERS
        if place := modules.get(settings.backend):
            module = importlib.import_module(place)
            backend = module.load, *(getattr(module, name, None) for name in ("CONVERSION", "library_scores"))
        else:
            added = kinds.opener(settings.backend)
            backend = added if isinstance(added, tuple) else (added, None)
        return opener(settings, model, *backend)
    if isinstance(settings, PrecomputedSettings):
        from pipeline.encoders.precomputed import KINDS

        return KINDS[settings.output](settings)
    from pipeline.encoders.http.backend import EmbeddingServer, RerankServer

    if isinstance(settings, HttpSettings):
        return EmbeddingServer(settings)
    if isinstance(settings, HttpRerankSettings):
        return RerankServer(settings)
    raise TypeError(f"{type(settings).__name__} names no model")
