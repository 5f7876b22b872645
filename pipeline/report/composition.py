"""Results of retrievers made of others: what a reranker brings and takes, and how rankings were joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.core.display import decimal, p, rate, rounded, signed, signed_interval
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.results.records import Metrics
from pipeline.retrievers.fused import FusionFacts, Parts
from pipeline.retrievers.reranked import FirstStage, PairedChange, Reranking


def composition_tables(record: Metrics) -> list[Table]:
    """Before and after reranking, by depth, and the parts of a fusion; empty for other results."""
    tables = []
    first, reranking = record.section(FirstStage), record.section(Reranking)
    if reranking and first:
        tables += [_before_and_after(record, first, reranking), _by_depth(record, first, reranking)]
    if parts := record.section(Parts):
        tables.append(_parts(record, parts, first))
    return tables


def _before_and_after(record: Metrics, stage: FirstStage, reranking: Reranking) -> Table:
    """A measure a row: its mean before and after reranking, the difference, and the ceiling."""
    first, ceiling, change = stage.metrics, reranking.ceiling, stage.change
    measures = list(record.metrics)
    columns: list[FilledColumn] = [
        (Column("measure"), measures),
        (Column("first stage", "right"), [_mean(first, name) for name in measures]),
        (Column("reranked", "right"), [_mean(record.metrics, name) for name in measures]),
        (Column("difference", "right"), [_difference(change.get(name)) for name in measures]),
        (Column("p, Holm", "right"), [_p(change.get(name)) for name in measures]),
        (Column("ceiling", "right"), [_mean(ceiling, name) for name in measures]),
    ]
    depth = reranking.depth
    notes = [
        f"The first stage is the ranking that was reranked. The ceiling is what a reranker would reach that "
        f"ordered the best {depth:,} by their judgments.",
        "p is of the paired t-test over queries, by Holm's correction for all measures here.",
    ]
    return table_of(f"{record.name}: before and after reranking", columns, notes)


def _by_depth(record: Metrics, first: FirstStage, reranking: Reranking) -> Table:
    """A depth a row: every measure, if so many passages of each query are reranked."""
    rows = [(0, first.metrics), *((at.depth, at.metrics) for at in reranking.by_depth)]
    columns: list[FilledColumn] = [
        (Column("depth", "right"), [Cell(f"{depth:,}", depth) for depth, _ in rows])
    ]
    for name in record.metrics:
        columns.append((Column(name, "right"), [_mean(means, name) for _, means in rows]))
    return table_of(f"{record.name}: measures by depth of reranking", columns, _speed(reranking))


def _speed(found: Reranking) -> list[str]:
    """What reranking takes, as a note."""
    if found.pairs_per_second is None or found.seconds_per_query is None:
        return []
    return [
        f"{rate(found.pairs_per_second)} pairs scored per second, "
        f"{decimal(found.seconds_per_query, 3)} seconds a query."
    ]


def _parts(record: Metrics, parts: Parts, first: FirstStage | None) -> Table:
    """A part of a fusion a row, with every measure, and the joined ranking last."""
    rows = [(f"{number}: {part.name}", part.metrics) for number, part in enumerate(parts.parts, start=1)]
    rows.append(("joined", first.metrics if first else record.metrics))
    columns: list[FilledColumn] = [(Column("ranking"), [name for name, _ in rows])]
    for name in record.metrics:
        columns.append((Column(name, "right"), [_mean(means, name) for _, means in rows]))
    fusion = record.section(FusionFacts)
    notes = weight_sentences(fusion) if fusion else []
    return table_of(f"{record.name}: the rankings that were joined", columns, notes)


def weight_sentences(fusion: FusionFacts) -> list[str]:
    """The method and the weights of a fusion, a sentence each."""
    raw = fusion.normalize in (None, "none")
    method = fusion.method if raw else f"{fusion.method}, scores normalized by {fusion.normalize}"
    if fusion.tuned is None:
        return [f"Joined by {method}; weights {_listed(fusion.weights or ())}."]
    folds = fusion.tuned.folds
    chosen = "; ".join(f"{_listed(fold.weights)} for {fold.queries} queries" for fold in folds)
    return [
        f"Joined by {method}.",
        f"Weights tuned for {fusion.tuned.measure} by cross-validation in {len(folds)} folds: every query is "
        f"scored by weights that have not seen it. They are {chosen}.",
    ]


def _listed(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights)


def _mean(means: dict[str, Any], name: str) -> Cell:
    return Cell(rounded(means.get(name)), means.get(name))


def _difference(change: PairedChange | None) -> Cell:
    if change is None:
        return Cell("", None)
    text = signed(change.difference)
    if change.ci_low is not None and change.ci_high is not None:
        text += f"\n{signed_interval(change.ci_low, change.ci_high)}"
    return Cell(text, change.difference)


def _p(change: PairedChange | None) -> Cell:
    return Cell("", None) if change is None else Cell(p(change.p_holm), change.p_holm)
