"""The contents of `metrics.json` and `manifest.json` as frozen records.

Keys that may be absent, in results of earlier versions or because nothing was measured, have a default. Keys
that this version does not know are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.core.display import counted
from pipeline.metrics.depth import depth_note

if TYPE_CHECKING:
    from pipeline.runner import StageOutcome

Name = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    """Base of the records."""

    model_config = ConfigDict(frozen=True, extra="allow")


class EncodingUsage(Record):
    """What encoding texts took; `padded` counts tokens with their padding.

    The tokenizer works beside the model, in `tokenize_seconds`.
    """

    texts: int = 0
    tokens: int = 0
    padded: int = 0
    tokenize_seconds: float = 0.0
    padding_share: float = 0.0


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


class StageRow(Record):
    """One stage of a run; its figures are those of the run that computed the artifact.

    Attributes:
        key: Key of the artifact.
        reused: Whether the artifact was in the cache.
        seconds: Time of the whole stage; None where it was not needed and has no artifact.
        items: How many passages, queries or vectors the artifact holds.
        items_per_second: While the stage worked on them; None where nothing was left to do.
        peak_rss_mb: Most memory in use, in 10^6 bytes.
        bytes: Size of the artifact.
        made_at: When the artifact was begun, as UTC in ISO 8601.
        hardware: The machine that the artifact was made on.
        threads: How many threads libraries could use there.
        found: How many of its rows were copied, as their texts had been encoded before.
        encoding: What encoding texts, or scoring pairs, cost.
        pairs: Of a reranker, how many pairs were scored before and how many now.
    """

    stage: Name
    key: str = ""
    reused: bool = False
    seconds: float | None = None
    items: int | None = None
    items_per_second: float | None = None
    peak_rss_mb: float | None = None
    bytes: int | None = None
    made_at: str | None = None
    hardware: Hardware | None = None
    threads: int | None = None
    encoding: EncodingUsage | None = None
    found: int | None = None
    pairs: PairCounts | None = None

    @classmethod
    def of(cls, outcome: StageOutcome) -> StageRow:
        """The row of a stage that was run, or not needed; what a stage has no figure of is left unset."""
        made = outcome.artifact.manifest["made"] if outcome.artifact else {}
        copied = ("seconds", "items", "items_per_second", "peak_rss_mb", "hardware", "threads")
        figures = {name: made.get(name) for name in copied}
        figures["bytes"] = outcome.artifact.bytes if outcome.artifact else None
        figures["made_at"] = made.get("at")
        figures |= {name: made[name] for name in ("encoding", "found", "pairs") if name in made}
        return cls(stage=outcome.stage, key=outcome.key, reused=outcome.reused, **figures)

    @property
    def outcome(self) -> Literal["computed", "reused", "not needed"]:
        """What the run did with the artifact; one that is not needed is not in the cache either."""
        if self.reused:
            return "reused"
        return "not needed" if self.seconds is None else "computed"


class Latency(Record):
    """Milliseconds of single queries: the median and two percentiles."""

    median: float
    p95: float
    p99: float


class Sparsity(Record):
    """How sparse weights of words are.

    Attributes:
        query_words: Mean number of words of a query that have a weight.
        passage_words: The same of a passage.
        flops: Expected multiplications for the score of a query and a passage; see
            `pipeline.search.inverted_index.sparsity`.
    """

    query_words: float
    passage_words: float
    flops: float


class IndexCost(Record):
    """An approximate index, and what it takes; on a GPU, figures of threads and memory have no meaning.

    Attributes:
        factory: Its Faiss factory string.
        parameters: Of the search, such as nprobe.
        memory_mb: Size in memory, in 10^6 bytes.
        device: The GPU that it was searched on.
        queries_per_second: On all threads.
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
    def label(self) -> str:
        """Its factory string and parameters."""
        given = (f"{name}={value}" for name, value in self.parameters.items())
        return " ".join([self.factory, *given])


class VectorsCost(Record):
    """The form in which passages' vectors were searched, and the bytes that one takes in it."""

    dimension: int
    precision: str
    bytes: int

    @property
    def label(self) -> str:
        """The form in words."""
        return f"{self.dimension} x {self.precision}"


class Change(Record):
    """Mean of a measure minus its `exact` mean, that of exact search, with the difference's 95% interval.

    The ends of the interval are None where none is shown.
    """

    exact: float
    difference: float
    ci_low: float | None
    ci_high: float | None


class AgainstExact(Record):
    """What an approximate index loses: its share of the exact top hits by cutoff, and changes by measure."""

    overlap: dict[str, float]
    change: dict[str, Change]


class PairedChange(Record):
    """What became of a measure, query by query; see `pipeline.metrics.paired.changes`."""

    before: float
    difference: float
    ci_low: float | None
    ci_high: float | None
    p_ttest: float
    p_randomization: float
    p_holm: float
    wins: int
    ties: int
    losses: int


class FirstStage(Record):
    """What a ranking was before it was reranked: the mean of each measure, and what became of it."""

    metrics: dict[str, float]
    change: dict[str, PairedChange] = {}


class AtDepth(Record):
    """The mean of each measure if so many passages of each query are reranked."""

    depth: int
    metrics: dict[str, float]


