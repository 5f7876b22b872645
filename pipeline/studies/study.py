"""What a study is: one question, mostly of finished results, with all that only it needs in one folder.

The spine imports no study. The command line asks `pipeline.studies.table` which there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.plugins import import_and_call

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.comparison.tables import ColumnGroup
    from pipeline.config import Config
    from pipeline.core.records import JsonObject
    from pipeline.core.table import Table
    from pipeline.studies.shared.plots import Plot


@dataclass(frozen=True)
class Command:
    """A command of a study."""

    # What it does; its docstring and its annotated parameters are its help, as Typer reads them. A parameter
    # `studies` is filled with `StudyOptions`.
    function: Callable[..., None]
    example: str  # the arguments of its example
    resumes: bool = False  # whether it keeps what it finished before an interrupt


class Findings:
    """What a study says of compared results; the base of what each says."""

    @property
    def heading(self) -> str:
        """Of its section of the page."""
        raise NotImplementedError

    @property
    def verdict(self) -> str:
        """What a terminal shows under the comparison's verdict, without a full stop, in place of a title."""
        return ""

    def json(self) -> JsonObject:
        """Its part of the JSON document, under the study's name."""
        raise NotImplementedError

    def tables(self) -> list[Table]:
        """Its tables, after those of the comparison, and in its section of the page."""
        raise NotImplementedError

    def plots(self) -> list[Plot]:
        """What its section of the page shows above the tables."""
        return []

    def figures(self) -> JsonObject:
        """Further columns of the last pair's row, for CSV."""
        return {}

    def csv(self) -> Table | None:
        """A table for CSV in place of the comparison's, in full precision."""
        return None


@dataclass(frozen=True)
class Output:
    """A file that `compare` writes beside what it prints."""

    option: Any  # the option that names the file, as an annotation for Typer
    hint: str  # what the option does, for the end of a short comparison
    # Raises InputError for files that are read, and for measures, that it cannot show.
    refuse: Callable[[Path, Sequence[Path], Sequence[str]], None]
    # Writes comparisons, with the findings of each by study.
    write: Callable[[Path, Sequence[Comparison], Sequence[Mapping[str, Findings | None]]], None]


class Plan:
    """What a study would do with the results of configs; the base of what each plans.

    `alone` says that an option asked for it, so that a terminal shows nothing else.
    """

    alone = False

    def document(self, queries: int | None = None) -> JsonObject:
        """Its part of a benchmark's JSON document, if so many queries are judged."""
        raise NotImplementedError

    def sentence(self, name: str = "", queries: int | None = None) -> str:
        """The same for people, of the only collection `name` if there is one."""
        raise NotImplementedError


def find_by(place: str, options: Sequence[str], comparison: Comparison, values: Mapping[str, Any]) -> Any:
    """`Study.findings` by what "module:name" names, of a comparison and some options; it is imported then."""
    return import_and_call(place, comparison, *map(values.get, options))


@dataclass(frozen=True)
class NextStep:
    """A command that suits the results of a run."""

    sentence: str  # what it is for
    # Its arguments. `{folder}` is the first result's folder, whose own name is `{name}`; `{folders}` are all,
    # and OTHER after a single one.
    arguments: str
    judged: bool = True  # whether it is for results with measures, or for those without judgments


@dataclass(frozen=True)
class Study:
    """What the command line knows of a study, whose module imports nothing heavy before a call."""

    question: str  # what it answers
    commands: Mapping[str, Command] = field(default_factory=dict)  # by name
    # The sections of a config that it reads, by name, each as the "module:name" of its class. Several studies
    # may read one.
    sections: Mapping[str, str] = field(default_factory=dict)
    # What it says of compared results, given the values of its options; None where it has nothing to say of
    # them.
    findings: Callable[[Comparison, Mapping[str, Any]], Findings | None] | None = None
    # Options of `compare` and `report` that ask for findings, as annotations for Typer by the name of the
    # parameter; None, in place of a value, is not asked, and False asks for none. A page has findings without
    # being asked. Without options, all forms of a comparison but the short tables do.
    options: Mapping[str, Any] = field(default_factory=dict)
    csv: bool = False  # whether the findings have a table for CSV
    # The files that it writes of compared results, by the parameter of their option.
    outputs: Mapping[str, Output] = field(default_factory=dict)
    compare_help: str = ""  # a sentence for the help of `compare`
    # Compares the results below a folder, given a measure, a baseline and a difference to detect: gives a
    # comparison for each collection; None if it is a result itself, or none lies there.
    below: Callable[[Path, str | None, Path | None, float | None], list[Comparison] | None] | None = None
    # What it knows of each of compared results, beside quality, given the values of its options; None where
    # that is nothing.
    columns: Callable[[Comparison, Mapping[str, Any]], ColumnGroup | None] | None = None
    # What it would do with the results of configs, given the values of `plan_options`, options of the command
    # `plan`; None if nothing.
    plan: Callable[[Sequence[Config], Mapping[str, Any]], Plan | None] | None = None
    plan_options: Mapping[str, Any] = field(default_factory=dict)
    next_step: NextStep | None = None  # what a run ends with


@dataclass(frozen=True)
class StudyOptions:
    """The studies, and what a command line asks of each."""

    studies: Mapping[str, Study]  # by name
    values: Mapping[str, Any]  # of their options and outputs, by parameter; None where an option is not given

    @property
    def asked(self) -> list[str]:
        """The studies whose findings an option asks for."""
        return [name for name, study in self.studies.items() if any(map(self.values.get, study.options))]

    @property
    def outputs(self) -> Iterator[tuple[str, Output, Path]]:
        """The study, the output and the file of each output that is asked for."""
        for name, study in self.studies.items():
            for option, output in study.outputs.items():
                if self.values.get(option):
                    yield name, output, self.values[option]

    def plans(self, configs: Sequence[Config]) -> dict[str, Plan]:
        """What each study would do that has something to do, by its name."""
        planned = {name: each.plan(configs, self.values) for name, each in self.studies.items() if each.plan}
        return {name: plan for name, plan in planned.items() if plan}

    def below(
        self, folder: Path, measure: str | None, baseline: Path | None, detect: float | None
    ) -> list[Comparison]:
        """The comparisons of the results below a folder; none if no study has any."""
        compare = (study.below for study in self.studies.values() if study.below)
        return next(filter(None, (each(folder, measure, baseline, detect) for each in compare)), [])

    def with_columns(self, comparison: Comparison) -> Comparison:
        """The comparison, with what studies know of each result beside quality."""
        groups = (
            study.columns(comparison, {option: self.values.get(option) for option in study.options})
            for study in self.studies.values()
            if study.columns
        )
        return comparison.with_columns(group for group in groups if group)

    def findings(self, comparison: Comparison, on_page: bool) -> dict[str, Findings | None]:
        """What studies say of a comparison, by their names.

        Those without an option always do: None where they have nothing to say.
        """
        said: dict[str, Findings | None] = {}
        for name, study in self.studies.items():
            values = {option: self.values.get(option) for option in study.options}
            unasked = study.options and not any(values.values()) and not on_page
            if study.findings is None or unasked or False in values.values():
                continue
            findings = study.findings(comparison, values)
            if findings is not None or not (study.options or comparison.of_suites):
                said[name] = findings
        return said
