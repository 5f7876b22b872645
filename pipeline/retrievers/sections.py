"""What only some kinds of retrievers report: the records of their keys in `metrics.json`, and their tables.

They are apart from the kinds, so that reading and comparing results imports no model, index or search. To add
one, write its class here and name it in `SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter

from pydantic import Field, model_serializer
from typing_extensions import override

from pipeline.core.display import counted, figure
from pipeline.core.records import Facts
from pipeline.core.result_records import Cost, Name, Record, ResultFigures, Section, StageRow, in_part
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of, with_interval
from pipeline.retrievers.truncation import Truncation

SIZE = "bytes a passage"


def _columns(rows: Collection[object], *columns: tuple[str, str, str]) -> list[FilledColumn]:
    """Columns by title, attribute of each row, and form, which is "" for texts; a row may be None."""
    filled: list[FilledColumn] = []
    for title, attribute, form in columns:
        column = Column(title, "right", form=form) if form else Column(title)
        filled.append((column, [None if row is None else attrgetter(attribute)(row) for row in rows]))
    return filled


def _means(measures: Collection[str], rankings: Collection[Mapping[str, float]]) -> list[FilledColumn]:
    """A column for each measure: its mean of each ranking."""
    return [(Column(name, "right"), [means.get(name) for means in rankings]) for name in measures]


def _speed_and_quality(records: Sequence[ResultFigures], measure: str) -> list[FilledColumn]:
    """The last columns of tables that compare what a setting costs with what it brings."""
    searches = [record.stage("search") for record in records]
    speeds = _columns(searches, ("queries/s", "items_per_second", "rate"))
    return [*speeds, *_means([measure], [record.metrics for record in records])]


class VectorsCost(Section):
    """The form in which passages' vectors were searched, and the bytes that one takes in it."""

    key = "vectors"
    heading = "Quality against size"

    dimension: int
    precision: str
    bytes: int

    @property
    def form(self) -> str:
        """The number and the precision of its components."""
        return f"{self.dimension} x {self.precision}"

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """A result a row: its form, speed and quality; none where all forms have one size."""
        forms = cls.of_each(results)
        if len({form.bytes for form in forms.values()}) < 2:
            return []
        columns: list[FilledColumn] = [
            (Column("result"), forms),
            *_columns(forms.values(), ("form", "form", ""), (SIZE, "bytes", ",")),
            *_speed_and_quality([results[name] for name in forms], measure),
        ]
        note = "Bytes are those of one vector in this form; queries per second are those of the search alone."
        return [table_of("forms of vectors", columns, [note], [(SIZE, measure)])]


class Chunking(Section):
    """How passages were cut, and how they were ranked by their chunks; see docs/long-documents.md.

    Attributes:
        chunks: How many were made of all passages.
        cut: How many passages were cut in two or more.
    """

    key = "chunks"
    heading = "Quality against chunk size"
    in_comparisons = True

    tokens: int
    overlap: int
    boundary: str
    aggregate: str
    chunks: int
    cut: int

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """A result a row: the size of chunks, what they cost, and what they bring; of whole passages too."""
        records = list(results.values())
        cuts = [record.section(cls) for record in records]
        counts = [cut.chunks if cut else record.passages for cut, record in zip(cuts, records, strict=True)]
        sizes = [record.stage("index").bytes or record.stage("passages").bytes for record in records]
        tokens = [Cell(f"{cut.tokens:,}", cut.tokens) if cut else Cell("whole", None) for cut in cuts]
        columns: list[FilledColumn] = [
            (Column("result"), list(results)),
            (Column("tokens", "right"), tokens),
            *_columns(cuts, ("overlap", "overlap", ",")),
            (Column("between"), [f"{cut.boundary}s" if cut else "" for cut in cuts]),
            *_columns(cuts, ("ranked by", "aggregate", "")),
            (Column("chunks", "right", form=","), counts),
            (Column("size", "right", form="bytes"), sizes),
            *_columns([each.stage("passages") for each in records], ("s to encode", "seconds", ",.1f")),
            *_speed_and_quality(records, measure),
        ]
        note = (
            "A size is that of what is searched. Texts that were encoded before are copied, which takes no "
            "time. Queries per second are those of the search alone."
        )
        return [table_of("chunks of passages", columns, [note], [("tokens", measure)])]

    @override
    def corrected(self, cost: Cost, passages: int) -> Cost:
        if cost.passages_per_second is None:
            return cost
        # the stages count chunks: passages per second are fewer
        return cost._replace(passages_per_second=cost.passages_per_second * (passages / self.chunks))

    def notes(self) -> list[str]:
        """How passages were cut and ranked."""
        ranked = {"max": "by its best one", "mean": "by their mean", "first": "by its first one"}
        return [
            f"{counted(self.cut, 'passage')} cut at {self.tokens:,} tokens: {counted(self.chunks, 'chunk')} "
            f"searched, and a passage is ranked {ranked[self.aggregate]}."
        ]


