"""Which task of MTEB a collection is, by the shipped suites."""

from __future__ import annotations

from pipeline.config.suites import MtebTask, read_suite, suite_names
from pipeline.core.records import Facts


def task_of(data: Facts) -> tuple[MtebTask, str | None] | None:
    """The task of MTEB that a section `data` names, by the shipped suites, and its main measure."""
    if data.get("queries") is not None or data.get("corpus") is not None:
        return None  # a slice
    for suite in map(read_suite, suite_names()):
        for name, each in suite.collections.items():
            if each.mteb and each.is_read_by(data):
                return each.mteb, suite.measure_of(name)
    return None
