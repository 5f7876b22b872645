"""The contents of `metrics.json` and `manifest.json` as frozen records.

Keys that may be absent, because nothing was measured, have a default. Keys that are unknown here are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import Field

from pipeline.core.records import Facts
from pipeline.core.result_records import Cost, Hardware, Name, Record, ReportSection, StageRow
from pipeline.metrics.presentation import Caveats
from pipeline.results.published import ScoreCheck
from pipeline.retrievers.composition import FirstStage, FusedRankings, FusionFacts, Reranking
from pipeline.retrievers.costs import VectorsCost, cost_of
from pipeline.retrievers.sections import AgainstExact, ApproximateIndex, Chunking, Sparsity
from pipeline.retrievers.truncation import Truncation


class JudgedShare(Record):
    """The share of the top k that is judged, mean over queries."""

    judged: float


class ModelRun(Record):
    """What ran a model; `auto` says whether the config left the backend to `auto`.

    `guessed` says which settings nothing but a default decides, and how to set them; "" if there are none.
    """

    name: str
    backend: str
    precision: str
    auto: bool = False
    guessed: str = ""


class Metrics(Caveats):
    """The content of `metrics.json`: means and their 95% intervals by measure, and the stages in order.

    The `notes` say what to know of the measures, but for what the `sections` say.
    """

    name: Name
    queries: int  # how many were judged
    passages: Annotated[int, Field(gt=0)]  # how many were searched
    models: tuple[ModelRun, ...] = ()  # what ran each model, rerankers included; empty of a run file
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float] | None] = Field({})  # none where none is shown
    fragile: dict[str, bool] = Field({})  # their marks, as of `pipeline.metrics.statistics.Estimate`
    # Of the measures with a cutoff that take unjudged documents for not relevant.
    unjudged: dict[str, JudgedShare] = Field({})
    stages: tuple[StageRow, ...]
    expected: tuple[ScoreCheck, ...] = ()  # published scores that the config gave, each with its verdict
    # What only some kinds of retrievers report, in the order in which their tables are shown.
    vectors: VectorsCost | None = None
    chunks: Chunking | None = None
    index: ApproximateIndex | None = None
    against_exact: AgainstExact | None = None
    sparsity: Sparsity | None = None
    of: FusedRankings | None = None
    fusion: FusionFacts | None = None
    first_stage: FirstStage | None = None
    reranking: Reranking | None = None
    truncation: Truncation | None = None

    @property
    def sections(self) -> list[ReportSection]:
        """All that its kind of retriever reports, in the order of the fields above."""
        return [section for _, section in self if isinstance(section, ReportSection)]

    @property
    def all_stages(self) -> tuple[StageRow, ...]:
        """The stages of the parts, whose names begin with the part's number, among the result's own."""
        return (*self.stages[:1], *(self.of.stages_of_parts if self.of else ()), *self.stages[1:])

    @property
    def cost(self) -> Cost:
        """What the result cost, by the figures of its stages and what its sections correct in them."""
        cost = cost_of(self.stages, self.passages, self.vectors)
        for section in self.sections:
            cost = section.corrected(cost, self.passages)
        return cost

    def stage(self, name: str) -> StageRow:
        """The row of a stage; one without figures where there is none."""
        return next((row for row in self.stages if row.stage == name), StageRow(stage=name))


def kinds_of(results: Iterable[Metrics]) -> list[type[ReportSection]]:
    """The class of each section that some result has, in the order of the fields of `Metrics`."""
    held = {section.key: type(section) for result in results for section in result.sections}
    return [held[key] for key in Metrics.model_fields if key in held]


class SettingRecord(Record):
    """The value that a run used for a setting of a model, and where it came from."""

    value: str | int
    source: str


class ModelUse(Record):
    """A model, and its settings by name; see `pipeline.models.model.Model.decided`.

    `comparison` is that of its rows with its library's, where its backend converts it or runs its ONNX file.
    """

    name: str
    settings: dict[str, SettingRecord]
    comparison: Facts = Field({})


class Manifest(Record):
    """The content of `manifest.json`; `recipes` holds all that shaped each stage's artifact, and its key."""

    config: Facts = Field({})
    cache: str = ""  # the absolute path of the folder of artifacts
    recipes: Annotated[dict[str, Facts], Field(min_length=1)]
    # Hashes of the passages, the judged queries and the judgments, whatever their order and form; see
    # `pipeline.data.collection_files`. Of a run file that of the judgments alone.
    contents: dict[str, str] = Field({})
    models: tuple[ModelUse, ...] = ()
    versions: dict[str, str] = Field({})
    hardware: Hardware = Hardware()
    wall_seconds: float | None = None
    created: str | None = None  # when the run ended, as UTC in ISO 8601; None of a run file

    @property
    def cache_here(self) -> str:
        """The folder that holds the artifacts: that of the run, else what the config names from here."""
        from pipeline.config.strangers import find_cache  # reading and comparing results does without configs

        return find_cache(self.cache, str(self.config.get("cache") or ""))


def flatten(config: Mapping[str, object], prefix: str = "") -> Facts:
    """Values of nested mappings by their dotted names."""
    flat: Facts = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def compared_settings(config: Mapping[str, object]) -> Facts:
    """The settings of all sections; those outside a section say where a benchmark is stored."""
    return {name: value for name, value in flatten(config).items() if "." in name}
