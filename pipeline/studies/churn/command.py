"""What the study adds to `compare`: its findings of two results."""

from __future__ import annotations

from functools import partial

from pipeline.studies.study import Study, find_by

STUDY = Study(
    "What changes where one result takes the place of another?",
    findings=partial(find_by, "studies.churn.churn:churn_of", []),
)
