"""The section `model`: the settings of each backend, and of the three outputs that models have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import (
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import override

from pipeline.config.settings import (
    DEVICES,
    OTHER_OUTPUT,
    Kinds,
    LocalPath,
    PathOrId,
    RunsModel,
    Section,
    mark_of,
    setting,
    with_variant,
)
from pipeline.config.stages import OPENAI, RUN_CODE, SEND, TEXTS, EncodingServerSettings, ServerUrl
from pipeline.core import plugins

Output = Literal["dense", "sparse", "multivector"]
QUANTIZED = ("int8", "binary")
"""Number formats whose vectors are searched as small integers or bits."""
TORCH_PRECISIONS = Literal["fp32", "fp16", "bf16"]


class ModelSettings(Section):
    """The model that encodes texts, or BM25."""

    cuts_texts: ClassVar[bool] = False
    """Whether passages can be cut into chunks: the backend finds the tokens or words of a text here."""

    package: ClassVar[str] = ""
    """The package that the backend needs; "" if none."""

    backend: str = setting(..., "what runs the model", shapes="passages queries")
    name: PathOrId = setting("", "hub id, folder, or bundled alias", names="passages queries")
    revision: str | None = setting(None, "branch, tag or commit on the hub", names="passages queries")
    batch_size: int | None = setting(None, "texts per batch; null: chosen by tokens", shapes="", ge=1)
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps", shapes="", pattern=DEVICES)
    shard_rows: int = setting(16384, "maximum texts per shard (2048 for multivector)", shapes="", ge=1)

    @property
    def label(self) -> str:
        """A short name for tables: the last part of the model's name, or the backend, and its output."""
        name = self.name.rstrip("/").rpartition("/")[2] or self.backend
        output = getattr(self, "output", "dense")
        return name if output == "dense" else f"{name} {output}"

    @property
    def variant(self) -> list[str]:
        """What sets results apart from those of the same model with all its vectors' digits, in words."""
        return []

    @property
    def made_by(self) -> str:
        """What results are attributed to: the model, and its variant; "" for files without a name."""
        return with_variant(self.name, self.variant)

    @property
    def searched_without_faiss(self) -> str:
        """What of the section makes a Faiss index superfluous, for messages; "" where one is made."""
        return ""


