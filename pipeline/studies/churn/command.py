"""What the study adds to `compare`: its findings of two results."""

from __future__ import annotations

from pipeline.studies.study import Study, findings_by

STUDY = Study(
    "What changes where one result takes the place of another?",
    findings=findings_by("studies.churn.churn:churn_of"),
)
