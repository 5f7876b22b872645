"""The tables of `benchmarco doctor`: the machine, the packages, the backends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.core.display import counted
from pipeline.core.table import Column, Table

SHOWN = (
    "python", "benchmarco", "FlagEmbedding", "faiss-cpu", "numba", "openvino", "sentence-transformers",
    "torch", "transformers",
)  # fmt: skip
"""Packages that are shown even if they are installed."""


def checkup_tables(found: Mapping[str, Any]) -> list[Table]:
    """The document of `doctor --json` as tables."""
    return [_machine(found), _packages(found), _backends(found)]


def _machine(found: Mapping[str, Any]) -> Table:
    """What the machine is and what it reaches, a fact a row."""
    hardware, hub = found["hardware"], found["hub"]
    rows = [
        ("processor", f"{hardware['cpu']}, {counted(hardware['cores'], 'core')}, {found['threads']} used"),
        ("its features", " ".join(hardware["features"]) or "none of those that the backends use"),
        ("memory", f"{hardware['memory_gb']} GB"),
        ("GPU", ", ".join(hardware["gpus"]) or "none"),
        ("system", hardware["system"]),
        ("hub", f"{hub['address']}: {hub['said']}" if hub["reachable"] else f"not reached: {hub['said']}"),
    ]
    notes = []
    if not hub["reachable"]:
        notes.append("Offline: only models and data that are on this machine can be used.")
    return Table("this machine", [Column("what"), Column("is", wrap="words")], rows, notes)


def _packages(found: Mapping[str, Any]) -> Table:
    """The packages that decide speeds and results, extras, and what is missing with its command."""
    shown = [
        each
        for each in found["packages"]
        if each["name"] in SHOWN or each["extra"] or each["version"] is None
    ]
    columns = [Column("package"), Column("version"), Column("extra")]
    rows = [[each["name"], each["version"] or "not installed", each["extra"] or ""] for each in shown]
    if any(each["install"] for each in shown):
        columns.append(Column("command that installs it", wrap="words"))
        rows = [[*row, each["install"] or ""] for row, each in zip(rows, shown, strict=True)]
    others = len(found["packages"]) - len(shown)
    notes = [f"{counted(others, 'other package')}: all installed; --json lists them."] if others else []
    return Table("packages", columns, rows, notes)


def _backends(found: Mapping[str, Any]) -> Table:
    """The backends, and whether each runs here."""
    rows = [(each["backend"], each["state"]) for each in found["backends"]]
    return Table("backends", [Column("backend", wrap="never"), Column("state", wrap="words")], rows)
