"""The table of measures of one evaluation."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.core.display import FRAGILE, interval
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.metrics.statistics import SHOWN_FROM

NO_INTERVAL = f"No interval: fewer than {SHOWN_FROM} queries."
UNJUDGED = "judged: share of the top k that has a grade."


def measure_table(
    title: str,
    means: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float] | None],
    fragile: Mapping[str, bool],
    judged: Mapping[str, float],
    published: Mapping[str, tuple[float, str]] | None = None,
) -> Table:
    """A measure a row, with the 95% interval of its mean where there is one, and its mark.

    `judged` has, for some measures, the share of the top k that is judged; it is shown where one is below 1.
    `published` has the published mean of some measures, and the verdict on it.
    """
    ends = [intervals.get(name) or (None, None) for name in means]
    marks = [fragile.get(name, False) for name in means]
    columns: list[FilledColumn] = [
        (Column("measure"), means),
        (Column("mean", "right", "never"), means.values()),
        (
            Column("95% interval", "right"),
            [Cell(interval(*each, mark), each[0]) for each, mark in zip(ends, marks, strict=True)],
        ),
    ]
    notes = [NO_INTERVAL] if means and all(low is None for low, _ in ends) else []
    notes += [FRAGILE] if any(marks) else []
    if any(share < 1 for share in judged.values()):
        columns.append((Column("judged", "right", "never"), map(judged.get, means)))
        notes.append(UNJUDGED)
    if published:
        columns.append((Column("published", "right", "never"), [published.get(n, (None,))[0] for n in means]))
        columns.append((Column("verdict", wrap="words"), [published.get(n, (0, ""))[1] for n in means]))
    return table_of(title, columns, notes, keep_empty=True)
