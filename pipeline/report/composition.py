"""Results of retrievers made of others: what a reranker brings and takes, and how rankings were joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.core.display import decimal, p, rate, rounded, signed, signed_interval
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.results.kind_records import FusionFacts, PairedChange
from pipeline.results.records import Metrics


def composition_tables(record: Metrics) -> list[Table]:
    """Before and after reranking, by depth, and the parts of a fusion; empty for other results."""
    tables = []
    if record.reranking and record.first_stage:
        tables += [_before_and_after(record), _by_depth(record)]
    if record.of:
        tables.append(_parts(record))
    return tables


def _before_and_after(record: Metrics) -> Table:
    """A measure a row: its mean before and after reranking, the difference, and the ceiling."""
    assert record.reranking is not None
    assert record.first_stage is not None
    first, ceiling, change = record.first_stage.metrics, record.reranking.ceiling, record.first_stage.change
    measures = list(record.metrics)
    columns: list[FilledColumn] = [
        (Column("measure"), measures),
        (Column("first stage", "right"), [_mean(first, name) for name in measures]),
        (Column("reranked", "right"), [_mean(record.metrics, name) for name in measures]),
        (Column("difference", "right"), [_difference(change.get(name)) for name in measures]),
        (Column("p, Holm", "right"), [_p(change.get(name)) for name in measures]),
        (Column("ceiling", "right"), [_mean(ceiling, name) for name in measures]),
    ]
    depth = record.reranking.depth
    notes = [
        f"The first stage is the ranking that was reranked. The ceiling is what a reranker would reach that "
        f"ordered the best {depth:,} by their judgments.",
        "p is of the paired t-test over queries, by Holm's correction for all measures here.",
    ]
    return table_of(f"{record.name}: before and after reranking", columns, notes)


def _by_depth(record: Metrics) -> Table:
    """A depth a row: every measure, if so many passages of each query are reranked."""
    assert record.reranking is not None
    assert record.first_stage is not None
    rows = [(0, record.first_stage.metrics), *((at.depth, at.metrics) for at in record.reranking.by_depth)]
    columns: list[FilledColumn] = [
        (Column("depth", "right"), [Cell(f"{depth:,}", depth) for depth, _ in rows])
    ]
    for name in record.metrics:
        columns.append((Column(name, "right"), [_mean(means, name) for _, means in rows]))
    return table_of(f"{record.name}: measures by depth of reranking", columns, _speed(record))


def _speed(record: Metrics) -> list[str]:
    """What reranking takes, as a note."""
    found = record.reranking
    if found is None or found.pairs_per_second is None or found.seconds_per_query is None:
        return []
    return [
        f"{rate(found.pairs_per_second)} pairs scored per second, "
        f"{decimal(found.seconds_per_query, 3)} seconds a query."
    ]


def _parts(record: Metrics) -> Table:
    """A part of a fusion a row, with every measure, and the joined ranking last."""
    first = record.first_stage
    rows = [(f"{number}: {part.name}", part.metrics) for number, part in enumerate(record.of, start=1)]
    rows.append(("joined", first.metrics if first else record.metrics))
    columns: list[FilledColumn] = [(Column("ranking"), [name for name, _ in rows])]
    for name in record.metrics:
        columns.append((Column(name, "right"), [_mean(means, name) for _, means in rows]))
    notes = weight_sentences(record.fusion) if record.fusion else []
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
