"""The section `fuse`: several retrievers whose rankings are joined into one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pipeline.config.index import IndexConfig
from pipeline.config.model import BACKENDS, ModelSettings
from pipeline.config.rerank import RERANKERS, RerankSettings
from pipeline.config.search import SearchConfig
from pipeline.config.settings import Section, setting


class PartConfig(Section):
    """One of the retrievers that are joined."""

    model: Annotated[ModelSettings, BACKENDS] = setting(..., "see `model`", shapes="")
    index: IndexConfig = setting(IndexConfig(), "see `index`", shapes="")
    search: SearchConfig | None = setting(None, "see `search`; null is that section", shapes="")
    rerank: Annotated[RerankSettings | None, RERANKERS] = setting(None, "see `rerank`", shapes="")


class FuseConfig(Section):
    """Retrievers, and how their rankings are joined into one."""

    retriever: ClassVar[Any] = "pipeline.retrievers.fused:Fused"
    """The class of the retriever, or "module:class" to import it from."""

    method: Literal["rrf"] = setting("rrf", "how scores or ranks are joined; see docs/fuse.md", shapes="fuse")
    of: tuple[PartConfig, ...] = setting(
        ..., "the retrievers, two or more", shapes="fuse", keyed=False, min_length=2, strict=False
    )
    k: int = setting(60, "rrf only: added to every rank", shapes="fuse", ge=1)
