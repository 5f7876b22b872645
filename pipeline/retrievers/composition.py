"""What rankings that are made of other rankings report: fused and reranked ones, and changes of measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field, RootModel
from typing_extensions import override

from pipeline.core.display import figure
from pipeline.core.result_records import (
    Cost,
    Name,
    Record,
    ReportSection,
    ResultFigures,
    StageRow,
    in_part,
    mean_columns,
)
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of, with_interval
from pipeline.retrievers.costs import VectorsCost, add_times, cost_of
from pipeline.retrievers.truncation import Truncation


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
    fragile: bool = False

    def cell(self) -> Cell:
        """The difference, and its interval on a second line."""
        return with_interval(self.difference, self.ci_low, self.ci_high, self.fragile, "+.4f")


class FirstStage(ReportSection):
    """What a ranking was before it was reranked: the mean of each measure, and what became of it."""

    key = "first_stage"

    metrics: dict[str, float]
    change: dict[str, PairedChange] = Field({})


class AtDepth(Record):
    """The mean of each measure if so many passages of each query are reranked."""

    depth: int
    metrics: dict[str, float]


class Reranking(ReportSection):
    """What a reranker could bring, what it brings by depth, and what it takes."""

    key = "reranking"
    heading = "Made of other rankings"

    depth: int  # passages of each query that are scored
    ceiling: dict[str, float]  # the mean of each measure if these were ordered by their judgments
    by_depth: tuple[AtDepth, ...]  # measures at lesser depths, ascending, and at `depth`
    pairs: int | None = None  # pairs of a query and a passage that the ranking needs
    pairs_per_second: float | None = None  # none where no pair was left to score; so is `seconds_per_query`
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
        rate = 1 / self.seconds_per_query if self.seconds_per_query else None
        return cost._replace(queries_per_second=add_times([cost.queries_per_second, rate]))

    def _before_and_after(self, name: str, record: ResultFigures, first: FirstStage) -> Table:
        """A measure a row: its mean before and after reranking, the difference, and the ceiling."""
        measures = list(record.metrics)
        changes = [first.change.get(measure) for measure in measures]
        columns: list[FilledColumn] = [
            (Column("measure"), measures),
            (Column("first stage", "right"), map(first.metrics.get, measures)),
            (Column("reranked", "right"), map(record.metrics.get, measures)),
            (Column("difference", "right"), [change.cell() if change else None for change in changes]),
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
        columns = [depths, *mean_columns(record.metrics, means)]
        return table_of(f"{name}: measures by depth of reranking", columns, notes)


class FusionFacts(ReportSection):
    """How rankings were joined."""

    key = "fusion"

    method: str
    normalize: str | None = None
    weights: tuple[float, ...] = ()

    def sentences(self) -> list[str]:
        """The method and the weights of a fusion, a sentence each."""
        raw = self.normalize in (None, "none")
        method = self.method if raw else f"{self.method}, scores normalized by {self.normalize}"
        weights = f"; weights {', '.join(f'{weight:g}' for weight in self.weights)}" if self.weights else ""
        return [f"Joined by {method}{weights}."]


class FusedRanking(Record):
    """One of the retrievers that were joined: its name, the means of measures, its stages, what it cuts."""

    name: Name
    metrics: dict[str, float]
    stages: tuple[StageRow, ...] = ()
    truncation: Truncation | None = None
    vectors: VectorsCost | None = None

    def cost(self, passages: int) -> Cost:
        """What it costs, its reranker included."""
        cost, stages = cost_of(self.stages, passages, self.vectors), {row.stage: row for row in self.stages}
        if reranked := stages.get("rerank"):
            rate, pairs, queries = reranked.items_per_second, reranked.items, stages["queries"].items
            per_second = rate * queries / pairs if rate and pairs and queries else None
            cost = cost._replace(queries_per_second=add_times([cost.queries_per_second, per_second]))
        return cost


class FusedRankings(ReportSection, RootModel[tuple[FusedRanking, ...]]):
    """The retrievers that were joined; in JSON a list."""

    key = "of"
    heading = "Made of other rankings"

    @property
    def parts(self) -> tuple[FusedRanking, ...]:
        """One for each retriever, in the config's order."""
        return self.root

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """Of each result a part of the fusion a row, with every measure, and the joined ranking last."""
        tables, first_stages, fusions = [], FirstStage.of_each(results), FusionFacts.of_each(results)
        for name, fused in cls.of_each(results).items():
            record, reranked, fusion = results[name], first_stages.get(name), fusions.get(name)
            labels = [f"{n}: {part.name}" for n, part in enumerate(fused.parts, start=1)]
            joined = reranked.metrics if reranked else record.metrics
            means = [*(part.metrics for part in fused.parts), joined]
            columns = [(Column("ranking"), [*labels, "joined"]), *mean_columns(record.metrics, means)]
            heading = f"{name}: the rankings that were joined"
            tables.append(table_of(heading, columns, fusion.sentences() if fusion else []))
        return tables

    @override
    def notes(self) -> list[str]:
        cuts = {part.name: part.truncation.notes() for part in self.parts if part.truncation}
        return [f"{name}: {note}" for name, notes in cuts.items() for note in notes]

    @override
    def corrected(self, cost: Cost, passages: int) -> Cost:
        parts = [part.cost(passages) for part in self.parts]

        def total(figures: Iterable[float | None]) -> float | None:
            known = [figure for figure in figures if figure is not None]
            return sum(known) if len(known) == len(parts) else None

        size = total(each.index_bytes for each in parts)
        seconds = [each.seconds for each in (*parts, cost) if each.seconds is not None]
        return Cost(
            add_times([each.passages_per_second for each in parts]),
            add_times([each.queries_per_second for each in parts]),
            None if size is None else int(size),
            total(each.bytes_per_passage for each in parts),
            sum(seconds) if seconds else None,
        )

    @property
    def stages_of_parts(self) -> tuple[StageRow, ...]:
        """Those of each part, each with the part's number before its name."""
        return tuple(
            row.model_copy(update={"stage": in_part(number, row.stage)})
            for number, part in enumerate(self.parts, start=1)
            for row in part.stages
        )
