"""The records of a result's JSON files: their base, the rows of stages, and what kinds of retrievers add."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from pipeline.core.table import Column, FilledColumn, Table, right, table_of

Name = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    """Base of the records."""

    model_config = ConfigDict(frozen=True, extra="allow")


def in_part(number: int, stage: str) -> str:
    """The name of a stage of one of several joined retrievers, which are numbered from 1."""
    return f"{number}/{stage}"


def without_part(stage: str) -> str:
    """The name of a stage in the plan of its own retriever."""
    return stage.rpartition("/")[2]


class SecondsAlone(Record):
    """Seconds from a request of one text to its answer: of so many `texts` the median and two percentiles."""

    median: float
    p95: float
    p99: float
    texts: int


class EncodingUsage(Record):
    """What encoding texts, or scoring pairs, took; `padded` counts tokens with their padding.

    The tokenizer works beside the model, in `tokenize_seconds`.
    """

    texts: int = 0
    tokens: int = 0
    padded: int = 0
    tokenize_seconds: float = 0.0
    padding_share: float = 0.0
    requests: int | None = None  # of a served model: requests that were sent, those sent again included
    retries: int | None = None  # requests that were sent again
    concurrency: int | None = None  # requests that could be under way at once
    # Of the tokens; None if no price was given, or the server did not count tokens.
    price: float | None = None
    seconds_alone: SecondsAlone | None = None  # of queries that were asked for alone


class Hardware(Record):
    """The machine that a benchmark ran on; see `pipeline.core.machine.hardware`."""

    cpu: str = ""
    cores: int | None = None
    gpus: tuple[str, ...] = ()
    memory_gb: float | None = None
    system: str = ""
    variables: dict[str, str] = {}

    def found(self) -> dict[str, object]:
        """What is known, by name: nothing about GPUs where there is none."""
        return {name: value for name, value in self.model_dump().items() if value}

    @property
    def processors(self) -> tuple[str, int | None, tuple[str, ...]]:
        """What speed depends on: not the version of the system, nor the memory that it leaves."""
        return self.cpu, self.cores, self.gpus


class PairCounts(Record):
    """The pairs of a reranked ranking: `found` in the cache, from earlier runs, and `scored` by this one.

    A pair of texts that the ranking holds twice is scored once, and found once.
    """

    found: int
    scored: int


ONLY_WHERE_MEASURED = ("preparing_seconds", "encoding", "found", "pairs")
"""Figures that a row leaves out where there is none; the others are null there."""


class StageRow(Record):
    """One stage of a run; its figures are those of the run that computed the artifact."""

    stage: Name
    key: str = ""  # key of the artifact
    reused: bool = False  # whether the artifact was in the cache
    # Time of the whole stage, without that; None where it was not needed and has no artifact.
    seconds: float | None = None
    # What packing, converting and compiling took, once; `seconds` leaves it out.
    preparing_seconds: float | None = None
    items: int | None = None  # how many passages, queries or vectors the artifact holds
    # Of these, the seconds of the work itself: without loading a model or an index, and without writing
    # files. The whole time for a stage that does not tell them apart.
    working_seconds: float | None = None
    # Items that were worked on, over `working_seconds`: all but those that an interrupted run had finished,
    # or that were copied; None where nothing was left to do.
    items_per_second: float | None = None
    peak_rss_mb: float | None = None  # most memory in use, in 10^6 bytes
    bytes: int | None = None  # size of the artifact
    made_at: str | None = None  # when the artifact was begun, as UTC in ISO 8601
    hardware: Hardware | None = None  # the machine that the artifact was made on
    threads: int | None = None  # how many threads libraries could use there
    encoding: EncodingUsage | None = None  # what encoding texts, or scoring pairs, cost
    found: int | None = None  # how many of its rows were copied, as their texts had been encoded before
    pairs: PairCounts | None = None  # of a reranker, how many pairs were scored before and how many now

    @property
    def outcome(self) -> Literal["computed", "reused", "not needed"]:
        """What the run did with the artifact; one that is not needed is not in the cache either."""
        if self.reused:
            return "reused"
        return "not needed" if self.seconds is None else "computed"


class Cost(NamedTuple):
    """What a result cost; None where it is not known."""

    # Encoded and then indexed, loading the model not counted; None where the run that finished the encoding
    # found all of it done by interrupted ones.
    passages_per_second: float | None
    queries_per_second: float | None  # encoded and then searched, likewise
    index_bytes: int | None  # size of the index
    bytes_per_passage: float | None  # what each passage adds to it, ids in inverted lists not counted
    # Of all stages, in the runs that finished them: what it costs with an empty cache, unless a run was
    # interrupted and resumed.
    seconds: float | None


class ResultFigures(Protocol):
    """A result, as its sections see it: the content of `metrics.json`, with an attribute for each key."""

    @property
    def passages(self) -> int:
        """How many were searched."""
        ...

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each measure."""
        ...

    def stage(self, name: str) -> StageRow:
        """The row of a stage; one without figures where there is none."""
        ...


