"""The config of one benchmark: its sections together, and its JSON Schema."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from pipeline.config.data import DataSettings, PositivesOf
from pipeline.config.model import BACKENDS, QUANTIZED, ModelSettings, RowSettings
from pipeline.config.rerank import RERANKERS, ScorerSettings
from pipeline.config.settings import HomePath, PlainName, RunsModel, Section, setting
from pipeline.config.stages import (
    FLAT,
    EngineConfig,
    EvaluateConfig,
    ExpectedScore,
    IndexConfig,
    SearchConfig,
)
from pipeline.config.suites import DATA, ManySettings, Suite, SuiteCollection
from pipeline.core import plugins
from pipeline.storage.whole_files import RESULT_FILES

TASK = "{task}"  # in an instruction: what the suite says of the collection
INSTRUCTIONS = ("query_instruction", "passage_instruction")

MethodName = Literal["rrf", "combsum", "combmnz", "weighted", "interpolation"]
NormalizationName = Literal["none", "min_max", "max", "sum", "z_score", "rank"]
METHODS: tuple[str, ...] = get_args(MethodName)
NORMALIZATIONS: tuple[str, ...] = get_args(NormalizationName)


def check_fusion(
    method: MethodName, normalize: str | None, rankings: int, weights: Sequence[float] | None
) -> None:
    """Raise ValueError for what a method cannot do with so many rankings and these weights."""
    if rankings < 2:
        raise ValueError("one ranking: name two or more")
    if method == "rrf" and normalize is not None:
        raise ValueError("rrf joins ranks, and normalize is for scores: leave it out")
    if method == "interpolation" and rankings != 2:
        raise ValueError(f"interpolation joins two rankings, not {rankings}: choose the method 'weighted'")
    expected = 1 if method == "interpolation" else rankings
    if weights is not None and len(weights) != expected:
        found = f"{len(weights)} are given"
        raise ValueError(f"{method} of {rankings} rankings takes {expected} weights, and {found}")
    most = 1 if method == "interpolation" else sys.float_info.max
    if weights is not None and not all(0 <= weight <= most for weight in weights):
        given = ", ".join(map(str, weights))
        raise ValueError(
            f"the weights are {given}: give finite numbers of 0 or more, for interpolation up to 1"
        )
    if weights is not None and not any(weights) and method != "interpolation":
        raise ValueError("all weights are 0, so that all passages would score 0: give one that is not 0")
    if method in ("weighted", "interpolation") and weights is None:
        raise ValueError(f"{method} needs weights: give {expected}")


class PartConfig(Section):
    """One of the retrievers that are joined."""

    model: Annotated[ModelSettings, BACKENDS] = setting(..., "see `model`", shapes="")
    index: IndexConfig = setting(IndexConfig(), "see `index`", shapes="")
    search: SearchConfig | None = setting(None, "see `search`; null is that section", shapes="")
    rerank: Annotated[ScorerSettings | None, RERANKERS] = setting(None, "see `rerank`", shapes="")


class FuseConfig(Section):
    """Retrievers, and how their rankings are joined into one."""

    method: MethodName = setting("rrf", "how rankings are joined", shapes="fuse")
    of: tuple[PartConfig, ...] = setting(
        ..., "two or more retrievers", names="fuse", min_length=2, strict=False
    )
    k: int = setting(60, "rrf: number added to each rank", shapes="fuse", ge=1)
    normalize: NormalizationName | None = setting(
        None, "how scores are scaled; null: min_max, or none with interpolation", shapes="fuse"
    )
    weights: tuple[float, ...] | None = setting(
        None, "a weight per retriever; interpolation: only that of the first", shapes="fuse", strict=False
    )

    @model_validator(mode="after")
    def _fits_method(self) -> Self:
        check_fusion(self.method, self.normalize, len(self.of), self.weights)
        if self.method != "rrf" and self.k != type(self).model_fields["k"].default:
            raise ValueError(f"k {self.k} with the method {self.method}, and it is for rrf: leave it out")
        return self


class Config(Section):
    """The settings of one benchmark. Studies add sections of their own: see `add_sections`."""

    name: PlainName = setting(..., "names the result folder", shapes="")
    data: Annotated[DataSettings, DATA] = setting(..., "the collection, or several", shapes="")
    model: Annotated[ModelSettings | None, BACKENDS] = setting(None, "the encoder", shapes="")
    fuse: FuseConfig | None = setting(None, "instead of `model`: retrievers that are joined", shapes="")
    index: IndexConfig = setting(IndexConfig(), "the index", shapes="")
    search: SearchConfig = setting(SearchConfig(), "the search", shapes="")
    rerank: Annotated[ScorerSettings | None, RERANKERS] = setting(
        None, "the reranker of the ranking; null is none", shapes=""
    )
    engine: EngineConfig = setting(EngineConfig(), "where the work runs", shapes="")
    evaluate: EvaluateConfig = setting(EvaluateConfig(), "the measures", shapes="")
    expected: tuple[ExpectedScore, ...] = setting(
        (),
        "published scores to compare with, each {measure, value, source, tolerance, digits}",
        shapes="",
        strict=False,
    )
    cache: HomePath = setting(
        "indexes",
        "folder of artifacts; `$CONFIG/DIR` is beside the config",
        shapes="",
        effect="store artifacts in {}",
    )
    output: HomePath = setting(
        "results",
        "folder of results; `$CONFIG/DIR` is beside the config",
        shapes="",
        effect="write results to {}",
    )

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        if (self.model is None) == (self.fuse is None):
            found = "'model' and 'fuse' are both" if self.model else "neither 'model' nor 'fuse' is"
            raise ValueError(
                f"{found} given: a benchmark has one encoder, or retrievers that are joined; "
                "see what 'benchmarco example' prints"
            )
        collections = self.data.members.values() if isinstance(self.data, ManySettings) else [self.data]
        for data in collections:
            listed = data.source == "hub" and not getattr(data, "corpus_path", None)
            if isinstance(data.corpus, PositivesOf) and not listed:
                raise ValueError(
                    "data.corpus: {positives_of: N} only with source 'hub', and without data.corpus_path: "
                    "give a number"
                )
        if self.fuse and self.index != IndexConfig():
            raise ValueError("each of the retrievers in fuse.of has its own index: move 'index' there")
        if self.rerank and self.rerank.depth > self.search.top_k:
            raise ValueError(
                f"rerank.depth is {self.rerank.depth:,}, and search.top_k keeps {self.search.top_k:,}: "
                "lower the first or raise the second"
            )
        in_chunks = any(data.chunks for data in collections)
        parts: tuple[Config, ...] = self.parts if self.fuse else ()
        for number, part in enumerate(parts, start=1):
            try:
                part._check_retriever(in_chunks)
            except ValueError as error:
                raise ValueError(f"fuse.of, number {number}: {error}") from None
        if self.model:
            self._check_retriever(in_chunks)
        if isinstance(self.data, ManySettings):
            if self.expected:
                raise ValueError(
                    "'expected' has the scores of one collection: in a suite, give it with each collection "
                    "of the suite's file"
                )
            _ = self.members  # each for its task
        else:
            retrievers: list[Config] = [*parts, self]
            for section in (each for one in retrievers for each in (one.model, one.rerank) if each):
                if any(TASK in (getattr(section, name, None) or "") for name in INSTRUCTIONS):
                    _with_task(section, None, "the collection")  # which has none
        return self

    @field_validator("engine")
    @classmethod
    def _fits_models(cls, engine: EngineConfig, info: ValidationInfo) -> EngineConfig:
        """Raise ValueError if settings of the engine exclude each other, or the device of a model."""
        kind, other = ("ray", "address") if engine.kind == "local" else ("local", "devices")
        if getattr(engine, other) is not None:
            raise ValueError(f"engine.{other} is for kind '{kind}': leave it out")
        if engine.devices and engine.workers:
            raise ValueError("engine.devices says how many processes there are: leave engine.workers out")
        kinds = {device.partition(":")[0] for device in engine.devices or ()}
        if len(kinds) > 1:
            raise ValueError("engine.devices: all GPUs, or all cpu: they compute other last bits")
        fuse = info.data.get("fuse")
        retrievers = [*(map(dict, fuse.of) if fuse else ()), info.data]
        sections = [each.get(name) for each in retrievers for name in ("model", "rerank")]
        for section in [each for each in sections if isinstance(each, RunsModel)]:
            name = "rerank.device" if isinstance(section, ScorerSettings) else "model.device"
            device = section.device if section.on_gpu else "cpu"
            if kinds and device.partition(":")[0] not in {"auto", *kinds}:
                found = f"engine.devices: {engine.devices}, and {name} is {device}"
                raise ValueError(f"{found}: name one kind of device for both")
            is_one_gpu = device.startswith("cuda:")
            if engine.kind == "ray" and is_one_gpu and device != "cuda:0":
                found = f"{name}: {device} with engine.kind: ray, which gives each worker a GPU of its own"
                raise ValueError(f"{found}: set {name} to cuda")
            if engine.kind == "local" and is_one_gpu and (engine.workers or 1) > 1:
                found = f"engine.workers: {engine.workers}, and {name} is {device}, a single GPU"
                raise ValueError(f"{found}: set {name} to cuda")
        return engine

    def _check_retriever(self, in_chunks: bool) -> None:
        """Raise ValueError if the sections of one retriever, or chunks of its passages, do not fit."""
        index, search = self.index, self.search
        assert self.model is not None
        if (index != IndexConfig() or search.parameters) and (what := self.model.searched_without_faiss):
            raise ValueError(
                f"{what} is searched on the CPU, without a Faiss index: leave out the section 'index' "
                "and search.parameters"
            )
        if not isinstance(self.model, RowSettings) and search.memory_mb is not None:
            found = f"backend '{self.model.backend}' holds its index in memory"
            raise ValueError(f"{found}: leave out search.memory_mb")
        if search.aggregate != "max" and not in_chunks:
            raise ValueError(
                f"search.aggregate: {search.aggregate} is for passages that are cut: "
                "leave it out, or set data.chunks"
            )
        if in_chunks and not self.model.cuts_texts:
            raise ValueError(
                f"backend '{self.model.backend}' has no tokenizer to cut passages with: leave out "
                "data.chunks, or give a collection whose passages are the chunks"
            )
        if in_chunks and index.shards > 1:
            raise ValueError("data.chunks are searched in one index: leave out index.shards")
        if search.aggregate == "mean" and index.factory != FLAT:
            raise ValueError(
                f"search.aggregate: mean takes the score of every chunk, and index.factory '{index.factory}' "
                "finds only some: choose max or first, or the factory Flat"
            )
        if search.rescore is not None and getattr(self.model, "vector_precision", "") not in QUANTIZED:
            raise ValueError(
                "search.rescore scores the hits of quantized vectors again: leave it out, or set "
                "model.vector_precision to int8 or binary"
            )
        if search.memory_mb is not None and index.factory != FLAT:
            raise ValueError(
                f"search.memory_mb limits exact search, and index.factory is '{index.factory}', "
                "which is searched whole: leave out one of the two"
            )
        if search.memory_mb is not None and index.shards > 1:
            raise ValueError("search.memory_mb searches without an index: leave out index.shards")

    @property
    def label(self) -> str:
        """A short name of the retriever, for tables."""
        first = self.model.label if self.model else " + ".join(part.label for part in self.parts)
        return f"{first}, reranked by {self.rerank.label}" if self.rerank else first

    @property
    def made_by(self) -> str:
        """What a result is attributed to: its models, each with its variant; see `ModelSettings.made_by`."""
        if self.model:
            approximate = self.index.factory != FLAT and not self.model.searched_without_faiss
            first = self.model.made_by + (f", index {self.index.factory}" if approximate else "")
        else:
            first = " + ".join(part.made_by or part.label for part in self.parts)
        return f"{first or self.label}, reranked by {self.rerank.made_by}" if self.rerank else first

    @property
    def suite(self) -> Suite | None:
        """The collections that `data` names; None where it is one."""
        return self.data.suite_of_collections if isinstance(self.data, ManySettings) else None

    @property
    def members(self) -> dict[str, Config]:
        """For each collection of a suite the config of the benchmark that runs on it alone; else empty.

        Its result is in the suite's folder. It has its main measure too, and its task in instructions.
        """
        if not isinstance(self.data, ManySettings):
            return {}
        suite, output = self.data.suite_of_collections, str(Path(self.output) / self.name)
        configs = {}
        for name, data in self.data.members.items():
            if name in RESULT_FILES:
                raise ValueError(f"a collection is named '{name}', as a file of results: name it otherwise")
            main, collection = suite.measure_of(name), suite.collections[name]
            measures = (*self.evaluate.measures, *([main] if main else []))
            evaluate = self.evaluate.model_copy(update={"measures": tuple(dict.fromkeys(measures))})
            changes = {"expected": collection.expected, "evaluate": evaluate}
            one = self.model_copy(update={"name": name, "data": data, "output": output, **changes})
            task = partial(_with_task, collection=collection, where=f"collection '{name}'")
            configs[name] = one.with_models(task)
        return configs

    def with_models(self, take: Callable[[Any], Any]) -> Config:
        """The same config with `take(section)` in place of each section `model` and `rerank`."""
        copies: list[Any] = []
        for holder in (self, *(self.fuse.of if self.fuse else ())):
            sections = {name: getattr(holder, name) for name in ("model", "rerank")}
            changes = {name: take(section) for name, section in sections.items() if section}
            copies.append(holder.model_copy(update=changes))
        config: Config = copies[0]
        fuse = self.fuse and self.fuse.model_copy(update={"of": tuple(copies[1:])})
        return config.model_copy(update={"fuse": fuse})

    @property
    def parts(self) -> tuple[Config, ...]:
        """For each retriever that is joined, the config of the benchmark that runs it alone."""
        return tuple(
            self.model_copy(update={**dict(part), "fuse": None, "search": part.search or self.search})
            for part in (self.fuse.of if self.fuse else ())
        )


def _with_task(section: Section, collection: SuiteCollection | None, where: str) -> Section:
    """A section `model` or `rerank` with the task of a collection for each `{task}` of its instructions.

    Raises:
        ValueError: The collection has no task for an instruction; `where` names it.
    """
    changes: dict[str, object] = {}
    for name in INSTRUCTIONS:
        text, task = getattr(section, name, None), getattr(collection, name, None)
        if text and TASK in text and task is None:
            raise ValueError(
                f"{name} has {TASK}, and there is no {name} for {where}: "
                "write the instruction out, or name a suite that gives one by data.suite"
            )
        if text and TASK in text:
            changes[name] = text.replace(TASK, task)
    return section.model_copy(update=changes) if changes else section


def of_each_collection(configs: Iterable[Config]) -> list[Config]:
    """The configs, with those of its collections in place of a suite, named `SUITE/COLLECTION`."""
    return [
        one.model_copy(update={"name": f"{config.name}/{name}"}) if name else one
        for config in configs
        for name, one in (config.members or {"": config}).items()
    ]


def add_sections() -> None:
    """Add the sections of studies: each is a field of `Config`, None unless it is given."""
    owners = (owner for source in plugins.SECTION_SOURCES for owner in source().values())
    for name, place in (each for owner in owners for each in owner.sections.items()):
        module, _, kind = place.partition(":")
        section = getattr(import_module(module), kind)
        doc = (section.__doc__ or "").splitlines()[0].rstrip(".")
        default = setting(None, f"{doc[:1].lower()}{doc[1:]}; null is none", shapes="")
        annotation: Any = section | None
        Config.__annotations__[name] = annotation
        Config.__pydantic_fields__[name] = FieldInfo.from_annotated_attribute(annotation, default)
    Config.model_rebuild(force=True)
