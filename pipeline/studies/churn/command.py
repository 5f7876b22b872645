"""What the study adds to `compare`: the part `churn`, of two results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.studies.study import Study

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.churn.churn import Churn


def add(comparison: Comparison, options: Mapping[str, Any]) -> Churn | None:
    """What changes from one of two results to the other."""
    from pipeline.studies.churn.churn import churn_of

    return churn_of(comparison)


STUDY = Study("What changes where one result takes the place of another?", part=add)
