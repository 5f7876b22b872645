"""Own results beside published ones: a table of systems and tasks, without tests.

Published results are means: without values per query there is nothing to test, and they may have been
computed with other software, precision, lengths and instructions. So they are marked, and only looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.core.display import rounded
from pipeline.core.errors import InputError
from pipeline.core.table import Cell, Column, Table
from pipeline.results.folder import SavedResult
from pipeline.results.mteb_results import Entry, PublishedModel, model_of, task_scores

NOTE = (
    "Published values are as they were found: no interval and no test, as there are no values per query, and "
    "perhaps computed with another precision, length or instruction."
)


@dataclass(frozen=True)
class System:
    """A row of the board.

    Attributes:
        published: Whether its values were read, and not computed here.
        scores: The value on each task; a task that lacks a part is left out.
    """

    name: str
    published: bool
    scores: dict[str, float]


@dataclass(frozen=True)
class Board:
    """Systems on the tasks of the own results.

    Attributes:
        measure: Its name.
        tasks: The tasks, as they come in the own results.
        systems: By their mean over the tasks that all have, the best first.
    """

    measure: str
    tasks: Sequence[str]
    systems: Sequence[System]

    @property
    def common(self) -> list[str]:
        """The tasks that all systems have."""
        return [task for task in self.tasks if all(task in system.scores for system in self.systems)]

    def mean(self, system: System) -> float | None:
        """The mean over the tasks that all systems have; None if there is none."""
        common = self.common
        return sum(system.scores[task] for task in common) / len(common) if common else None

    def document(self) -> dict[str, Any]:
        """The board as JSON."""
        return {
            "measure": self.measure,
            "tasks": list(self.tasks),
            "common": self.common,
            "systems": [
                {
                    "name": system.name,
                    "published": system.published,
                    "mean": self.mean(system),
                    "scores": system.scores,
                }
                for system in self.systems
            ],
        }

    def table(self) -> Table:
        """A system a row, a task a column."""
        common = self.common
        columns = [Column("system"), Column("origin", wrap="never")]
        columns += [Column(name, "right") for name in (f"mean of {len(common)}", *self.tasks)]

        def cell(value: float | None) -> str:
            return "" if value is None else Cell(rounded(value), value)

        rows = [
            (
                system.name,
                "published" if system.published else "run here",
                cell(self.mean(system)),
                *(cell(system.scores.get(task)) for task in self.tasks),
            )
            for system in self.systems
        ]
        notes = [NOTE] if any(system.published for system in self.systems) else []
        if len(common) < len(self.tasks):
            notes.append(f"The mean is over the tasks that all systems have: {', '.join(common) or 'none'}.")
        return Table(self.measure, columns, rows, notes)


def make_board(
    own: Sequence[Sequence[SavedResult]], published: Sequence[PublishedModel], measure: str
) -> Board:
    """Put own results beside published ones.

    Args:
        own: For each system its results, one for each collection.
        published: From `pipeline.results.mteb_results.read_mteb`; those without such a task are left out.
        measure: Its name here, such as ndcg@10.

    Raises:
        InputError: An own result lacks the measure, or no published model has a task of these.
    """
    found: list[tuple[str, dict[Entry, float]]] = []
    for results in own:
        values = {task_scores(result).entry: _value(result, measure) for result in results}
        found.append((model_of(results[0])[0], values))
    entries = list(dict.fromkeys(entry for _, values in found for entry in values))
    tasks = list(dict.fromkeys(task for task, _, _ in entries))
    systems = [System(name, False, _by_task(values, entries)) for name, values in found]
    read = []
    for model in published:
        values = {entry: scores[measure] for entry, scores in model.scores.items() if measure in scores}
        if scores := _by_task(values, entries):
            read.append(System(model.name, True, scores))
    if published and not read:
        has = sorted({task for model in published for task, _, _ in model.scores})[:5]
        raise InputError(
            f"no published result of {', '.join(tasks[:5])} with {measure}",
            allowed=f"results of the same tasks, splits and subsets; there are {', '.join(has)}",
            fix="name other files, or run those tasks",
        )
    board = Board(measure, tasks, [*systems, *read])
    best = sorted(board.systems, key=lambda system: -(board.mean(system) or 0))
    return Board(measure, tasks, best)


def _value(result: SavedResult, measure: str) -> float:
    if measure not in result.record.metrics:
        raise InputError(
            f"{result.folder} has no {measure}",
            allowed=", ".join(result.record.metrics),
            fix="name one of them by --measure",
        )
    return result.record.metrics[measure]


def _by_task(values: dict[Entry, float], entries: Sequence[Entry]) -> dict[str, float]:
    """The mean over each task's entries; without tasks of which one is missing."""
    wanted: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        wanted[entry[0]].append(entry)
    return {
        task: sum(values[entry] for entry in parts) / len(parts)
        for task, parts in wanted.items()
        if all(entry in values for entry in parts)
    }