class Reranking(Record):
    """What a reranker could bring, what it brings by depth, and what it takes.

    Attributes:
        depth: Passages of each query that are scored.
        ceiling: The mean of each measure if these were ordered by their judgments.
        by_depth: Measures at lesser depths, ascending, and at `depth`.
        pairs: Pairs of a query and a passage that the ranking needs.
        pairs_per_second: None where no pair was left to score; so is `seconds_per_query`.
    """

    depth: int
    ceiling: dict[str, float]
    by_depth: tuple[AtDepth, ...]
    pairs: int | None = None
    pairs_per_second: float | None = None
    seconds_per_query: float | None = None


class Fold(Record):
    """Some queries of a cross-validation, and the weights that were tuned without them."""

    queries: int
    weights: tuple[float, ...]


class TunedWeights(Record):
    """Weights tuned for a measure by cross-validation over queries."""

    measure: str
    folds: tuple[Fold, ...]


class FusionFacts(Record):
    """How rankings were joined; `weights` are those of all queries, `tuned` those of each fold."""

    method: str
    normalize: str | None = None
    weights: tuple[float, ...] | None = None
    tuned: TunedWeights | None = None


class PartOfFusion(Record):
    """One of the retrievers that were joined: its name, the mean of each measure, and its stages."""

    name: Name
    metrics: dict[str, float]
    stages: tuple[StageRow, ...] = ()


class ShortRankings(Record):
    """See `pipeline.metrics.depth.short_rankings`."""

    queries: int
    fewest: int
    cutoff: int

    @property
    def note(self) -> str:
        """What a reader should know, as a sentence without its full stop."""
        return depth_note(self.queries, self.fewest, self.cutoff)


class MissingTexts(Record):
    """Judged passages and queries that the collection lacks.

    Attributes:
        handling: The setting `data.missing_passages`.
        passages: How many judged passages the corpus lacks.
        judgments: How many judgments are of these.
        relevant: How many of those have at least grade 1.
        queries: How many judged queries have no text; they are not run.
    """

    handling: Literal["count", "drop", "refuse"]
    passages: int
    judgments: int
    relevant: int
    queries: int

    @property
    def notes(self) -> list[str]:
        """A sentence about the passages, and one about the queries, where there are any."""
        said = []
        if self.judgments:
            judged = f"{counted(self.judgments, 'judgment')} of {counted(self.passages, 'passage')}"
            how = "left out" if self.handling == "drop" else "counted as not retrieved"
            said.append(
                f"{judged} that the corpus lacks {'is' if self.judgments == 1 else 'are'} {how}, "
                f"{self.relevant:,} of them relevant (data.missing_passages: {self.handling})"
            )
        if self.queries:
            queries = counted(self.queries, "judged query", "judged queries")
            verb = "is" if self.queries == 1 else "are"
            said.append(f"{queries} without a text {verb} left out; trec_eval -c gives them a 0")
        return said


class Metrics(Record):
    """The content of `metrics.json`: means and their 95% intervals by measure, and the stages in order.

    Attributes:
        queries: How many were judged.
        passages: How many were searched.
        missing: What was judged and is not in the collection; None in results of earlier versions.
        short_rankings: Only where a ranking ends before the deepest cutoff of a measure.
        intervals: None where none is shown; see `pipeline.metrics.statistics.mean_interval`.
        vectors: Only of a retriever that keeps one vector of each passage.
        index: Only of an approximate index that was measured against exact search; so is `against_exact`.
        sparsity: Only of a sparse result.
        first_stage: Only of a reranked result; so is `reranking`.
        of: The parts of a fused result; `fusion` says how they were joined.
    """

    name: Name
    queries: int
    passages: Annotated[int, Field(gt=0)]
    missing: MissingTexts | None = None
    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float] | None] = {}
    stages: tuple[StageRow, ...]
    short_rankings: ShortRankings | None = None
    vectors: VectorsCost | None = None
    index: IndexCost | None = None
    against_exact: AgainstExact | None = None
    sparsity: Sparsity | None = None
    first_stage: FirstStage | None = None
    reranking: Reranking | None = None
    of: tuple[PartOfFusion, ...] = ()
    fusion: FusionFacts | None = None

    @property
    def all_stages(self) -> tuple[StageRow, ...]:
        """The stages of the parts, whose names begin with the part's number, among the result's own."""
        parts = tuple(
            row.model_copy(update={"stage": f"{number}/{row.stage}"})
            for number, part in enumerate(self.of, start=1)
            for row in part.stages
        )
        return (*self.stages[:1], *parts, *self.stages[1:])

    def stage(self, name: str) -> StageRow:
        """The row of a stage; one without figures where there is none."""
        return next((row for row in self.stages if row.stage == name), StageRow(stage=name))


class Used(Record):
    """The value that a run used for a setting of a model, and where it came from."""

    value: str | int
    source: str


class ModelUse(Record):
    """A model, and its settings by name; see `pipeline.models.model.Model.decided`."""

    name: str
    settings: dict[str, Used]


class Manifest(Record):
    """The content of `manifest.json`; `recipes` holds all that shaped each stage's artifact, and its key."""

    config: dict[str, Any] = {}
    recipes: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    models: tuple[ModelUse, ...] = ()
    versions: dict[str, str] = {}
    hardware: Hardware = Hardware()
    wall_seconds: float | None = None