class Change(Record):
    """Mean of a measure minus its `exact` mean, that of exact search, with the difference's 95% interval.

    The ends of the interval are None where none is shown.
    """

    exact: float
    difference: float
    ci_low: float | None
    ci_high: float | None


class AgainstExact(Section):
    """What an approximate index loses: its share of the exact top hits by cutoff, and changes by measure."""

    key = "against_exact"

    overlap: dict[str, float]
    change: dict[str, Change]


class Latency(Record):
    """Milliseconds of single queries: the median and two percentiles."""

    median: float
    p95: float
    p99: float


SPEED = "queries/s, all threads"
_COSTS = (
    ("index", "label", ""),
    (SPEED, "queries_per_second", "rate"),
    ("queries/s, one thread", "queries_per_second_one_thread", "rate"),
    ("ms a query, median", "latency_ms.median", ".3g"),
    ("ms a query, 95%", "latency_ms.p95", ".3g"),
    ("ms a query, 99%", "latency_ms.p99", ".3g"),
    ("seconds to build", "build_seconds", ",.2f"),
    ("MB on disk", "disk_mb", ",.1f"),
    ("MB in memory", "memory_mb", ",.1f"),
)
"""Columns of `IndexCost`, as of `_columns`. A GPU lacks some of the values."""


class IndexCost(Section):
    """An approximate index, and what it takes; on a GPU, figures of threads and memory have no meaning.

    Attributes:
        parameters: Of the search, such as nprobe.
        memory_mb: Size in memory, in 10^6 bytes.
        queries_per_second: On all threads.
    """

    key = "index"
    heading = "Against exact search"

    factory: str
    parameters: dict[str, int | float]
    build_seconds: float
    disk_bytes: int
    memory_mb: float | None = None
    queries_per_second: float
    queries_per_second_one_thread: float | None = None
    latency_ms: Latency

    @property
    def label(self) -> str:
        """The factory string and the parameters of the search."""
        return " ".join([self.factory, *(f"{name}={value}" for name, value in self.parameters.items())])

    @property
    def disk_mb(self) -> float:
        """Size on disk, in 10^6 bytes."""
        return self.disk_bytes / 1e6

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """What each index loses against exact search, and what it costs, a result a row."""
        losses = AgainstExact.of_each(results)
        indexes = {name: index for name, index in cls.of_each(results).items() if name in losses}
        exacts = [losses[name] for name in indexes]
        label, *costs = _columns(indexes.values(), *_COSTS)
        columns: list[FilledColumn] = [(Column("result"), indexes), label]
        cutoffs = sorted({cutoff for exact in exacts for cutoff in exact.overlap}, key=int)
        columns += [
            (Column(f"overlap@{k}", "right"), [exact.overlap.get(k) for exact in exacts]) for k in cutoffs
        ]
        for name in dict.fromkeys(name for exact in exacts for name in exact.change):
            changes = [_change(exact.change.get(name)) for exact in exacts]
            columns.append((Column(f"change of {name}", "right"), changes))
        columns += costs
        notes = [
            "Overlap is the share of the top hits of exact search that the index finds. A change is the mean "
            "minus that of exact search, with its 95% interval.",
            "Speed is that of the search alone, in the run that computed it.",
        ]
        lost = [f"overlap@{k}" for k in cutoffs[:1]]
        plots = [(SPEED, name) for name in (*lost, f"change of {measure}")]
        return [table_of("against exact search", columns, notes, plots)] if indexes else []


def _change(change: Change | PairedChange | None) -> Cell:
    """A difference, and its interval on a second line."""
    if change is None:
        return Cell("", None)
    return with_interval(change.difference, change.ci_low, change.ci_high, "+.4f")


