"""What the study adds to `compare` and `report`: the option `--groups`, and its findings."""

from typing import Annotated

from pipeline.studies import groups
from pipeline.studies.study import Study
from pipeline.terminal import option

Groups = Annotated[
    bool | None,
    option(
        "Also compare within groups of queries. The default for a page of up to 2,000 queries.",
        flags="--groups/--no-groups",
    ),
]
STUDY = Study(
    "In which groups of queries do results differ?",
    findings=lambda comparison, options: groups.find_groups(comparison, options["groups"]),
    options={"groups": Groups},
)