class RowSettings(ModelSettings):
    """Settings of all backends that give rows of numbers: vectors, word weights, or vectors of tokens.

    A setting of one output is refused with another; its default value is accepted and ignored.
    """

    output: Output = setting("dense", "representation of a text", names="passages queries")
    normalize: bool = setting(True, "scale vectors to length 1", shapes="index", outputs="dense")
    truncate_dim: int | None = setting(
        None,
        "keep the first N dimensions (Matryoshka); null: the model's own",
        names="index",
        outputs="dense",
        ge=1,
    )
    vector_precision: Literal["fp32", "fp16", "int8", "binary"] = setting(
        "fp32", "number format of searched vectors", shapes="index", outputs="dense"
    )
    token_precision: Literal["fp32", "fp16"] = setting(
        "fp32", "number format of stored token vectors", shapes="passages", outputs="multivector"
    )
    score: Literal["sum", "mean"] | None = setting(
        None,
        "how token scores are combined; null: the model's own, or sum",
        names="search",
        outputs="multivector",
    )

    @model_validator(mode="before")
    @classmethod
    def _small_shards(cls, settings: object) -> object:
        """Token vectors of a text are many: a shard of them holds fewer texts."""
        if isinstance(settings, Mapping) and settings.get("output") == "multivector":
            return {"shard_rows": 2048, **settings}
        return settings

    @field_validator("*")
    @classmethod
    def _of_this_output(cls, value: object, info: ValidationInfo) -> object:
        field, output = cls.model_fields[str(info.field_name)], info.data.get("output")
        belongs = mark_of(field).outputs
        if output and output not in belongs and value != field.default:
            having = [name for name, each in cls.model_fields.items() if output in mark_of(each).outputs]
            raise PydanticCustomError(
                OTHER_OUTPUT,
                "output '{output}' (it belongs to {belongs})",
                {"output": output, "belongs": ", ".join(belongs), "having": ", ".join(having)},
            )
        return value

    @model_serializer(mode="wrap")
    def _without_other_outputs(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        fields = type(self).model_fields
        values = handler(self).items()
        return {name: value for name, value in values if self.output in mark_of(fields[name]).outputs}

    @property
    @override
    def variant(self) -> list[str]:
        parts: list[str] = [] if self.output == "dense" else [self.output]
        parts += [f"{self.truncate_dim} dimensions"] if self.truncate_dim else []
        vectors = self.token_precision if self.output == "multivector" else self.vector_precision
        return parts + ([] if vectors == "fp32" else [f"{vectors} vectors"])

    @property
    @override
    def searched_without_faiss(self) -> str:
        if self.output != "dense":
            return f"model.output '{self.output}'"
        precision = self.vector_precision
        return f"model.vector_precision '{precision}'" if precision in QUANTIZED else ""


class EncoderSettings(RowSettings, RunsModel):
    """Settings of all backends that run a model."""

    cuts_texts = True
    as_sentence_transformers: ClassVar[bool] = False
    """Whether the backend runs all modules that sentence-transformers runs, with that library's defaults;
    otherwise it runs Transformer, Pooling and Normalize, with FlagEmbedding's defaults."""
    runs_splade: ClassVar[bool] = False
    """Whether sparse output is sentence-transformers' own for all models but BGE-M3."""
    runs_torch: ClassVar[bool] = False
    """Whether the backend runs PyTorch: it merges adapters, and pools texts without their instruction."""

    name: PathOrId = ModelSettings.narrowed("name", min_length=1)
    precision: Literal["fp32", "fp16", "bf16", "int16", "int8"] = setting(
        "fp32",
        "number format of the computation; fp16 runs as fp32 on a CPU; auto may use int16 for fp32",
        names="passages queries",
    )
    query_instruction: str | None = setting(
        None,
        "prefix of queries; null: the model's own; '': none; {task} stands for the suite's instruction",
        names="queries",
    )
    passage_instruction: str | None = setting(
        None, "prefix of passages; null: the model's own; '': none", names="passages"
    )
    query_max_length: int | None = setting(
        None, "maximum tokens of a query; null: the model's own, or 512", names="queries", ge=3
    )
    passage_max_length: int | None = setting(
        None, "maximum tokens of a passage; null: the model's own, or 512", names="passages", ge=3
    )
    trust_remote_code: bool = setting(
        False, "run Python code that comes with the model", shapes="passages queries", effect=RUN_CODE
    )
    pooling: Literal["cls", "mean", "last_token"] | None = setting(
        None,
        "how token vectors are combined into one; null: the model's own",
        names="passages queries",
        outputs="dense",
    )

    @property
    @override
    def variant(self) -> list[str]:
        lossy = self.precision not in ("fp32", "int16")  # int16 counts as fp32
        return [*([self.precision] if lossy else []), *super().variant]


class OnCpu(RunsModel):
    """Settings of a backend that computes on the CPU alone."""

    on_gpu = False
    device: Literal["auto", "cpu"] = ModelSettings.narrowed(
        "device", "auto", doc="auto or cpu: it computes nowhere else"
    )


class FlagSettings(EncoderSettings):
    """FlagEmbedding, on CPU or GPU; outputs other than dense are BGE-M3's."""

    runs_torch = True
    package = "torch"

    backend: Literal["flag"] = ModelSettings.narrowed("backend", "flag")
    precision: TORCH_PRECISIONS = EncoderSettings.narrowed("precision", "fp32")


class OpenVINOSettings(OnCpu, EncoderSettings):
    """OpenVINO, on the CPU."""

    extra = "openvino"
    package = "openvino"

    backend: Literal["openvino"] = ModelSettings.narrowed("backend", "openvino")
    output: Literal["dense"] = RowSettings.narrowed("output", "dense")
    precision: Literal["fp32", "fp16", "bf16", "int8"] = EncoderSettings.narrowed("precision", "fp32")


class OnnxSettings(OnCpu, EncoderSettings):
    """ONNX Runtime, on the CPU, with an ONNX file of the model's own."""

    extra = "onnx"
    package = "onnxruntime"

    backend: Literal["onnx"] = ModelSettings.narrowed("backend", "onnx")
    output: Literal["dense"] = RowSettings.narrowed("output", "dense")
    file: str | None = setting(
        None,
        "ONNX file in the model's folder; null: model.onnx or onnx/model.onnx",
        names="passages queries",
    )
    precision: Literal["fp32"] = EncoderSettings.narrowed(
        "precision", "fp32", doc="fp32: weights and products are as the file has them"
    )

    @property
    @override
    def variant(self) -> list[str]:
        return [*([self.file] if self.file else []), *super().variant]


class NativeSettings(OnCpu, EncoderSettings):
    """This project's own kernels, on the CPU; other outputs than dense are BGE-M3's, and SPLADE models'."""

    runs_splade = True
    package = "numba"

    backend: Literal["native"] = ModelSettings.narrowed("backend", "native")
    precision: Literal["int16"] = EncoderSettings.narrowed("precision", "int16")


class SentenceTransformersSettings(EncoderSettings):
    """sentence-transformers, on CPU or GPU; SPLADE-like and inference-free models, and ColBERT-like ones."""

    as_sentence_transformers = True
    runs_torch = True
    package = "sentence-transformers"

    backend: Literal["sentence-transformers"] = ModelSettings.narrowed("backend", "sentence-transformers")
    precision: TORCH_PRECISIONS = EncoderSettings.narrowed("precision", "fp32")


class AutoSettings(EncoderSettings):
    """The fastest backend here that gives FlagEmbedding's vectors in this precision.

    For other outputs than dense: FlagEmbedding's, or those of sentence-transformers.
    """

    backend: Literal["auto"] = ModelSettings.narrowed("backend", "auto")

    @model_validator(mode="after")
    def _suits_precision(self) -> Self:
        if self.precision in CPU_ALONE and (self.output != "dense" or self.device not in ("auto", "cpu")):
            raise ValueError(
                f"model.precision is {self.precision}, which is computed on the CPU alone, and for dense "
                f"output; model.device is {self.device}, and model.output {self.output}: change one of them"
            )
        return self


CPU_ALONE = ("int16", "int8")
"""Precisions that no backend computes on a GPU."""


class PrecomputedSettings(RowSettings):
    """Vectors, word weights or token vectors from files, which another program wrote.

    `.npy` or `.npz` files of vectors; `.npz` files of SciPy's CSR matrices; `.npz` files of `vectors` and
    `ends`.
    """

    backend: Literal["precomputed"] = ModelSettings.narrowed("backend", "precomputed")
    passages: LocalPath | None = setting(
        None, "file with a row per passage, in corpus order", names="passages"
    )
    queries: LocalPath | None = setting(None, "file with a row per query, in query order", names="queries")
    passage_ids: LocalPath | None = setting(
        None, "text file with a passage id per row, for any other order", names="passages"
    )
    query_ids: LocalPath | None = setting(None, "text file with a query id per row", names="queries")


class HttpSettings(EncodingServerSettings, RowSettings):
    """A model that a server runs."""

    package = "openai"

    backend: Literal["http"] = ModelSettings.narrowed("backend", "http")
    output: Literal["dense"] = RowSettings.narrowed("output", "dense")
    name: str = setting(..., "model name on the server", names="passages queries", min_length=1)
    revision: str | None = setting(
        None, "any text; change it when the served model changes", names="passages queries"
    )
    url: ServerUrl = setting(
        OPENAI, "server address, without /embeddings", names="passages queries", repr=False, effect=SEND
    )
    dimensions: int | None = setting(
        None, "dimensions to request; null: the model's own", names="passages queries", ge=1
    )
    query_instruction: str | None = setting(None, "prefix of queries; null: none", names="queries")
    passage_instruction: str | None = setting(None, "prefix of passages; null: none", names="passages")
    max_characters: int | None = setting(
        None, "maximum characters of a text; null: no limit", names="passages queries", ge=1
    )
    batch_size: int | None = ModelSettings.narrowed(
        "batch_size", None, f"maximum texts per request; null: {TEXTS}", ge=1
    )


StopWords = Literal[
    "english", "english_plus", "german", "dutch", "french", "spanish", "portuguese", "italian", "russian",
    "swedish", "norwegian", "danish", "chinese", "turkish", "korean",
]  # fmt: skip
"""Languages whose stop words bm25s knows."""
SnowballStemmer = Literal[
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german",
    "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian",
    "porter", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish",
    "yiddish",
]  # fmt: skip
"""Snowball's algorithms."""


class Bm25Settings(ModelSettings):
    """BM25: no model and no vectors."""

    cuts_texts = True

    backend: Literal["bm25"] = ModelSettings.narrowed("backend", "bm25")
    k1: float = setting(0.9, "term-frequency saturation", shapes="index", ge=0)
    b: float = setting(0.4, "length normalization, from 0 (none) to 1 (full)", shapes="index", ge=0, le=1)
    stop_words: StopWords | None = setting(
        "english", "language of stop words; null: none", names="passages queries"
    )
    stemmer: SnowballStemmer | None = setting(
        "english", "language of the Snowball stemmer; null: none", names="passages queries"
    )

    @property
    @override
    def label(self) -> str:
        return self.backend  # a name that a sweep leaves here is another retriever's

    @property
    @override
    def made_by(self) -> str:
        return with_variant(self.backend, [f"k1={self.k1:g}", f"b={self.b:g}"])

    @property
    @override
    def searched_without_faiss(self) -> str:
        return "backend 'bm25'"


BACKENDS = Kinds(
    ModelSettings,
    "backend",
    {
        "auto": AutoSettings,
        "flag": FlagSettings,
        "openvino": OpenVINOSettings,
        "native": NativeSettings,
        "onnx": OnnxSettings,
        "sentence-transformers": SentenceTransformersSettings,
        "http": HttpSettings,
        "precomputed": PrecomputedSettings,
        "bm25": Bm25Settings,
    },
    default="auto",
    groups=(plugins.BACKENDS, plugins.KINDS),
)
"""The backends of models, and the kinds of retrievers without a model."""
