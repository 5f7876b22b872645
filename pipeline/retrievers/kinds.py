"""The kinds of retrievers, and which of them a config asks for."""

from __future__ import annotations

from pathlib import Path

from pipeline.config import BACKENDS, Config
from pipeline.config.model import Bm25Settings, RowSettings
from pipeline.data.loading import Identity
from pipeline.encoders.opener import TextOpener
from pipeline.models.model import CalibrationCorpus
from pipeline.retrievers.retriever import Identities, Retriever


def make_retriever(config: Config, identities: Identities, identity: Identity, corpus: Path) -> Retriever:
    """The retriever of a config, made of those that it joins or reranks; no other kind is imported.

    `corpus` is the file of the passages, which exists once the collection is read: a model in int8 is
    calibrated on it. Other arguments are as of `Retriever`.
    """
    model = config.model
    if config.rerank:
        from pipeline.retrievers.reranked import RerankingRetriever

        first = make_retriever(config.model_copy(update={"rerank": None}), identities, identity, corpus)
        return RerankingRetriever(config, config.rerank, identity, identities.resolve(config.rerank), [first])
    if config.fuse:
        from pipeline.retrievers.fused import FusionRetriever

        parts = [make_retriever(part, identities, identity, corpus) for part in config.parts]
        return FusionRetriever(config, config.fuse, identity, parts=parts)
    assert model is not None
    if isinstance(model, Bm25Settings):
        from pipeline.retrievers.bm25 import Bm25

        return Bm25(config, model, identity)
    if not isinstance(model, RowSettings):
        added: type[Retriever] = BACKENDS.opener(model.backend)
        return added(config, model, identity)
    source = identities.resolve(model)
    if isinstance(source, TextOpener) and source.model.precision == "int8":
        source = source.calibrated_on(CalibrationCorpus(identity.passages, corpus))
    if model.output == "sparse":
        from pipeline.retrievers.sparse import Sparse

        return Sparse(config, model, identity, source)
    if model.output == "multivector":
        from pipeline.retrievers.multivector import MultiVector

        return MultiVector(config, model, identity, source)
    from pipeline.retrievers.dense import Dense

    return Dense(config, model, identity, source)
