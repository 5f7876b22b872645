"""The kinds of retrievers, and which one a config asks for."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import BACKENDS, Config
from pipeline.config.model import RowSettings
from pipeline.data.loading import Identity
from pipeline.retrievers.retriever import Identities, Retriever


def make_retriever(config: Config, identities: Identities, identity: Identity, corpus: Path) -> Retriever:
    """The retriever of a config; arguments as of `Retriever`."""
    configs = [config.first_stage] if config.rerank else config.parts
    parts = [make_retriever(part, identities, identity, corpus) for part in configs]
    return kind_of(config)(config, identities, identity, corpus, parts)


def kind_of(config: Config) -> type[Retriever]:
    """The class of retriever that a config asks for; no other kind is imported."""
    model = config.model
    if config.rerank:
        from pipeline.retrievers.reranked import RerankingRetriever

        return RerankingRetriever
    if config.fuse or model is None:
        from pipeline.retrievers.fused import FusionRetriever

        return FusionRetriever
    if not isinstance(model, RowSettings):
        if model.backend == "bm25":
            from pipeline.retrievers.bm25 import Bm25

            return Bm25
        added: type[Retriever] = BACKENDS.opener(model.backend)
        return added
    if model.output == "sparse":
        from pipeline.retrievers.sparse import Sparse

        return Sparse
    if model.output == "multivector":
        from pipeline.retrievers.multivector import MultiVector

        return MultiVector
    from pipeline.retrievers.dense import Dense

    return Dense
