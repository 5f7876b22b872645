"""What the study adds to `compare`: the option `--queries`, and its findings."""

from typing import Annotated

from pipeline.studies import changes
from pipeline.studies.study import Study
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
STUDY = Study(
    "Which queries lose and gain most between two results?",
    findings=lambda comparison, options: changes.find_changes(comparison, options["queries"]),
    options={"queries": Queries},
    csv=True,
)
