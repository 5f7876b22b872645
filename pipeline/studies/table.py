"""The table of studies: those of this package, and those of other packages by entry points."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from pipeline.core import plugins
from pipeline.core.errors import InputError
from pipeline.studies.study import Study

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison

STUDIES = {
    "batches": "pipeline.studies.batches.command",
    "changes": "pipeline.studies.changes.command",
    "churn": "pipeline.studies.churn.command",
    "gate": "pipeline.studies.gate.command",
    "groups": "pipeline.studies.groups.command",
    "judge": "pipeline.studies.judge.command",
    "latency": "pipeline.studies.latency.command",
    "questions": "pipeline.studies.questions.command",
    "reproduce": "pipeline.studies.reproduce.command",
    "verify": "pipeline.studies.verify.command",
}
"""The module of each study whose `STUDY` describes it. Remove the line and the folder to remove a study."""


def add_columns(comparison: Comparison) -> Comparison:
    """The comparison, with what studies know of each result beside quality."""
    groups = (study.columns(comparison) for study in all_studies().values() if study.columns)
    return comparison.with_columns(group for group in groups if group)


@cache
def all_studies() -> dict[str, Study]:
    """Every study by name; one of another package that cannot be used is named in a warning and left out."""
    studies: dict[str, Study] = {name: import_module(module).STUDY for name, module in STUDIES.items()}

    def add(name: str, study: object) -> None:
        if not isinstance(study, Study):
            raise InputError(f"a {type(study).__name__}", allowed="a pipeline.studies.study.Study")
        commands = {command for other in studies.values() for command in other.commands}
        if taken := [name] * (name in studies) or sorted(commands & study.commands.keys()):
            raise InputError(f"there is a '{taken[0]}' already", fix="give it another name")
        studies[name] = study

    plugins.add_plugins(plugins.STUDIES, add)
    return studies