class Parity(Section):
    """A served model beside the one that it is said to be, on a sample of the collection.

    Attributes:
        backend: What ran the second one, of that `name`.
        passages: How many of them, and of `queries`, were encoded by both.
        lowest_cosine: Of the two vectors of a text; `mean_cosine` is the mean.
    """

    key = "parity"

    backend: str
    name: str
    passages: int
    queries: int
    lowest_cosine: float
    mean_cosine: float

    def notes(self) -> list[str]:
        """How far the server's vectors are from those of the model run here."""
        texts = f"{counted(self.passages, 'passage')} and {counted(self.queries, 'query', 'queries')}"
        return [
            f"Vectors of the server and of {self.name}, run here by {self.backend}, of {texts}: the cosine "
            f"is {self.lowest_cosine:.6f} at the lowest and {self.mean_cosine:.6f} in the mean."
        ]


class Sparsity(Section):
    """How sparse word weights are.

    Attributes:
        query_words: Mean number of words of a query that have a weight.
        flops: Expected multiplications for the score of a query and a passage; see
            `pipeline.search.inverted_index.sparsity`.
    """

    key = "sparsity"

    query_words: float
    passage_words: float
    flops: float

    def stage_notes(self, stages: Mapping[str, StageRow], passages: int) -> list[str]:
        """How many words have a weight, and what that makes a search compute and an index hold."""
        sizes = [stages[name].bytes or 0 for name in ("index", "passages") if name in stages]
        size_of_one = next(filter(None, sizes), 0) / max(passages, 1)
        return [
            f"words with a weight: {self.query_words:.4g} a query, {self.passage_words:.4g} a passage; "
            f"{self.flops:.4g} multiplications a pair (FLOPS); {size_of_one:,.0f} bytes a passage"
        ]


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


class FirstStage(Section):
    """What a ranking was before it was reranked: the mean of each measure, and what became of it."""

    key = "first_stage"

    metrics: dict[str, float]
    change: dict[str, PairedChange] = Field({})


class AtDepth(Record):
    """The mean of each measure if so many passages of each query are reranked."""

    depth: int
    metrics: dict[str, float]


class Reranking(Section):
    """What a reranker could bring, what it brings by depth, and what it takes.

    Attributes:
        depth: Passages of each query that are scored.
        ceiling: The mean of each measure if these were ordered by their judgments.
        by_depth: Measures at lesser depths, ascending, and at `depth`.
        pairs: Pairs of a query and a passage that the ranking needs.
        pairs_per_second: None where no pair was left to score; so is `seconds_per_query`.
    """

    key = "reranking"
    heading = "Made of other rankings"

    depth: int
    ceiling: dict[str, float]
    by_depth: tuple[AtDepth, ...]
    pairs: int | None = None
    pairs_per_second: float | None = None
    seconds_per_query: float | None = None

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """Of each result the measures before and after reranking, and by depth."""
        tables, first_stages = [], FirstStage.of_each(results)
        for name, reranking in cls.of_each(results).items():
            if name in first_stages:
                tables.append(reranking._before_and_after(name, results[name], first_stages[name]))
                tables.append(reranking._by_depth(name, results[name], first_stages[name]))
        return tables

    @override
    def corrected(self, cost: Cost, passages: int) -> Cost:
        # a query is reranked after its search; its speed is unknown where no pair was left to score
        if cost.queries_per_second is None or self.seconds_per_query is None:
            return cost._replace(queries_per_second=None)
        return cost._replace(queries_per_second=1 / (1 / cost.queries_per_second + self.seconds_per_query))

    def _before_and_after(self, name: str, record: ResultFigures, first: FirstStage) -> Table:
        """A measure a row: its mean before and after reranking, the difference, and the ceiling."""
        measures = list(record.metrics)
        changes = [first.change.get(measure) for measure in measures]
        columns: list[FilledColumn] = [
            (Column("measure"), measures),
            (Column("first stage", "right"), map(first.metrics.get, measures)),
            (Column("reranked", "right"), map(record.metrics.get, measures)),
            (Column("difference", "right"), map(_change, changes)),
            (Column("p, Holm", "right", form="p"), [change.p_holm if change else None for change in changes]),
            (Column("ceiling", "right"), map(self.ceiling.get, measures)),
        ]
        notes = [
            "The first stage is the ranking that was reranked. The ceiling is what a reranker would reach "
            f"that ordered the best {self.depth:,} by their judgments.",
            "p is of the paired t-test over queries, by Holm's correction for all measures here.",
        ]
        return table_of(f"{name}: before and after reranking", columns, notes)

    def _by_depth(self, name: str, record: ResultFigures, first: FirstStage) -> Table:
        """A depth a row: every measure, if so many passages of each query are reranked."""
        means = [first.metrics, *(at.metrics for at in self.by_depth)]
        depths = (Column("depth", "right", form=","), [0, *(at.depth for at in self.by_depth)])
        notes = []
        if self.pairs_per_second is not None and self.seconds_per_query is not None:
            speed, seconds = figure(self.pairs_per_second, "rate"), figure(self.seconds_per_query, ",.3f")
            notes = [f"{speed} pairs scored per second, {seconds} seconds a query."]
        columns = [depths, *_means(record.metrics, means)]
        return table_of(f"{name}: measures by depth of reranking", columns, notes)


