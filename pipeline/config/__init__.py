"""What may a benchmark's YAML say, and what does each setting shape?

One frozen model per stage. Every field is made by `setting`, which demands two things of it: the stages
whose artifacts it shapes (`shapes`), and whether its own value stands in their keys (`keyed`) or what it
leads to does: for a path the content of its files, for a model's name its weights. The artifact keys are
built from this table (`keyed_settings`), so a setting cannot be added without deciding what it invalidates.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

STAGES = ("data", "passages", "queries", "index", "search", "evaluate")
EXACT = "Flat"  # the factory whose search is exact
SWEEP = "sweep"  # the key of a file that makes several configs of it; see `pipeline.config.sweep`
MEASURES = ("ndcg@10", "mrr@10", "recall@100", "map@1000", "precision@10")  # where none are named


def setting(default: Any, doc: str, *, shapes: str, keyed: bool = True, **limits: Any) -> Any:
    """A config field.

    Args:
        default: The value when the config is silent; `...` makes the field required.
        doc: One line for the schema and the documentation.
        shapes: The stages whose output the field changes, space-separated; "" for none.
        keyed: Whether the value itself is part of those stages' keys. False where the key holds what
            the value leads to instead (the content of a file, the identity of a model).
        **limits: Pydantic's own constraints, such as `ge=1`.
    """
    extra: dict[str, Any] = {"shapes": shapes.split(), "keyed": keyed}
    return Field(default, description=doc, json_schema_extra=extra, **limits)


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=()
    )

    def _refuse_useless(self, whose: str, section: str, names: Iterable[str]) -> None:
        """Refuse settings that would change nothing; a default may stand there, as in a sweep."""
        for name in names:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{whose} has no use for {section}.{name}: leave it out")


def _expand_home(value: str | None) -> str | None:
    """A path with the home folder for its `~`."""
    if value is None or not value.startswith("~"):
        return value
    try:
        return str(Path(value).expanduser())
    except RuntimeError:
        raise ValueError("a path that begins with no ~, or with that of a user of this machine") from None


class PositivesOf(_Section):
    """The corpus slice of the tutorial: the positives of the first N rows of the dataset."""

    positives_of: int = setting(..., "rows whose positives make the corpus", shapes="data", ge=1)


OF_HUB = (
    "query_column", "positives_column", "corpus_path", "corpus_revision", "corpus_split", "corpus_column",
)  # fmt: skip
"""Settings that only source `hub` has a use for."""
USELESS_DATA = {
    "sample": ("path", "revision", *OF_HUB),
    "beir": OF_HUB,
    "msmarco": ("revision", *OF_HUB),
    "flag": ("revision", *OF_HUB),
    "hub": (),
    "ir_datasets": ("revision", "split", *OF_HUB),
}
"""What a source refuses, because it would change nothing."""


class DataConfig(_Section):
    """Where the collection comes from, and which part of it is used."""

    source: Literal["sample", "beir", "msmarco", "flag", "hub", "ir_datasets"] = setting(
        ..., "layout of the collection", shapes="data", keyed=False
    )
    path: str | None = setting(
        None,
        "folder of the collection, a dataset's id on the hub, or an id of ir_datasets",
        shapes="data",
        keyed=False,
    )
    revision: str | None = setting(
        None, "on the hub: branch, tag or commit of the dataset", shapes="data", keyed=False
    )
    split: str = setting("test", "which judgments or rows; not for ir_datasets", shapes="data", keyed=False)
    queries: int | None = setting(None, "keep the first N queries; null is all", shapes="data", ge=1)
    corpus: int | PositivesOf | None = setting(
        None,
        "keep N passages (all judged ones stay), or {positives_of: N}; null is all",
        shapes="data",
    )
    query_column: str = setting("query", "hub only: the column of query texts", shapes="data")
    positives_column: str = setting(
        "positive", "hub only: the column of lists of relevant texts", shapes="data"
    )
    corpus_path: str | None = setting(
        None,
        "hub only: a dataset that holds the whole corpus; null takes the positives",
        shapes="data",
        keyed=False,
    )
    corpus_revision: str | None = setting(
        None, "hub only: branch, tag or commit of that dataset", shapes="data", keyed=False
    )
    corpus_split: str = setting("train", "hub only: split of the corpus dataset", shapes="data", keyed=False)
    corpus_column: str = setting("content", "hub only: its column of passage texts", shapes="data")

    _home = field_validator("path", "corpus_path")(_expand_home)

    @field_validator("corpus")
    @classmethod
    def _positive(cls, value: Any) -> Any:
        if isinstance(value, int) and value < 1:
            raise ValueError("a positive number of passages, {positives_of: N} or null")
        return value

    @model_validator(mode="after")
    def _fits_source(self) -> DataConfig:
        if self.source != "sample" and self.path is None:
            raise ValueError(f"source '{self.source}' needs data.path: add it")
        if isinstance(self.corpus, PositivesOf) and (self.source != "hub" or self.corpus_path):
            raise ValueError(
                "data.corpus: {positives_of: N} only with source 'hub' and without data.corpus_path: "
                "give a number"
            )
        self._refuse_useless(f"source '{self.source}'", "data", USELESS_DATA[self.source])
        return self


StopWords = Literal[
    "english", "english_plus", "german", "dutch", "french", "spanish", "portuguese", "italian", "russian",
    "swedish", "norwegian", "danish", "chinese", "turkish", "korean",
]  # fmt: skip
"""Languages whose stop words bm25s knows."""
Stemmer = Literal[
    "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german",
    "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian",
    "porter", "portuguese", "romanian", "russian", "serbian", "spanish", "swedish", "tamil", "turkish",
    "yiddish",
]  # fmt: skip
"""Snowball's algorithms."""


