"""What the study adds to `compare` and `report`: the option `--groups`, and its findings."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pipeline.studies.study import Study, find_by
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
    findings=partial(find_by, "studies.groups.groups:find_groups", ["groups"]),
    options={"groups": Groups},
)
