"""The table of measures of one evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.core.display import FRAGILE, interval
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.metrics.statistics import SHOWN_FROM

NO_INTERVAL = f"No interval: fewer than {SHOWN_FROM} queries."


def measure_table(
    title: str,
    means: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float] | None],
    fragile: Mapping[str, bool],
    judged: Mapping[str, float],
    published: Mapping[str, tuple[float, str]] | None = None,
    before: Mapping[str, float] | None = None,
) -> Table:
    """A measure a row, with the 95% interval of its mean where there is one, and its mark.

    `judged` has, for some measures, the share of the top k that is judged; it is shown where one is below 1.
    `published` has the published mean of some measures, and the verdict on it; `before` the mean of each
    before the ranking was reranked.
    """
    ends = [intervals.get(name) or (None, None) for name in means]
    marks = [fragile.get(name, False) for name in means]
    columns: list[FilledColumn] = [
        (Column("measure"), means),
        *([(Column("before reranking", "right", "never"), map(before.get, means))] if before else []),
        (Column("mean", "right", "never"), means.values()),
        (
            Column("95% interval", "right"),
            [Cell(interval(low, high, mark), low) for (low, high), mark in zip(ends, marks, strict=True)],
        ),
    ]
    notes = [NO_INTERVAL] if means and all(low is None for low, _ in ends) else []
    notes += [FRAGILE] if any(marks) else []
    if any(share < 1 for share in judged.values()):
        columns.append((Column("top k judged", "right", "never"), map(judged.get, means)))
    if published:
        columns.append((Column("published", "right", "never"), [published.get(n, (None,))[0] for n in means]))
        columns.append((Column("verdict", wrap="words"), [published.get(n, (0, ""))[1] for n in means]))
    return table_of(title, columns, notes, keep_empty=True)