OF_BM25 = ("k1", "b", "stop_words", "stemmer")
"""Settings that only `bm25` has a use for."""
OF_PRECOMPUTED = ("passages", "queries")
"""Settings that only `precomputed` has a use for."""
OF_MODELS = (
    "pooling", "precision", "query_instruction", "passage_instruction", "query_max_length",
    "passage_max_length", "truncate_dim", "trust_remote_code",
)  # fmt: skip
"""Settings of models that are run."""
USELESS = {
    "flag": (*OF_BM25, *OF_PRECOMPUTED),
    "openvino": (*OF_BM25, *OF_PRECOMPUTED),
    "native": (*OF_BM25, *OF_PRECOMPUTED),
    "sentence-transformers": (*OF_BM25, *OF_PRECOMPUTED),
    "precomputed": (*OF_BM25, *OF_MODELS),
    "bm25": (*OF_PRECOMPUTED, *OF_MODELS, "normalize", "vector_precision"),
}
"""What a backend refuses, because it would change nothing."""


class ModelConfig(_Section):
    """Which encoder turns texts into vectors, and how."""

    backend: Literal["flag", "openvino", "native", "sentence-transformers", "precomputed", "bm25"] = setting(
        "flag", "what runs the model", shapes="passages queries"
    )
    name: str = setting(
        "", "hub id, local folder, or a bundled alias", shapes="passages queries", keyed=False
    )
    revision: str | None = setting(
        None, "hub only: branch, tag or commit of the model", shapes="passages queries", keyed=False
    )
    pooling: Literal["cls", "mean", "last_token"] | None = setting(
        None, "null takes what the model itself declares", shapes="passages queries", keyed=False
    )
    normalize: bool = setting(True, "scale every vector to length 1", shapes="passages queries")
    precision: Literal["fp32", "fp16", "bf16", "int16", "int8"] = setting(
        "fp32",
        "number format the model computes in; fp16 is fp32 on a CPU; int16 is native's, int8 openvino's",
        shapes="passages queries",
        keyed=False,
    )
    query_instruction: str | None = setting(
        None, "put before each query; null takes the model's own, '' is none", shapes="queries", keyed=False
    )
    passage_instruction: str | None = setting(
        None, "put before each passage; null takes the model's own", shapes="passages", keyed=False
    )
    query_max_length: int = setting(512, "tokens kept of a query", shapes="queries", keyed=False, ge=3)
    passage_max_length: int = setting(512, "tokens kept of a passage", shapes="passages", keyed=False, ge=3)
    truncate_dim: int | None = setting(
        None,
        "dimensions kept of each vector (Matryoshka); null takes what the model itself declares",
        shapes="passages queries",
        keyed=False,
        ge=1,
    )
    batch_size: int | None = setting(
        None, "texts per batch; null lets the encoder choose by tokens", shapes="", ge=1
    )
    device: str = setting("auto", "auto, cpu, cuda or cuda:N", shapes="", pattern=r"^(auto|cpu|cuda(:\d+)?)$")
    vector_precision: Literal["fp32", "fp16"] = setting(
        "fp32", "number format the passages' vectors are stored in", shapes="passages"
    )
    shard_rows: int = setting(
        16384,
        "passages, or queries, per stored shard: what an interrupted run loses at most",
        shapes="",
        ge=1,
    )
    trust_remote_code: bool = setting(
        False, "run the Python files that come with the model", shapes="passages queries"
    )
    passages: str | None = setting(
        None, "precomputed only: .npy [passages, d], in corpus order", shapes="passages", keyed=False
    )
    queries: str | None = setting(
        None, "precomputed only: .npy [queries, d], in query order", shapes="queries", keyed=False
    )
    k1: float = setting(0.9, "bm25 only: how soon more of a word adds little", shapes="index", ge=0)
    b: float = setting(0.4, "bm25 only: how much a passage's length counts", shapes="index", ge=0, le=1)
    stop_words: StopWords | None = setting(
        "english",
        "bm25 only: the language whose stop words are left out; null keeps all",
        shapes="passages queries",
        keyed=False,
    )
    stemmer: Stemmer | None = setting(
        "english", "bm25 only: a Snowball stemmer; null is none", shapes="passages queries", keyed=False
    )

    _home = field_validator("name", "passages", "queries")(_expand_home)

    @model_validator(mode="after")
    def _fits_backend(self) -> ModelConfig:
        if self.backend not in ("precomputed", "bm25") and not self.name:
            raise ValueError(f"backend '{self.backend}' needs model.name: add it")
        self._refuse_useless(f"backend '{self.backend}'", "model", USELESS[self.backend])
        return self


