"""The page of a suite: the tables of its comparison, and plots of the differences on each collection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.comparison.pairs import Pair
from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import each_collection, leaderboard, pair_table
from pipeline.core.display import counted, rounded, signed, signed_interval
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.report.page.plots import ForestRow, Plot, draw_forest

MOST_PLOTS = 12
"""Pairs with a plot; the tables have all."""


def suite_context(comparison: Comparison) -> dict[str, Any]:
    """What the template of a suite's page shows."""
    measure, results, pairs = comparison.measure, comparison.results, comparison.pairs
    numbers = {entry.name: number for number, entry in enumerate(results)}
    order = sorted(range(len(results)), key=lambda number: -results[number].mean)
    board = leaderboard(measure, results, comparison.suites[0].groups)
    names = [entry.name for entry in results]
    size = counted(len(comparison.collections), "collection")
    marks = [[numbers[pair.a], numbers[pair.b]] for pair in pairs]
    return {
        "title": " and ".join(names) if len(names) <= 2 else f"{len(names)} results by {measure}",
        "summary": _summary(comparison),
        "facts": [("suite of", size), ("queries", f"{results[0].queries:,}"), ("measure", measure)],
        "notes": [f"{note}." for note in comparison.notes],
        "board": table_of(
            board.title,
            [(column, [board.rows[i][n] for i in order]) for n, column in enumerate(board.columns)],
            board.notes,
        ),
        "board_marks": [[number] for number in order],
        "pairs": pair_table(measure, pairs, comparison.correction) if pairs else None,
        "pair_marks": marks,
        "each": each_collection(measure, pairs) if pairs else None,
        "measures": list(_measure_tables(comparison)),
        "result_marks": [[number] for number in range(len(results))],
        "plots": [_forest(measure, pair) for pair in pairs[:MOST_PLOTS]],
        "configs": _configs(comparison),
    }


def _summary(comparison: Comparison) -> str:
    """What the page says, in a sentence or two."""
    best = max(comparison.results, key=lambda entry: entry.mean)
    size = counted(len(comparison.collections), "collection")
    said = (
        f"{best.name} has the highest macro mean of {comparison.measure}, {rounded(best.mean)}, over {size}."
    )
    if len(comparison.results) == 1:
        return f"{best.name}: macro mean of {comparison.measure} over {size} {rounded(best.mean)}."
    shown = sum(pair.shown for pair in comparison.pairs)
    return f"{said} Of {counted(len(comparison.pairs), 'difference')}, {shown:,} are shown."


def _measure_tables(comparison: Comparison) -> Iterator[Table]:
    """For each result its means of every measure on every collection."""
    for suite, entry in zip(comparison.suites, comparison.results, strict=True):
        columns: list[FilledColumn] = [(Column("collection"), list(comparison.collections))]
        for label, sizes in (
            ("queries", [each.record.queries for each in suite.results.values()]),
            ("passages", [each.record.passages for each in suite.results.values()]),
        ):
            columns.append((Column(label, "right"), [Cell(f"{size:,}", size) for size in sizes]))
        for measure in comparison.measures:
            results = suite.results.values()
            means = [float(each.values[:, each.measures.index(measure)].mean()) for each in results]
            columns.append((Column(measure, "right"), [Cell(rounded(mean), mean) for mean in means]))
        yield table_of(entry.name, columns)


def _forest(measure: str, pair: Pair) -> Plot:
    """The difference on each collection and that of the macro mean, with their intervals."""
    rows: list[ForestRow] = [
        (each.collection, each.difference, each.ci_low, each.ci_high) for each in pair.collections
    ]
    rows.append(("macro mean", pair.difference, pair.ci_low, pair.ci_high))
    figures = "; ".join(
        f"{name} {signed(value)} {signed_interval(low, high)}".rstrip() for name, value, low, high in rows
    )
    title = f"{pair.a} - {pair.b}, {measure}: {figures}"
    caption = f"{pair.a} - {pair.b}: differences in {measure} with their 95% intervals, each by itself."
    return Plot(draw_forest(rows, f"{pair.a} {pair.b} {measure}", title), caption)


def _configs(comparison: Comparison) -> Sequence[tuple[str, str]]:
    """The config of each result's first collection, which differs from the others in its data alone."""
    return [
        (
            f"{entry.name}, {comparison.collections[0]}",
            json.dumps(next(iter(suite.results.values())).manifest.config, indent=2, ensure_ascii=False),
        )
        for suite, entry in zip(comparison.suites, comparison.results, strict=True)
    ]
