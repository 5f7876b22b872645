"""Records of JSON files, and the rows of a result's stages: what was done about each, and what it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from pipeline.core.display import counted
from pipeline.core.table import Table

Name = Annotated[str, Field(min_length=1)]


class Record(BaseModel):
    """Base of the records."""

    model_config = ConfigDict(frozen=True, extra="allow")


class SecondsAlone(Record):
    """Seconds from a request of one text to its answer: of so many `texts` the median and two percentiles."""

    median: float
    p95: float
    p99: float
    texts: int


class EncodingUsage(Record):
    """What encoding texts, or scoring pairs, took; `padded` counts tokens with their padding.

    The tokenizer works beside the model, in `tokenize_seconds`.

    Attributes:
        requests: Of a served model: requests that were sent, those sent again included.
        retries: Requests that were sent again.
        concurrency: Requests that could be under way at once.
        price: Of the tokens; None if no price was given, or the server did not count tokens.
        seconds_alone: Of queries that were asked for alone.
    """

    texts: int = 0
    tokens: int = 0
    padded: int = 0
    tokenize_seconds: float = 0.0
    padding_share: float = 0.0
    requests: int | None = None
    retries: int | None = None
    concurrency: int | None = None
    price: float | None = None
    seconds_alone: SecondsAlone | None = None


class Hardware(Record):
    """The machine that a benchmark ran on; see `pipeline.core.machine.hardware`."""

    cpu: str = ""
    cores: int | None = None
    gpus: tuple[str, ...] = ()
    memory_gb: float | None = None
    system: str = ""

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


class StageRow(Record):
    """One stage of a run; its figures are those of the run that computed the artifact.

    Attributes:
        key: Key of the artifact.
        reused: Whether the artifact was in the cache.
        preparing_seconds: What packing, converting and compiling took, once; `seconds` leaves it out.
        seconds: Time of the whole stage, without that; None where it was not needed and has no artifact.
        items: How many passages, queries or vectors the artifact holds.
        working_seconds: Of these, the seconds of the work itself: without loading a model or an index, and
            without writing files. The whole time for a stage that does not tell them apart.
        items_per_second: Items that were worked on, over `working_seconds`: all but those that an interrupted
            run had finished, or that were copied; None where nothing was left to do.
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
    preparing_seconds: float | None = None
    items: int | None = None
    working_seconds: float | None = None
    items_per_second: float | None = None
    peak_rss_mb: float | None = None
    bytes: int | None = None
    made_at: str | None = None
    hardware: Hardware | None = None
    threads: int | None = None
    encoding: EncodingUsage | None = None
    found: int | None = None
    pairs: PairCounts | None = None

    @property
    def outcome(self) -> Literal["computed", "reused", "not needed"]:
        """What the run did with the artifact; one that is not needed is not in the cache either."""
        if self.reused:
            return "reused"
        return "not needed" if self.seconds is None else "computed"


class Cost(NamedTuple):
    """What a result cost; None where it is not known.

    Attributes:
        passages_per_second: Encoded and then indexed, loading the model not counted; None where the run that
            finished the encoding found all of it done by interrupted ones.
        queries_per_second: Encoded and then searched, likewise.
        index_bytes: Size of the index on disk.
        seconds: Of all stages, in the runs that finished them: what it costs with an empty cache, unless a
            run was interrupted and resumed.
    """

    passages_per_second: float | None
    queries_per_second: float | None
    index_bytes: int | None
    seconds: float | None


class ShortRankings(Record):
    """How many queries have fewer hits than the deepest cutoff of the measures, and the fewest of one."""

    queries: int
    fewest: int
    cutoff: int


class TieRange(Record):
    """The mean of a measure over all queries, in the worst, the average and the best order of ties."""

    lowest: float
    expected: float
    highest: float


class Ties(Record):
    """Ties of a ranking: how many queries have tied documents, and the range of each measure's mean."""

    queries: int
    measures: dict[str, TieRange]

    @property
    def moved(self) -> dict[str, tuple[float, float, float]]:
        """The lowest, expected and highest mean of the measures in which four digits show a difference."""
        return {
            name: (each.lowest, each.expected, each.highest)
            for name, each in self.measures.items()
            if each.highest - each.lowest >= 0.00005
        }


class MissingTexts(Record):
    """Judged passages and queries that the collection lacks.

    Attributes:
        handling: The setting `data.missing_passages`.
        passages: How many judged passages the corpus lacks.
        judgments: How many judgments are of these.
        relevant: How many of those have at least grade 1.
        queries: How many judged queries have no text; they are not run.
    """

    handling: Literal["count", "drop"]
    passages: int
    judgments: int
    relevant: int
    queries: int