class IndexConfig(_Section):
    """How the passages' vectors are indexed."""

    factory: str = setting("Flat", "a faiss index_factory string", shapes="index")
    metric: Literal["inner_product", "cosine", "l2"] = setting(
        "inner_product", "what a score is; for l2 the negated squared distance", shapes="index"
    )
    train_rows: int | None = setting(
        None,
        "vectors an index that learns is trained on; null is 64 a list, at least 65,536",
        shapes="index",
        ge=1,
    )
    seed: int = setting(0, "seed for drawing the vectors of `train_rows`", shapes="index", ge=0)
    shards: int = setting(
        1, "cuts the passages into so many parts, each with an index of its own", shapes="index", ge=1
    )


class SearchConfig(_Section):
    """How the index is searched."""

    top_k: int = setting(1000, "passages kept for each query", shapes="search", ge=1)
    batch_size: int = setting(
        256, "queries searched at once, by an approximate index or by Flat on a GPU", shapes="", ge=1
    )
    memory_mb: int | None = setting(
        None,
        "factory Flat only: search the stored vectors within so many MB; null holds the index in memory",
        shapes="",
        ge=64,
    )
    parameters: dict[str, int | float] = setting(
        {}, "what the index can be told, such as {nprobe: 16} or {efSearch: 64}", shapes="search"
    )
    against_exact: bool = setting(
        True,
        "any factory but Flat: also measure speed, and what is lost to exact search",
        shapes="search evaluate",
        keyed=False,
    )
    device: str = setting(
        "auto",
        "auto, cpu, cuda or cuda:N; a GPU where faiss has one and it can take the index",
        shapes="",
        pattern=r"^(auto|cpu|cuda(:\d+)?)$",
    )


