"""The one table that pairs settings with what they open, and the place to add to it.

A source, a backend, a reranker and a kind of retriever are each a settings class and what opens it; built-in
ones are listed beside what they open: `data.sources.OPENERS`, `encoders.OPENERS`,
`encoders.pairs.OPENERS`, and `OUTPUTS` and `KINDS` here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from pipeline import encoders
from pipeline.config import BACKENDS, RERANKERS, SOURCES, Config, DataSettings, ModelSettings, ScorerSettings
from pipeline.config.model import RowSettings
from pipeline.config.settings import Section
from pipeline.data import sources
from pipeline.data.loading import Identity
from pipeline.data.sources import Source
from pipeline.encoders import pairs
from pipeline.encoders.base import Opener
from pipeline.encoders.batching import Backend
from pipeline.encoders.pairs import Reranker, Scorer
from pipeline.models.model import Model
from pipeline.retrievers.bm25 import Bm25
from pipeline.retrievers.dense import Dense
from pipeline.retrievers.fused import Fused
from pipeline.retrievers.multivector import MultiVector
from pipeline.retrievers.reranked import Reranked
from pipeline.retrievers.retriever import Identities, MakeRetriever, Retriever
from pipeline.retrievers.sparse import Sparse

Kind = Callable[[Config, Identities, Identity, Path, MakeRetriever], Retriever]
"""The class of a retriever."""
OUTPUTS: dict[str, Kind] = {"dense": Dense, "sparse": Sparse, "multivector": MultiVector}
"""The kind of retriever for each output of a model."""
KINDS: dict[str, Kind] = {"bm25": Bm25}
"""The kind of retriever for each backend that gives no rows."""


def kind_of(config: Config) -> Kind:
    """The class of the retriever of a config."""
    if config.rerank:
        return Reranked
    if config.fuse:
        return Fused
    assert config.model is not None
    if isinstance(config.model, RowSettings):
        return OUTPUTS[config.model.output]
    return KINDS[config.model.backend]


def make_retriever(config: Config, identities: Identities, identity: Identity, corpus: Path) -> Retriever:
    """The retriever of a config; arguments as of `Retriever`."""
    return kind_of(config)(config, identities, identity, corpus, make_retriever)


def register_source(settings: type[DataSettings], opens: Callable[[DataSettings], Source]) -> None:
    """Add a source: its settings class, and what makes a reader of such settings."""
    name = _name(settings, "source")
    SOURCES.register(name, settings)
    sources.OPENERS[name] = opens


def register_backend(settings: type[RowSettings], opener: Callable[[], Opener[Any, Model, Backend]]) -> None:
    """Add a backend: its settings class, and its `Opener`."""
    name = _name(settings, "backend")
    BACKENDS.register(name, settings)
    encoders.OPENERS[name] = opener


def register_reranker(
    settings: type[ScorerSettings], opener: Callable[[], Opener[Any, Reranker, Scorer]]
) -> None:
    """Add a backend of rerankers: its settings class, and its `Opener`."""
    name = _name(settings, "backend")
    RERANKERS.register(name, settings)
    pairs.OPENERS[name] = opener


def register_kind(settings: type[ModelSettings], kind: Kind) -> None:
    """Add a kind of retriever: the settings class that names it in the section `model`, and its class."""
    name = _name(settings, "backend")
    BACKENDS.register(name, settings)
    KINDS[name] = kind


def _name(settings: type[Section], field: str) -> str:
    """The name of a kind: the only value of the setting that chooses it."""
    (name,) = get_args(settings.model_fields[field].annotation)
    return str(name)
