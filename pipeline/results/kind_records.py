"""What a result says besides its measures, by the kind of retriever: indexes, sparsity, reranking, fusion."""

from __future__ import annotations

from pydantic import Field

from pipeline.core.display import counted
from pipeline.results.stage_rows import Name, Record, StageRow


class Latency(Record):
    """Milliseconds of single queries: the median and two percentiles."""

    median: float
    p95: float
    p99: float


class Sparsity(Record):
    """How sparse word weights are.

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


class Chunking(Record):
    """How passages were cut, and how they were ranked by their chunks; see docs/long-documents.md.

    Attributes:
        chunks: How many were made of all passages.
        cut: How many passages were cut in two or more.
    """

    tokens: int
    overlap: int
    boundary: str
    aggregate: str
    chunks: int
    cut: int

    @property
    def note(self) -> str:
        """What a reader should know, as a sentence without its full stop."""
        ranked = {"max": "by its best one", "mean": "by their mean", "first": "by its first one"}
        return (
            f"{counted(self.cut, 'passage')} cut at {self.tokens:,} tokens: {counted(self.chunks, 'chunk')} "
            f"searched, and a passage is ranked {ranked[self.aggregate]}"
        )


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


class Parity(Record):
    """A served model beside the one that it is said to be, on a sample of the collection.

    Attributes:
        backend: What ran the second one, of that `name`.
        passages: How many of them, and of `queries`, were encoded by both.
        lowest_cosine: Of the two vectors of a text; `mean_cosine` is the mean.
        overlap: The share of the second one's top hits that the served one finds, by cutoff.
        change: By measure; `exact` is the mean of the second one.
    """

    backend: str
    name: str
    passages: int
    queries: int
    lowest_cosine: float
    mean_cosine: float
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
    change: dict[str, PairedChange] = Field({})


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
