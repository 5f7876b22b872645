"""The section `model`: the backends, and the settings that they share."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from pipeline.config.index import IndexConfig
from pipeline.config.kinds import Kinds, Variant
from pipeline.config.runs_model import RunsModel
from pipeline.config.search import SearchConfig
from pipeline.config.settings import PathOrId, Section, setting


class ModelSettings(Section):
    """What makes texts searchable, and how."""

    retriever: ClassVar[Any] = "pipeline.retrievers.dense:Dense"
    """The class of the retriever that uses the model, or "module:class" to import it from."""

    cuts_texts: ClassVar[bool] = False
    """Whether the retriever reads texts itself, and can cut passages into chunks."""

    backend: str = setting(..., "what runs the model", shapes="passages queries")
    name: PathOrId = setting(
        "", "hub id, local folder, or a bundled alias", shapes="passages queries", keyed=False
    )
    revision: str | None = setting(
        None, "on the hub: branch, tag or commit of the model", shapes="passages queries", keyed=False
    )
    batch_size: int | None = setting(
        None, "texts per batch; null lets the encoder choose by tokens", shapes="", ge=1
    )
    device: str = setting("auto", "auto, cpu, cuda or cuda:N", shapes="", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    shard_rows: int = setting(
        16384,
        "most passages or queries of a stored shard; one that takes long is written earlier",
        shapes="",
        ge=1,
    )

    @property
    def label(self) -> str:
        """A short name for tables: the last part of the model's name, or the backend, and its output."""
        name = self.name.rstrip("/").rpartition("/")[2] or self.backend
        output = getattr(self, "output", "dense")
        return name if output == "dense" else f"{name} {output}"

    def check(self, index: IndexConfig, search: SearchConfig) -> None:
        """Raise ValueError for settings of other sections that this backend cannot honour."""

    def open(self) -> Any:
        """The vectors of a backend that runs no model, a `pipeline.encoders.Source`."""
        raise NotImplementedError


class EncoderSettings(ModelSettings, RunsModel):
    """Settings of all backends that run a model, whatever its output."""

    cuts_texts = True
    as_sentence_transformers: ClassVar[bool] = False
    """Whether the backend runs all modules that sentence-transformers runs, with that library's defaults;
    otherwise it runs Transformer, Pooling and Normalize, with FlagEmbedding's defaults."""

    output: str = setting(
        ..., "which representation of the model is used", shapes="passages queries", keyed=False
    )
    precision: Literal["fp32", "fp16", "bf16", "int16", "int8"] = setting(
        "fp32",
        "number format the model computes in; fp16 is fp32 on a CPU",
        shapes="passages queries",
        keyed=False,
    )
    query_instruction: str | None = setting(
        None,
        "put before each query; null takes the model's own, '' is none; {task} is a suite's",
        shapes="queries",
        keyed=False,
    )
    passage_instruction: str | None = setting(
        None, "put before each passage; null takes the model's own", shapes="passages", keyed=False
    )
    query_max_length: int = setting(512, "tokens kept of a query", shapes="queries", keyed=False, ge=3)
    passage_max_length: int = setting(512, "tokens kept of a passage", shapes="passages", keyed=False, ge=3)
    trust_remote_code: bool = setting(
        False, "run the Python files that come with the model", shapes="passages queries"
    )

    def follows_sentence_transformers(self, files: Any) -> bool:
        """Whether a model with these files is run `as_sentence_transformers`."""
        return self.as_sentence_transformers

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not self.name:
            raise ValueError(f"backend '{self.backend}' needs model.name: add it")
        return self

    def reference(self, model: Any, prepared: Any) -> Any:
        """The `pipeline.encoders.agreement.Reference` that vectors are compared with while texts are encoded.

        `prepared` is the folder that `prepare` made; None if the backend needs no comparison.
        """
        return None


class VectorSettings(ModelSettings):
    """Settings of all backends that give a vector for each text."""

    output: Literal["dense"] = EncoderSettings.narrowed("output", "dense")
    normalize: bool = setting(True, "scale every vector to length 1", shapes="index")
    truncate_dim: int | None = setting(
        None,
        "dimensions kept of each vector (Matryoshka); null takes what the model itself declares",
        shapes="index",
        keyed=False,
        ge=1,
    )
    vector_precision: Literal["fp32", "fp16", "int8", "binary"] = setting(
        "fp32", "number format in which the passages' vectors are searched", shapes="index"
    )

    @property
    def is_quantized(self) -> bool:
        """Whether vectors are searched as small integers or bits."""
        return self.vector_precision in ("int8", "binary")

    def check(self, index: IndexConfig, search: SearchConfig) -> None:
        """See `ModelSettings.check`."""
        given = index != IndexConfig() or search.parameters or search.device not in ("auto", "cpu")
        if self.is_quantized and given:
            raise ValueError(
                f"model.vector_precision: {self.vector_precision} is searched exactly, on the CPU: "
                "leave out the section 'index', search.parameters and search.device"
            )


