"""The command `doctor`: what is installed, which backends run, and what can be reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.options import Json
from pipeline.cli.terminal import print_json, show
from pipeline.core import machine

if TYPE_CHECKING:
    from pipeline.core.installation import Disk


def doctor(
    cache: Annotated[
        Path, typer.Option("--cache", metavar="DIR", help="Folder of artifacts, whose disk is looked at.")
    ] = Path("indexes"),
    as_json: Json = False,
) -> None:
    """Say what is installed and which backends run here."""
    found = examine(cache)
    if as_json:
        print_json(found)
        return
    from pipeline.report.checkup import checkup_tables

    show(*checkup_tables(found))


def examine(cache: Path) -> dict[str, Any]:
    """All that `doctor` finds, as plain JSON."""
    from pipeline.core import installation, machine

    disks = {"cache": cache, "hub cache": installation.hub_cache()}
    packages = installation.installed_packages()
    return {
        "hardware": {**machine.hardware(), "features": machine.processor_features()},
        "threads": machine.threads(),
        "hub": dataclasses.asdict(installation.ask_hub()),
        "disks": {name: _disk(installation.disk_of(folder)) for name, folder in disks.items()},
        "packages": [
            {**dataclasses.asdict(each), "extra": each.extra or None, "install": each.command or None}
            for each in packages
        ],
        "backends": [*_backends({each.name: each.command for each in packages})],
    }


def _disk(disk: Disk) -> dict[str, Any]:
    return {"folder": str(disk.folder), "free_bytes": disk.free, "writable": disk.writable}


BACKENDS = {
    "flag": ("torch", "runs"),
    "sentence-transformers": ("sentence-transformers", "runs"),
    "openvino": ("openvino", "runs"),
    "native": ("numba", "runs"),
    "http": ("openai", "runs; the model is behind an address"),
    "precomputed": ("", "runs; vectors come from files"),
    "bm25": ("", "runs; needs no model"),
}
"""For each backend the package that it needs, and what is said where that is installed."""


def _backends(commands: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A row for each backend; `commands` has the install command of each missing package."""
    for backend, (package, state) in BACKENDS.items():
        if command := commands.get(package):
            state = f"needs {command}"
        elif backend == "native" and not machine.has_vnni():
            state = "runs, slowly: this processor has no VNNI"
        yield {"backend": backend, "state": state}
