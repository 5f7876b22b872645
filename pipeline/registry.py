"""The kinds of retrievers, and which one a config asks for."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import BACKENDS, Config
from pipeline.config.model import RowSettings
from pipeline.data.loading import Identity
from pipeline.retrievers.retriever import Identities, Retriever


def make_retriever(config: Config, identities: Identities, identity: Identity, corpus: Path) -> Retriever:
    """The retriever of a config, made of those that it joins or reranks; no other kind is imported.

    Arguments are as of `Retriever`.
    """
    configs = [config.model_copy(update={"rerank": None})] if config.rerank else config.parts
    parts = [make_retriever(part, identities, identity, corpus) for part in configs]
    arguments, model = (config, identities, identity, corpus, parts), config.model
    if config.rerank:
        from pipeline.retrievers.reranked import RerankingRetriever

        return RerankingRetriever(*arguments)
    if config.fuse or model is None:
        from pipeline.retrievers.fused import FusionRetriever

        return FusionRetriever(*arguments)
    if model.backend == "bm25":
        from pipeline.retrievers.bm25 import Bm25

        return Bm25(*arguments)
    if not isinstance(model, RowSettings):
        added: type[Retriever] = BACKENDS.opener(model.backend)
        return added(*arguments)
    if model.output == "sparse":
        from pipeline.retrievers.sparse import Sparse

        return Sparse(*arguments)
    if model.output == "multivector":
        from pipeline.retrievers.multivector import MultiVector

        return MultiVector(*arguments)
    from pipeline.retrievers.dense import Dense

    return Dense(*arguments)
