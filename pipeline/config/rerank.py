"""The section `rerank`: the backends that score pairs of a query and a passage, and their common settings."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from pipeline.config.kinds import Kinds
from pipeline.config.runs_model import RunsModel
from pipeline.config.settings import PathOrId, Section, keyed_settings, setting


class ScorerSettings(Section):
    """A model that scores the best passages of each query again."""

    retriever: ClassVar[Any] = "pipeline.retrievers.reranked:Reranked"
    """The class of the retriever that uses the model, or "module:class" to import it from."""

    backend: str = setting(..., "what runs the model", shapes="rerank")
    name: str = setting(..., "hub id or local folder", shapes="rerank", keyed=False)
    revision: str | None = setting(
        None, "on the hub: branch, tag or commit of the model", shapes="rerank", keyed=False
    )
    depth: int = setting(100, "best passages of each query that are scored", shapes="rerank", ge=1)
    batch_size: int | None = setting(None, "pairs per batch; null lets the backend choose", shapes="", ge=1)

    @property
    def label(self) -> str:
        """A short name for tables: the last part of the model's name."""
        return self.name.rstrip("/").rpartition("/")[2]

    def score_settings(self) -> dict[str, Any]:
        """The settings that shape a pair's score, besides those that a resolved model holds."""
        return {
            name: value
            for name, value in keyed_settings(self, "rerank").items()
            if name not in _RANKING and value is not None
        }

    def open(self) -> Any:
        """The model of a backend that runs none here, a `pipeline.rerankers.http.ServedReranker`."""
        raise NotImplementedError


class RerankSettings(ScorerSettings, RunsModel):
    """Settings of all backends that run a model."""

    name: PathOrId = ScorerSettings.narrowed("name")
    precision: Literal["fp32", "fp16", "bf16"] = setting(
        "fp32",
        "number format the model computes in; fp16 is fp32 on a CPU",
        shapes="rerank",
        keyed=False,
    )
    max_length: int = setting(
        512, "tokens kept of a query and a passage together", shapes="rerank", keyed=False, ge=32
    )
    device: str = setting("auto", "auto, cpu, cuda or cuda:N", shapes="", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    trust_remote_code: bool = setting(False, "run the Python files that come with the model", shapes="rerank")

    def check_model(self, model: Any) -> None:
        """Raise an InputError for a resolved model that these settings do not fit; loads nothing."""


_RANKING = ("depth",)  # settings that shape the ranking and not a pair's score


class FlagRerankSettings(RerankSettings):
    """Settings of all backends that give the scores of FlagEmbedding's rerankers."""

    query_max_length: int | None = setting(
        None,
        "tokens kept of a query; null is three quarters of max_length",
        shapes="rerank",
        keyed=False,
        ge=3,
    )
    query_instruction: str | None = setting(
        None, "put before each query; null takes the model's own, '' is none", shapes="rerank"
    )
    passage_instruction: str | None = setting(
        None, "put before each passage; null takes the model's own", shapes="rerank"
    )

    @model_validator(mode="after")
    def _passage_has_room(self) -> Self:
        if self.query_max_length and self.query_max_length > self.max_length - ROOM:
            raise ValueError(
                f"rerank.query_max_length is {self.query_max_length}, and rerank.max_length is "
                f"{self.max_length}: leave the passage and special tokens at least {ROOM}"
            )
        return self


ROOM = 8  # tokens of a pair that no query may take


RERANKERS = Kinds(
    ScorerSettings,
    "backend",
    {
        "auto": "pipeline.rerankers.auto:AutoRerankSettings",
        "flag": "pipeline.rerankers.flag:FlagAutoRerankSettings",
        "openvino": "pipeline.rerankers.openvino:OpenVINORerankSettings",
        "sentence-transformers": (
            "pipeline.rerankers.sentence_transformers:SentenceTransformersRerankSettings"
        ),
        "http": "pipeline.rerankers.http:HttpRerankSettings",
    },
    default="auto",
)
"""The backends: to add one, write its file in `pipeline/rerankers/` and its line here."""
