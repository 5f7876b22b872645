"""The table of measures of one evaluation, and why a mean has no interval."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.core.table import Column, FilledColumn, Table, table_of
from pipeline.metrics.statistics import SHOWN_FROM

NO_INTERVAL = f"No interval: fewer than {SHOWN_FROM} queries."
UNJUDGED = "judged: share of the top k that has a grade."


def measure_table(
    title: str,
    queries: int,
    means: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float] | None],
    judged: Mapping[str, float],
    published: Mapping[str, tuple[float, str]] | None = None,
    values: Mapping[str, list[float]] | None = None,
) -> Table:
    """A measure a row, with the 95% interval of its mean where there is one.

    `judged` has, for some measures, the share of the top k that is judged; it is shown where one is below 1.
    `published` has the published mean of some measures, and the verdict on it. `values` has those of each
    query, by measure, from which a note says why there is no interval.
    """
    ends = [intervals.get(name) for name in means]
    columns: list[FilledColumn] = [
        (Column("measure"), means),
        (Column("mean", "right", "never"), means.values()),
        (Column("95% interval", "right"), ends),
    ]
    notes = [NO_INTERVAL] if means and not any(ends) else []
    if any(share < 1 for share in judged.values()):
        columns.append((Column("judged", "right", "never"), map(judged.get, means)))
        notes.append(UNJUDGED)
    if published:
        columns.append((Column("published", "right", "never"), [published.get(n, (None,))[0] for n in means]))
        columns.append((Column("verdict", wrap="words"), [published.get(n, (0, ""))[1] for n in means]))
    return table_of(title, columns, notes, keep_empty=True)
