"""What the study adds to `compare` and `report`: the option `--groups`, and the part `groups`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.core.errors import InputError
from pipeline.studies.study import Study

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.groups.groups import GroupComparison

QUERIES_GROUPED = 2_000
"""Most queries that a page shows in groups unless it is told to."""


def add(comparison: Comparison, options: Mapping[str, Any]) -> GroupComparison | None:
    """The results in groups of queries, where they are asked for, or can be had soon for a page."""
    asked = bool(options["groups"])
    if not asked and (comparison.of_suites or len(comparison.query_ids) > QUERIES_GROUPED):
        return None
    from pipeline.studies.groups.groups import groups_of

    try:
        return groups_of(comparison)
    except InputError:
        if asked:
            raise
        return None  # without the collection; the page says so


Groups = Annotated[
    bool | None,
    typer.Option(
        "--groups/--no-groups",
        help="Also compare within groups of queries. The default for a page of up to 2,000 queries.",
        show_default=False,
    ),
]
STUDY = Study(
    "In which groups of queries do results differ?",
    part=add,
    options={"groups": Groups},
)
