"""Sections of `metrics.json`: what only some kinds of retrievers report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, TypeVar

from pipeline.core.json_record import Record
from pipeline.core.stage_row import Cost, StageRow
from pipeline.core.table import Table

S = TypeVar("S", bound="Section")


class ResultFigures(Protocol):
    """A result, as its sections see it: the content of `metrics.json`."""

    @property
    def passages(self) -> int:
        """How many were searched."""
        ...

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each measure."""
        ...

    def stage(self, name: str) -> StageRow:
        """The row of a stage; one without figures where there is none."""
        ...

    def section(self, kind: type[S]) -> S | None:
        """What a kind of retriever reports; None where it does not."""
        ...


class Section(Record):
    """What a kind of retriever reports besides the measures: the value of one key of `metrics.json`.

    `pipeline.retrievers.sections` lists all of them.
    """

    key: ClassVar[str]
    heading: ClassVar[str] = ""
    """Of the part of a page that holds its tables."""
    in_comparisons: ClassVar[bool] = False
    """Whether the terminal shows its tables with a comparison, and not only a page."""

    @classmethod
    def of_each(cls, results: Mapping[str, ResultFigures]) -> dict[str, Self]:
        """The section of each result that has it, by the result's name."""
        sections = {name: record.section(cls) for name, record in results.items()}
        return {name: section for name, section in sections.items() if section is not None}

    @classmethod
    def tables(cls, results: Mapping[str, ResultFigures], measure: str) -> list[Table]:
        """Tables of the results that have it, in place of which there may be others without it.

        Args:
            results: All that are shown together, by name.
            measure: What they are compared by.
        """
        return []

    def notes(self) -> list[str]:
        """What a reader of the measures should know, a sentence each."""
        return []

    def cautions(self) -> list[str]:
        """What to know before trusting the measures, a sentence each without its full stop."""
        return []

    def stage_notes(self, stages: Mapping[str, StageRow], passages: int) -> list[str]:
        """What a reader of the table of stages should know; `stages` by name, and how many passages."""
        return []

    def corrected(self, cost: Cost, passages: int) -> Cost:
        """The cost of a result of so many passages, with what the figures of its stages leave out."""
        return cost

    @property
    def stages_of_parts(self) -> tuple[StageRow, ...]:
        """The stages of retrievers that the result was made of, each named `PART/STAGE`."""
        return ()
