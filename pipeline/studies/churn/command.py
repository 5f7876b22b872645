"""What the study adds to `compare`: its findings of two results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.studies.study import Study

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.study import Findings


def find(comparison: Comparison, options: Mapping[str, Any]) -> Findings | None:
    """What the study says of compared results."""
    from pipeline.studies.churn.churn import churn_of

    return churn_of(comparison)


STUDY = Study("What changes where one result takes the place of another?", findings=find)