class EngineConfig(_Section):
    """Where shards of the work run."""

    kind: Literal["local", "ray"] = setting("local", "this process, or workers on a Ray cluster", shapes="")
    address: str | None = setting(
        None, "ray only: a cluster's address; null starts one on this machine", shapes=""
    )
    workers: int | None = setting(
        None, "ray only: how many; null is one per GPU, or one per machine without GPUs", shapes="", ge=1
    )

    @model_validator(mode="before")
    @classmethod
    def _without_store(cls, given: Any) -> Any:
        """Refuse the setting `store` of earlier versions; their manifests hold it as null."""
        if isinstance(given, dict) and given.get("store", "") is None:
            given = {name: value for name, value in given.items() if name != "store"}
        if isinstance(given, dict) and "store" in given:
            raise ValueError(
                "engine.store is no longer needed: data and models travel through Ray itself; remove it"
            )
        return given

    @field_validator("address")
    @classmethod
    def _reachable(cls, value: str | None) -> str | None:
        if value not in (None, "auto") and not re.fullmatch(r"[^\s/:]+:\d{1,5}", value):
            raise ValueError("null, auto or HOST:PORT")
        return value

    @model_validator(mode="after")
    def _fits_kind(self) -> EngineConfig:
        for name in ("address", "workers"):
            if self.kind == "local" and getattr(self, name) is not None:
                raise ValueError(f"engine.{name} is for kind 'ray': leave it out")
        return self


class EvaluateConfig(_Section):
    """How the ranking is scored."""

    measures: tuple[str, ...] = setting(
        MEASURES,
        "names as in docs/measures.md",
        shapes="evaluate",
        keyed=False,
        min_length=1,
        strict=False,
    )
    ignore_identical_ids: bool = setting(
        False, "drop passages whose id is the query's own", shapes="evaluate"
    )


class Config(_Section):
    """One benchmark, as its YAML file says."""

    name: str = setting(..., "names the result folder", shapes="")
    data: DataConfig = setting(..., "the collection", shapes="")
    model: ModelConfig = setting(..., "the encoder", shapes="")
    index: IndexConfig = setting(IndexConfig(), "the index", shapes="")
    search: SearchConfig = setting(SearchConfig(), "the search", shapes="")
    engine: EngineConfig = setting(EngineConfig(), "where the work runs", shapes="")
    evaluate: EvaluateConfig = setting(EvaluateConfig(), "the measures", shapes="")
    cache: str = setting("indexes", "where artifacts are kept, relative to the working directory", shapes="")
    output: str = setting(
        "results", "where results are written, relative to the working directory", shapes=""
    )

    _home = field_validator("cache", "output")(_expand_home)

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", value) or value.strip(".") == "":
            raise ValueError("letters, digits, '.', '_' and '-', and not only dots")
        return value

    @model_validator(mode="after")
    def _search_fits_index(self) -> Config:
        index, search = self.index, self.search
        if self.model.backend == "bm25":
            if index != IndexConfig() or search.parameters:
                raise ValueError(
                    "backend 'bm25' makes an index of its own: "
                    "leave out the section 'index' and search.parameters"
                )
            if search.memory_mb is not None or search.device not in ("auto", "cpu"):
                raise ValueError(
                    "backend 'bm25' holds its index in memory, and searches it on the CPU: "
                    "leave out search.memory_mb and search.device"
                )
        if search.memory_mb is not None and index.factory != EXACT:
            raise ValueError(
                f"search.memory_mb limits exact search, and index.factory is '{index.factory}', "
                "which is searched whole: leave out one of the two"
            )
        if search.memory_mb is not None and index.shards > 1:
            raise ValueError("search.memory_mb searches without an index: leave out index.shards")
        return self


def keyed_settings(section: BaseModel, stage: str) -> dict[str, Any]:
    """The settings of one section whose own value is part of `stage`'s key, as plain JSON values."""
    chosen = {}
    for name, field in type(section).model_fields.items():
        extra = typing.cast("dict[str, Any]", field.json_schema_extra)
        if extra["keyed"] and stage in extra["shapes"]:
            value = getattr(section, name)
            chosen[name] = value.model_dump() if isinstance(value, BaseModel) else value
    return chosen


def json_schema() -> dict[str, Any]:
    """The config as JSON Schema, without the marks of `setting`."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key not in ("shapes", "keyed")}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    stripped: dict[str, Any] = strip(Config.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **stripped}