class Fold(Record):
    """Some queries of a cross-validation, and the weights that were tuned without them."""

    queries: int
    weights: tuple[float, ...]


class CrossValidation(Record):
    """Weights tuned for a measure by cross-validation over queries."""

    measure: str
    folds: tuple[Fold, ...]


class FusionFacts(Section):
    """How rankings were joined; `weights` are those of all queries, `tuned` those of each fold."""

    key = "fusion"

    method: str
    normalize: str | None = None
    weights: tuple[float, ...] | None = None
    tuned: CrossValidation | None = None

    def sentences(self) -> list[str]:
        """The method and the weights of a fusion, a sentence each."""
        raw = self.normalize in (None, "none")
        method = self.method if raw else f"{self.method}, scores normalized by {self.normalize}"
        if self.tuned is None:
            return [f"Joined by {method}; weights {_listed(self.weights or ())}."]
        folds = self.tuned.folds
        chosen = "; ".join(f"{_listed(fold.weights)} for {fold.queries} queries" for fold in folds)
        return [
            f"Joined by {method}.",
            f"Weights tuned for {self.tuned.measure} by cross-validation in {len(folds)} folds: every query "
            f"is scored by weights that have not seen it. They are {chosen}.",
        ]


def _listed(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)


class FusedRanking(Record):
    """One of the retrievers that were joined: its name, the means of measures, its stages, what it cuts."""

    name: Name
    metrics: dict[str, float]
    stages: tuple[StageRow, ...] = ()
    truncation: Truncation | None = None


class FusedRankings(Section):
    """The retrievers that were joined; in JSON a list."""

    key = "of"
    heading = "Made of other rankings"

    parts: tuple[FusedRanking, ...]

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """Of each result a part of the fusion a row, with every measure, and the joined ranking last."""
        tables = []
        for name, fused in cls.of_each(results).items():
            record = results[name]
            reranked, fusion = record.section(FirstStage), record.section(FusionFacts)
            labels = [f"{n}: {part.name}" for n, part in enumerate(fused.parts, start=1)]
            joined = reranked.metrics if reranked else record.metrics
            means = [*(part.metrics for part in fused.parts), joined]
            columns = [(Column("ranking"), [*labels, "joined"]), *_means(record.metrics, means)]
            heading = f"{name}: the rankings that were joined"
            tables.append(table_of(heading, columns, fusion.sentences() if fusion else []))
        return tables

    @override
    def cautions(self) -> list[str]:
        cuts = {part.name: part.truncation.cautions() for part in self.parts if part.truncation}
        return [f"{name}: {note}" for name, notes in cuts.items() for note in notes]

    @model_serializer
    def _unwrap(self) -> list[Facts]:
        return [part.model_dump(mode="json", exclude_unset=True) for part in self.parts]

    @override
    def corrected(self, cost: Cost, passages: int) -> Cost:
        seconds = [row.seconds for part in self.parts for row in part.stages if row.seconds is not None]
        return cost._replace(seconds=sum(seconds, cost.seconds or 0.0)) if seconds else cost

    @property
    def stages_of_parts(self) -> tuple[StageRow, ...]:
        """Those of each part, each with the part's number before its name."""
        return tuple(
            row.model_copy(update={"stage": in_part(number, row.stage)})
            for number, part in enumerate(self.parts, start=1)
            for row in part.stages
        )


SECTIONS: dict[str, type[Section]] = {
    kind.key: kind
    for kind in (
        VectorsCost, Chunking, IndexCost, AgainstExact, Parity, Sparsity, FirstStage, Reranking,
        FusedRankings, FusionFacts, Truncation,
    )
}  # fmt: skip
"""By key, in the order in which their tables are shown."""
