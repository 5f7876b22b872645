"""A section of the page that is made of tables and their plots."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.core.table import Table
from pipeline.report.page import plots


@dataclass(frozen=True)
class PagePart:
    """A section of the page that is made of tables and their plots.

    Attributes:
        target: Its id.
        heading: Its heading.
        tables: Each with the numbers of the results that each of its rows is about.
        plots: Of the tables.
    """

    target: str
    heading: str
    tables: list[tuple[Table, list[list[int]]]]
    plots: list[plots.Plot] = field(default_factory=list)
