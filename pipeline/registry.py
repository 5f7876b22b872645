"""The kinds of retrievers, and which one a config asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipeline.config import BACKENDS, Config
from pipeline.config.model import RowSettings
from pipeline.data.loading import Identity
from pipeline.retrievers.bm25 import Bm25
from pipeline.retrievers.dense import Dense
from pipeline.retrievers.fused import FusionRetriever
from pipeline.retrievers.multivector import MultiVector
from pipeline.retrievers.reranked import RerankingRetriever
from pipeline.retrievers.retriever import Identities, MakeRetriever, Retriever
from pipeline.retrievers.sparse import Sparse

Kind = Callable[[Config, Identities, Identity, Path, MakeRetriever], Retriever]
"""The class of a retriever."""
OUTPUTS: dict[str, Kind] = {"dense": Dense, "sparse": Sparse, "multivector": MultiVector}
"""The kind of retriever for each output of a model."""
KINDS: dict[str, Kind] = {"bm25": Bm25}
"""The kind of retriever for each backend that gives no rows."""


def make_retriever(config: Config, identities: Identities, identity: Identity, corpus: Path) -> Retriever:
    """The retriever of a config; arguments as of `Retriever`."""
    model = config.model
    kind: Kind
    if config.rerank:
        kind = RerankingRetriever
    elif config.fuse or model is None:
        kind = FusionRetriever
    elif isinstance(model, RowSettings):
        kind = OUTPUTS[model.output]
    else:
        kind = KINDS.get(model.backend) or BACKENDS.opener(model.backend)
    return kind(config, identities, identity, corpus, make_retriever)
