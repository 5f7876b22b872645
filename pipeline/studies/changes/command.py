"""What the study adds to `compare`: the option `--queries`, and the part `changes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.studies.study import Study

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.changes.changes import Changes


def add(comparison: Comparison, options: Mapping[str, Any]) -> Changes | None:
    """The queries that differ most, where they are asked for: a page has all queries anyway."""
    alone = comparison.of_suites or not comparison.pairs
    if not options["queries"] or (comparison.collection and alone):  # one of several in a folder
        return None
    from pipeline.studies.changes.changes import largest_changes

    return largest_changes(comparison, options["queries"])


Queries = Annotated[
    int | None,
    typer.Option(
        "--queries",
        min=1,
        metavar="N",
        help="Also show the N queries that differ most, and the ranks of their relevant passages.",
        show_default=False,
    ),
]
STUDY = Study(
    "Which queries lose and gain most between two results?", part=add, options={"queries": Queries}, csv=True
)
