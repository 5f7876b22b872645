"""The section `rerank`: the backends that score pairs of a query and a passage, and their common settings."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from pipeline.config.model import OnCpu
from pipeline.config.settings import DEVICES, Kinds, PathOrId, RunsModel, Section, setting, with_variant
from pipeline.config.stages import RUN_CODE, SEND, TEXTS, EncodingServerSettings, ServerUrl
from pipeline.core import plugins


class ScorerSettings(Section):
    """A model that rescores the best passages of each query."""

    backend: str = setting(..., "what runs the model", shapes="scores")
    name: str = setting(..., "hub id or folder", names="scores")
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="scores")
    depth: int = setting(100, "passages to rescore per query", shapes="rerank", ge=1)
    batch_size: int | None = setting(None, "pairs per batch; null: chosen by the backend", shapes="", ge=1)

    @property
    def made_by(self) -> str:
        """What results are attributed to: the model, and its precision if it loses digits."""
        precision = getattr(self, "precision", "fp32")
        return with_variant(self.name, [] if precision == "fp32" else [precision])

    @property
    def label(self) -> str:
        """A short name for tables: the last part of the model's name."""
        return self.name.rstrip("/").rpartition("/")[2]


class RerankSettings(ScorerSettings, RunsModel):
    """Settings of all backends that run a model."""

    name: PathOrId = ScorerSettings.narrowed("name")
    precision: Literal["fp32", "fp16", "bf16"] = setting(
        "fp32", "number format of the computation; fp16 runs as fp32 on a CPU", names="scores"
    )
    max_length: int = setting(512, "maximum tokens of query and passage together", names="scores", ge=32)
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps", shapes="", pattern=DEVICES)
    trust_remote_code: bool = setting(
        False, "run Python code that comes with the model", shapes="scores", effect=RUN_CODE
    )


class FlagRerankSettings(RerankSettings):
    """Settings of all backends that give the scores of FlagEmbedding's rerankers."""

    query_max_length: int | None = setting(
        None, "maximum tokens of a query; null: three quarters of max_length", names="scores", ge=3
    )
    query_instruction: str | None = setting(
        None, "prefix of queries; null: the model's own; '': none", shapes="scores"
    )
    passage_instruction: str | None = setting(
        None, "prefix of passages; null: the model's own; '': none", shapes="scores"
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


class AutoRerankSettings(FlagRerankSettings):
    """The fastest backend here that gives FlagEmbedding's scores in this precision."""

    backend: Literal["auto"] = RerankSettings.narrowed("backend", "auto")


class FlagAutoRerankSettings(FlagRerankSettings):
    """FlagEmbedding, on CPU or GPU."""

    backend: Literal["flag"] = RerankSettings.narrowed("backend", "flag")
    prompt: str | None = setting(
        None, "decoders: question after the passage; null: FlagEmbedding's own", shapes="scores", min_length=1
    )


class OpenVINORerankSettings(OnCpu, FlagRerankSettings):
    """OpenVINO, on the CPU."""

    extra = "openvino"

    backend: Literal["openvino"] = RerankSettings.narrowed("backend", "openvino")
    precision: Literal["fp32", "bf16"] = RerankSettings.narrowed("precision", "fp32")


class SentenceTransformersRerankSettings(RerankSettings):
    """A CrossEncoder of sentence-transformers, on CPU or GPU; its scores are those of `predict`."""

    backend: Literal["sentence-transformers"] = RerankSettings.narrowed("backend", "sentence-transformers")


class HttpRerankSettings(EncodingServerSettings, ScorerSettings):
    """A reranker that a server runs."""

    backend: Literal["http"] = ScorerSettings.narrowed("backend", "http")
    name: str = ScorerSettings.narrowed("name", doc="model name on the server", min_length=1)
    revision: str | None = ScorerSettings.narrowed(
        "revision", None, doc="any text; change it when the served model changes"
    )
    url: ServerUrl = setting(..., "server address, without /rerank", names="scores", repr=False, effect=SEND)
    form: Literal["cohere", "tei"] = setting(
        "cohere", "form of requests: cohere for Cohere, Jina, vLLM, Infinity; tei for TEI", names="scores"
    )
    max_characters: int | None = setting(
        None, "maximum characters of a query and of a passage; null: no limit", names="scores", ge=1
    )
    batch_size: int | None = ScorerSettings.narrowed(
        "batch_size", None, doc=f"maximum passages per request; null: {TEXTS}", ge=1
    )


RERANKERS = Kinds(
    ScorerSettings,
    "backend",
    {
        "auto": AutoRerankSettings,
        "flag": FlagAutoRerankSettings,
        "openvino": OpenVINORerankSettings,
        "sentence-transformers": SentenceTransformersRerankSettings,
        "http": HttpRerankSettings,
    },
    default="auto",
    groups=(plugins.RERANKERS,),
)
"""The backends of rerankers."""
