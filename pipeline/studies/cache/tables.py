"""Tables of the artifacts in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pipeline.core.display import counted, figure
from pipeline.core.table import Column, Table

if TYPE_CHECKING:
    from pipeline.core.records import Facts

WIDE = 140
"""A terminal of fewer characters shows less of each artifact in a cache."""
MOST_USERS = 3
"""Lines of an artifact's row that name results."""
RESULTS = "results: those in {}/ that use the artifact; --results DIR names another folder."
STATES = {"whole": "complete", "in the making": "in progress"}
"""States of an artifact whose names in JSON differ from those that people read."""


def cache_table(folder: str, rows: Sequence[Facts], results: str) -> Table:
    """An artifact a row, from `pipeline.studies.cache.contents.describe_entries`."""
    title = f"{folder}: {counted(len(rows), 'artifact')}, {_total(rows)}"
    shown = ("stage", "key", "results", "state", "size", "last used", "created")
    return _artifacts(title, rows, shown, [RESULTS.format(results)])


def verify_table(folder: str, rows: Sequence[Facts]) -> Table:
    """A damaged artifact a row, with its files that are."""
    damaged = [row for row in rows if row["files"]]
    title = f"{folder}: {counted(len(rows), 'artifact')}, {len(damaged):,} damaged"
    return _artifacts(title, damaged, ("stage", "state", "size", "damaged files", "whole key"))


def prune_table(folder: str, rows: Sequence[Facts], dry: bool, results: str) -> Table:
    """A pruned artifact a row, and why it can go."""
    done = "would remove" if dry else "removed"
    title = f"{folder}: {done} {counted(len(rows), 'artifact')}, {_total(rows)}"
    title += "; --yes removes them" if dry else ""
    return _artifacts(title, rows, ("stage", "key", "results", "size", "reason"), [RESULTS.format(results)])


_CELLS: dict[str, tuple[Column, Callable[[Facts], str]]] = {
    "stage": (Column("stage"), lambda row: row["stage"]),
    "key": (Column("key", wrap="never"), lambda row: row["key"][:12]),
    "whole key": (Column("key"), lambda row: row["key"]),
    "results": (Column("results"), lambda row: _users(row["results"])),
    "state": (Column("state"), lambda row: STATES.get(row["state"], str(row["state"]))),
    "size": (Column("size", "right"), lambda row: figure(row["bytes"], "bytes")),
    "last used": (Column("last used"), lambda row: _minute(row["used_at"])),
    "created": (Column("created", from_width=WIDE), lambda row: _minute(row["made_at"])),
    "damaged files": (Column("damaged files"), lambda row: "\n".join(row["files"])),
    "reason": (Column("reason"), lambda row: row["why"]),
}
"""Columns of artifacts, each with the cell of an artifact."""


def _artifacts(title: str, rows: Sequence[Facts], shown: Sequence[str], notes: Sequence[str] = ()) -> Table:
    """An artifact a row, with some of `_CELLS`."""
    columns, cells = zip(*map(_CELLS.__getitem__, shown), strict=True)
    return Table(title, columns, [[cell(row) for cell in cells] for row in rows], notes)


def _total(rows: Iterable[Facts]) -> str:
    return figure(sum(row["bytes"] for row in rows), "bytes")


def _minute(instant: str | None) -> str:
    return (instant or "")[:16].replace("T", " ")


def _users(names: Sequence[str]) -> str:
    """The results that use an artifact, one a line."""
    if len(names) > MOST_USERS:
        names = [*names[: MOST_USERS - 1], f"and {len(names) - MOST_USERS + 1:,} more"]
    return "\n".join(names)
