"""The table of studies: those of this package, and those of other packages by entry points."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from pipeline.core import plugins
from pipeline.core.errors import InputError
from pipeline.studies.study import Study

STUDIES = {
    "board": "pipeline.studies.board.command",
    "cache": "pipeline.studies.cache.command",
    "changes": "pipeline.studies.changes.command",
    "churn": "pipeline.studies.changes.command:CHURN",
    "collection": "pipeline.studies.collection.command",
    "detect": "pipeline.studies.detection.command",
    "export": "pipeline.studies.export.command",
    "fuse": "pipeline.studies.fuse.command",
    "gate": "pipeline.studies.gate.command",
    "groups": "pipeline.studies.groups.command",
    "judge": "pipeline.studies.judge.command",
    "latency": "pipeline.studies.latency.command",
    "page": "pipeline.studies.page.command",
    "questions": "pipeline.studies.questions.command",
    "reproduce": "pipeline.studies.reproduce.command",
    "slices": "pipeline.studies.slices.command",
    "verify": "pipeline.studies.verify.command",
}
"""For each study what describes it: `STUDY` of a module, or the name after a colon. Remove a study's folder
and the lines that name it to remove it."""


@cache
def all_studies() -> dict[str, Study]:
    """Every study by name; one of another package that cannot be used is named in a warning and left out."""
    studies: dict[str, Study] = {}
    for name, place in STUDIES.items():
        module, _, described = place.partition(":")
        studies[name] = getattr(import_module(module), described or "STUDY")

    def add(name: str, study: object) -> None:
        if not isinstance(study, Study):
            raise InputError(f"a {type(study).__name__}", allowed="a pipeline.studies.study.Study")
        commands = {command for other in studies.values() for command in other.commands}
        if taken := [name] * (name in studies) or sorted(commands & study.commands.keys()):
            raise InputError(f"there is a '{taken[0]}' already", fix="give it another name")
        studies[name] = study

    plugins.add_plugins(plugins.STUDIES, add)
    return studies
