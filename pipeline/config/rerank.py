"""The section `rerank`: the backends that score pairs of a query and a passage, and their common settings."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pipeline.config.kinds import Kinds
from pipeline.config.settings import PathOrId, Section, setting


class RerankSettings(Section):
    """A model that scores the best passages of each query anew."""

    retriever: ClassVar[Any] = "pipeline.retrievers.reranked:Reranked"
    """The class of the retriever that uses the model, or "module:class" to import it from."""
    on_gpu: ClassVar[bool] = True
    """Whether the backend can compute on GPUs."""

    backend: str = setting(..., "what runs the model", shapes="rerank")
    name: PathOrId = setting(..., "hub id or local folder", shapes="rerank", keyed=False)
    revision: str | None = setting(
        None, "on the hub: branch, tag or commit of the model", shapes="rerank", keyed=False
    )
    precision: Literal["fp32", "fp16", "bf16", "int16"] = setting(
        "fp32",
        "number format the model computes in; fp16 is fp32 on a CPU",
        shapes="rerank",
        keyed=False,
    )
    depth: int = setting(100, "best passages of each query that are scored", shapes="rerank", ge=1)
    max_length: int = setting(
        512, "tokens kept of a query and a passage together", shapes="rerank", keyed=False, ge=3
    )
    batch_size: int | None = setting(None, "pairs per batch; null lets the backend choose", shapes="", ge=1)
    device: str = setting("auto", "auto, cpu, cuda or cuda:N", shapes="", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    trust_remote_code: bool = setting(False, "run the Python files that come with the model", shapes="rerank")

    @property
    def label(self) -> str:
        """A short name for tables: the last part of the model's name."""
        return self.name.rstrip("/").rpartition("/")[2]

    def load(self, model: Any) -> Any:
        """Load a `pipeline.rerankers.Reranker` as a `pipeline.rerankers.Scorer`."""
        raise NotImplementedError


RERANKERS = Kinds(
    RerankSettings,
    "backend",
    {
        "sentence-transformers": (
            "pipeline.rerankers.sentence_transformers:SentenceTransformersRerankSettings"
        ),
    },
)
"""The backends: to add one, write its file in `pipeline/rerankers/` and its line here."""
