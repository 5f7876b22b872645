"""The contents of `metrics.json` and `manifest.json` as frozen records.

Keys that may be absent, in results of earlier versions or because nothing was measured, have a default. Keys
that this version does not know are kept as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]


class Record(BaseModel):
    """Base of the records."""

    model_config = ConfigDict(frozen=True, extra="allow")


class EncodingUsage(Record):
    """What it took to encode texts.

    Attributes:
        texts: How many were encoded.
        tokens: Their tokens, special ones included.
        tokenize_seconds: Time in the tokenizer, which works beside the model.
        padding_share: Share of the computed tokens that was padding.
    """

    texts: int = 0
    tokens: int = 0
    tokenize_seconds: float = 0.0
    padding_share: float = 0.0


class StageRow(Record):
    """One stage of a run. The figures are those of the run that computed the artifact.

    Attributes:
        stage: Its name.
        key: Key of its artifact.
        reused: Whether the artifact was in the cache.
        seconds: Time of the whole stage; None where the stage was not needed and has no artifact.
        items: How many passages, queries or vectors the artifact holds.
        items_per_second: While the stage worked on them; None where nothing was left to do.
        peak_rss_mb: Most memory in use, in 10^6 bytes.
        bytes: Size of the artifact.
        encoding: Of the stages that encode texts.
    """

    stage: Name
    key: str = ""
    reused: bool = False
    seconds: float | None = None
    items: int | None = None
    items_per_second: float | None = None
    peak_rss_mb: float | None = None
    bytes: int | None = None
    encoding: EncodingUsage | None = None

    @property
    def outcome(self) -> Literal["computed", "reused", "not needed"]:
        """What the run did with the artifact; one that is not needed is not in the cache either."""
        if self.reused:
            return "reused"
        return "not needed" if self.seconds is None else "computed"


class Latency(Record):
    """Milliseconds of single queries: their median, and the time that 95% and 99% stay below."""

    median: float
    p95: float
    p99: float


class IndexCost(Record):
    """An approximate index, and what it takes; on a GPU, figures of threads and memory have no meaning.

    Attributes:
        factory: Its Faiss factory string.
        parameters: Of the search, such as nprobe.
        build_seconds: Time to build it.
        disk_bytes: Size on disk.
        memory_mb: Size in memory, in 10^6 bytes.
        device: The GPU that it was searched on.
        queries_per_second: On all threads.
        queries_per_second_one_thread: On one.
        latency_ms: Of single queries, on all threads.
    """

    factory: str
    parameters: dict[str, int | float]
    build_seconds: float
    disk_bytes: int
    memory_mb: float | None = None
    device: str | None = None
    queries_per_second: float
    queries_per_second_one_thread: float | None = None
    latency_ms: Latency

    @property
    def disk_mb(self) -> float:
        """Size on disk, in 10^6 bytes."""
        return self.disk_bytes / 1e6


class Change(Record):
    """Difference of a measure's mean to that of exact search.

    Attributes:
        exact: The mean of exact search.
        difference: Mean of the approximate index minus `exact`.
        ci_low: The low end of the difference's 95% interval.
        ci_high: The high end.
    """

    exact: float
    difference: float
    ci_low: float
    ci_high: float


class AgainstExact(Record):
    """What an approximate index loses against exact search.

    Attributes:
        overlap: Share of the exact top hits that it finds, by cutoff.
        change: By measure.
    """

    overlap: dict[str, float]
    change: dict[str, Change]


class Metrics(Record):
    """The content of `metrics.json`.

    Attributes:
        name: The benchmark's.
        queries: How many were judged.
        passages: How many were searched.
        metrics: The mean of each measure.
        intervals: The 95% interval of each mean; empty in results of other programs.
        stages: In the order in which they run.
        index: An approximate index that was measured against exact search.
        against_exact: What it loses.
    """

    name: Name
    queries: int
    passages: Count
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]] = {}
    stages: tuple[StageRow, ...]
    index: IndexCost | None = None
    against_exact: AgainstExact | None = None

    def stage(self, name: str) -> StageRow:
        """The row of a stage; one without figures where there is none."""
        return next((row for row in self.stages if row.stage == name), StageRow(stage=name))


class Hardware(Record):
    """The machine that a benchmark ran on; see `pipeline.core.machine.hardware`."""

    cpu: str = ""
    cores: int | None = None
    gpus: tuple[str, ...] = ()
    memory_gb: float | None = None
    system: str = ""

    def found(self) -> dict[str, Any]:
        """What is known, by name: nothing about GPUs where there is none."""
        return {name: value for name, value in self.model_dump().items() if value}


class Manifest(Record):
    """The content of `manifest.json`.

    Attributes:
        config: The resolved config.
        recipes: Everything that shaped each stage's artifact, and its key.
        versions: Of Python and the packages that took part.
        hardware: Of the machine that ran it.
        wall_seconds: Time of the whole run.
    """

    config: dict[str, Any] = {}
    recipes: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    versions: dict[str, str] = {}
    hardware: Hardware = Hardware()
    wall_seconds: float | None = None