class SparseSettings(ModelSettings):
    """Settings of all backends that give word weights for each text."""

    retriever: ClassVar[Any] = "pipeline.retrievers.sparse:Sparse"

    output: Literal["sparse"] = EncoderSettings.narrowed("output", "sparse")

    def check(self, index: IndexConfig, search: SearchConfig) -> None:
        """See `ModelSettings.check`."""
        refuse_index_settings("model.output 'sparse'", index, search)


class SparseEncoderSettings(SparseSettings, EncoderSettings):
    """Settings of all backends that run a model which gives word weights for each text."""


def refuse_index_settings(what: str, index: IndexConfig, search: SearchConfig) -> None:
    """Raise ValueError for settings of a Faiss index, for a retriever that makes an index of its own."""
    if index != IndexConfig() or search.parameters:
        raise ValueError(
            f"{what} makes an index of its own: leave out the section 'index' and search.parameters"
        )
    if search.device not in ("auto", "cpu"):
        raise ValueError(f"{what} is searched on the CPU: leave out search.device")


class MultiVectorSettings(ModelSettings):
    """Settings of all backends that give a vector for each token of a text."""

    retriever: ClassVar[Any] = "pipeline.retrievers.multivector:MultiVector"

    output: Literal["multivector"] = EncoderSettings.narrowed("output", "multivector")
    shard_rows: int = ModelSettings.narrowed("shard_rows", 2048, ge=1)
    token_precision: Literal["fp32", "fp16"] = setting(
        "fp32", "number format in which the passages' vectors are stored", shapes="passages"
    )
    score: Literal["sum", "mean"] | None = setting(
        None,
        "what is made of the scores of a query's tokens; null takes what the model itself declares, or sum",
        shapes="search",
        keyed=False,
    )

    def check(self, index: IndexConfig, search: SearchConfig) -> None:
        """See `ModelSettings.check`."""
        if search.device not in ("auto", "cpu"):
            raise ValueError("model.output 'multivector' is searched on the CPU: leave out search.device")
        if index != IndexConfig() or search.parameters:
            raise ValueError(
                "model.output 'multivector' searches the stored vectors themselves: leave out the section "
                "'index' and search.parameters"
            )


class MultiVectorEncoderSettings(MultiVectorSettings, EncoderSettings):
    """Settings of all backends that run a model which gives a vector for each token of a text."""


class DenseEncoderSettings(VectorSettings, EncoderSettings):
    """Settings of all backends that run a model which gives a vector for each text."""

    pooling: Literal["cls", "mean", "last_token"] | None = setting(
        None, "null takes what the model itself declares", shapes="passages queries", keyed=False
    )


RUN_HERE = Kinds(
    ModelSettings,
    "backend",
    {
        "flag": "pipeline.encoders.torch.flag:FlagSettings",
        "openvino": "pipeline.encoders.openvino.backend:OpenVINOSettings",
        "native": "pipeline.encoders.native.backend:NativeSettings",
        "sentence-transformers": (
            "pipeline.encoders.torch.sentence_transformers:SentenceTransformersSettings"
        ),
    },
    default="flag",
)
"""The backends that a served model may be compared with: those that run a model for its dense vectors."""

BACKENDS = Kinds(
    ModelSettings,
    "backend",
    {
        "auto": "pipeline.encoders.auto:AutoSettings",
        "flag": "pipeline.encoders.torch.flag:FlagSettings",
        "openvino": "pipeline.encoders.openvino.backend:OpenVINOSettings",
        "native": "pipeline.encoders.native.backend:NativeSettings",
        "sentence-transformers": (
            "pipeline.encoders.torch.sentence_transformers:SentenceTransformersSettings"
        ),
        "auto sparse": "pipeline.encoders.auto:AutoSparseSettings",
        "native sparse": "pipeline.encoders.native.outputs:NativeSparseSettings",
        "flag sparse": "pipeline.encoders.torch.m3:FlagSparseSettings",
        "sentence-transformers sparse": (
            "pipeline.encoders.torch.sparse_encoder:SentenceTransformersSparseSettings"
        ),
        "http": "pipeline.encoders.http.backend:HttpSettings",
        "precomputed": "pipeline.encoders.precomputed:PrecomputedSettings",
        "precomputed sparse": "pipeline.encoders.precomputed_sparse:PrecomputedSparseSettings",
        "auto multivector": "pipeline.encoders.auto:AutoMultiVectorSettings",
        "native multivector": "pipeline.encoders.native.outputs:NativeMultiVectorSettings",
        "flag multivector": "pipeline.encoders.torch.m3:FlagMultiVectorSettings",
        "sentence-transformers multivector": (
            "pipeline.encoders.torch.multi_vector_encoder:SentenceTransformersMultiVectorSettings"
        ),
        "precomputed multivector": "pipeline.encoders.precomputed_multivector:PrecomputedMultiVectorSettings",
        "bm25": "pipeline.retrievers.bm25:Bm25Settings",
    },
    default="auto",
    variant=Variant("output", "dense"),
)
"""The backends, and what they give besides dense vectors, as "BACKEND OUTPUT".

To add one, write its file in `pipeline/encoders/` and its line here."""
