"""What the study adds to `compare`: the option `--queries`, and its findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pipeline.studies.study import Study
from pipeline.terminal import option

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.study import Findings


def find(comparison: Comparison, options: Mapping[str, Any]) -> Findings | None:
    """What the study says of compared results."""
    from pipeline.studies.changes.changes import find_changes

    return find_changes(comparison, options["queries"])


Queries = Annotated[
    int | None,
    option(
        "Also show the N queries that differ most, and the ranks of their relevant passages.",
        "N",
        flags="--queries",
        min=1,
    ),
]
STUDY = Study(
    "Which queries lose and gain most between two results?",
    findings=find,
    options={"queries": Queries},
    csv=True,
)