SPEED_OF_SEARCH = ("queries/s", "items_per_second", "rate")


def columns_of(rows: Collection[object], shown: Sequence[tuple[str, str, str]]) -> list[FilledColumn]:
    """Columns by heading, attribute of each row, and form of numbers, which is "" for texts."""
    return [
        (right(heading, form=form) if form else Column(heading), map(attrgetter(attribute), rows))
        for heading, attribute, form in shown
    ]


def mean_columns(measures: Collection[str], rankings: Collection[Mapping[str, float]]) -> list[FilledColumn]:
    """A column for each measure: its mean of each ranking."""
    return [(right(name), [means.get(name) for means in rankings]) for name in measures]


class ReportSection(BaseModel):
    """What a kind of retriever reports besides the measures: the value of one key of `metrics.json`.

    `Metrics` of `pipeline.results.records` has a field for each.
    """

    model_config = ConfigDict(frozen=True)

    key: ClassVar[str]
    heading: ClassVar[str] = ""
    """Of the part of a page that holds its tables."""
    in_comparisons: ClassVar[bool] = False
    """Whether the terminal shows its tables with a comparison, and not only a page."""
    title: ClassVar[str] = ""
    """Of its table, which has a row for each result."""
    shown: ClassVar[Sequence[tuple[str, str, str]]] = ()
    """The table's columns: heading, attribute, and form of numbers, which is "" for texts."""
    note: ClassVar[str] = ""
    plotted: ClassVar[str] = ""
    """The column that a page draws the measure against."""

    @classmethod
    def of_each(cls, results: Mapping[str, ResultFigures]) -> dict[str, Self]:
        """The section of each result that has it, by the result's name."""
        sections = {name: getattr(record, cls.key) for name, record in results.items()}
        return {name: section for name, section in sections.items() if section is not None}

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """Tables of the results that have it: here one, of what is `shown`, with speed and quality last.

        Args:
            results: All that are shown together, by name.
            measure: What they are compared by.
        """
        sections = cls.of_each(results)
        records = [results[name] for name in sections]
        columns: list[FilledColumn] = [(Column("result"), sections)]
        columns += columns_of(sections.values(), cls.shown)
        columns += columns_of([record.stage("search") for record in records], [SPEED_OF_SEARCH])
        columns += mean_columns([measure], [record.metrics for record in records])
        plots = [(cls.plotted, measure)] if cls.plotted else []
        return [table_of(cls.title, columns, [cls.note], plots)] if cls.shown and sections else []

    def notes(self) -> list[str]:
        """What a reader of the measures should know, a sentence each without its full stop."""
        return []

    def corrected(self, cost: Cost, passages: int) -> Cost:
        """The cost of a result of so many passages, with what the figures of its stages leave out."""
        return cost