class SearchedSlice(Record):
    """The slice of a corpus that was searched; what `pipeline.data.pooling` says of it.

    Attributes:
        passages: Its size.
        of: That of the corpus.
        top: Where rankings chose the slice: how many passages of a query each of them chose.
        nearest: The one that the result's own ranking is nearest to, by name.
        shared: The share of that one's passages which are as high in the own one, mean over queries.
    """

    passages: int
    of: int
    top: int | None = None
    nearest: str = ""
    shared: float = 0.0

    @property
    def in_pool(self) -> bool:
        """Whether the result's ranking is one of those that chose the slice, but for rounding."""
        return self.shared >= IN_POOL

    @property
    def note(self) -> str:
        """What it does to measures, as a sentence without its full stop."""
        said = f"slice: {self.passages:,} of {self.of:,} passages"
        if self.top is None:
            return f"{said}, judged or drawn at random: scores are too high"
        if self.in_pool:
            return (
                f"{said}, chosen by this ranking too ({self.nearest}): measures to rank {self.top:,} are "
                "those of all passages, deeper ones are too high"
            )
        return (
            f"{said}, not chosen by this ranking (the nearest one that was used, {self.nearest}, has "
            f"{self.shared:.0%} of its top {self.top:,}): passages it would rank high are missing, so its "
            "scores are usually too high"
        )


IN_POOL = 0.99


def scoring_notes(
    short: ShortRankings | None,
    ties: Ties | None,
    missing: MissingTexts | None = None,
    unjudged_queries: int = 0,
    searched: SearchedSlice | None = None,
) -> list[str]:
    """What a reader of measures should know of rankings and judgments, a sentence each without full stop."""
    notes = [searched.note] if searched else []
    if ties and ties.moved:
        queries = counted(ties.queries, "query has", "queries have")
        notes.append(
            f"{queries} documents with equal scores; any order: lowest to highest mean over their orders; "
            "expected: average over these"
        )
    if short:
        queries = counted(short.queries, "query", "queries")
        fewest = f"{short.fewest:,} at the fewest"
        notes.append(f"fewer than {short.cutoff:,} passages were found for {queries} ({fewest})")
    if missing and missing.judgments:
        judged = f"{counted(missing.judgments, 'judgment')} of {counted(missing.passages, 'passage')}"
        how = "left out" if missing.handling == "drop" else "counted as not retrieved"
        notes.append(
            f"{judged} that the corpus lacks {'is' if missing.judgments == 1 else 'are'} {how}, "
            f"{missing.relevant:,} of them relevant (data.missing_passages: {missing.handling})"
        )
    if missing and missing.queries:
        queries = counted(missing.queries, "judged query", "judged queries")
        verb = "is" if missing.queries == 1 else "are"
        notes.append(f"{queries} without a text {verb} left out; trec_eval -c gives them a 0")
    if unjudged_queries:
        queries = counted(unjudged_queries, "query", "queries")
        notes.append(f"{queries} without judgments {'is' if unjudged_queries == 1 else 'are'} not scored")
    return notes


S = TypeVar("S", bound="Section")


class Reported(Protocol):
    """A result, as its sections see it: the content of `metrics.json`."""

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

    def section(self, kind: type[S]) -> S | None:
        """What a kind of retriever reports; None where it does not."""
        ...


class Section(Record):
    """What a kind of retriever reports besides the measures: the value of one key of `metrics.json`.

    `pipeline.retrievers.sections` lists all of them.
    """

    key: ClassVar[str]
    heading: ClassVar[str] = ""
    """Of the part of a page that holds its tables."""
    in_comparisons: ClassVar[bool] = False
    """Whether the terminal shows its tables with a comparison, and not only a page."""

    @classmethod
    def tables(cls, results: Mapping[str, Reported], measure: str) -> list[Table]:
        """Tables of the results that have it, in place of which there may be others without it.

        Args:
            results: All that are shown together, by name.
            measure: What they are compared by.
        """
        return []

    def notes(self) -> list[str]:
        """What a reader of the measures should know, a sentence each."""
        return []

    def stage_notes(self, stages: Mapping[str, StageRow], passages: int) -> list[str]:
        """What a reader of the table of stages should know; `stages` by name, and how many passages."""
        return []

    def corrected(self, cost: Cost, passages: int) -> Cost:
        """The cost of a result of so many passages, with what the figures of its stages leave out."""
        return cost

    @property
    def stages_of_parts(self) -> tuple[StageRow, ...]:
        """The stages of retrievers that the result was made of, each named `PART/STAGE`."""
        return ()
