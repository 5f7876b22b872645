"""What the study adds to `compare` and `report`: the option `--groups`, and its findings."""

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
    from pipeline.studies.groups.groups import find_groups

    return find_groups(comparison, options["groups"])


Groups = Annotated[
    bool | None,
    option(
        "Also compare within groups of queries. The default for a page of up to 2,000 queries.",
        flags="--groups/--no-groups",
    ),
]
STUDY = Study("In which groups of queries do results differ?", findings=find, options={"groups": Groups})
