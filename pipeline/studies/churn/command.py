"""What the study adds to `compare`: its findings of two results."""

from pipeline.studies import churn
from pipeline.studies.study import Study

STUDY = Study(
    "What changes where one result takes the place of another?",
    findings=lambda comparison, options: churn.churn_of(comparison),
)
