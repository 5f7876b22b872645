"""What the study adds to `compare`: what changes between two results, and with `--queries` for which."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pipeline.studies.study import Study, find_by
from pipeline.terminal import option

Queries = Annotated[
    int | None,
    option(
        "Also show the N queries that differ most, and the ranks of their relevant passages.",
        "N",
        flags="--queries",
        min=1,
    ),
]
CHURN = Study(
    "What changes where one result takes the place of another?",
    findings=partial(find_by, "studies.changes.changes:churn_of", []),
)
STUDY = Study(
    "Which queries lose and gain most between two results?",
    findings=partial(find_by, "studies.changes.changes:find_changes", ["queries"]),
    options={"queries": Queries},
    csv=True,
)
