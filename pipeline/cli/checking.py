"""The command `doctor`: what is installed here, what runs and how fast, and what can be reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.options import Json
from pipeline.cli.terminal import print_json, show
from pipeline.core import machine

if TYPE_CHECKING:
    from pipeline.core.installation import Disk
    from pipeline.encoders.products import Speed


def doctor(
    cache: Annotated[
        Path, typer.Option("--cache", metavar="DIR", help="Folder of artifacts, whose disk is looked at.")
    ] = Path("indexes"),
    as_json: Json = False,
) -> None:
    """Say what is installed, what runs here and how fast."""
    found = examine(cache)
    if as_json:
        print_json(found)
        return
    from pipeline.report.checkup import checkup_tables

    show(*checkup_tables(found))


def examine(cache: Path) -> dict[str, Any]:
    """All that `doctor` finds, as plain JSON; the hub is asked while the rest is measured."""
    from pipeline.core import installation, machine
    from pipeline.encoders import products

    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(installation.ask_hub)
        speeds = products.measure_speeds()
        hub = asked.result()
    disks = {"cache": cache, "hub cache": installation.hub_cache()}
    packages = installation.installed_packages()
    commands = {each.name: each.command for each in packages}
    return {
        "hardware": {**machine.hardware(), "features": products.processor_features()},
        "threads": machine.threads(),
        "hub": dataclasses.asdict(hub),
        "disks": {name: _disk(installation.disk_of(folder)) for name, folder in disks.items()},
        "packages": [
            {**dataclasses.asdict(each), "extra": each.extra or None, "install": each.command or None}
            for each in packages
        ],
        "backends": [*_measured(speeds, commands), *_others(commands)],
    }


def _disk(disk: Disk) -> dict[str, Any]:
    return {"folder": str(disk.folder), "free_bytes": disk.free, "writable": disk.writable}


def _measured(speeds: Iterable[Speed], commands: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A row for each backend, precision and device that was measured.

    `commands` has the command that installs each package, "" if it is installed.
    """
    for speed in speeds:
        for backend in speed.backends:
            state = speed.problem or "runs"
            if command := commands.get(speed.missing):
                state = f"needs {command}"
            elif backend == "native" and not speed.problem and not machine.has_vnni():
                state = "runs, slowly: this processor has no VNNI"
            yield _row(backend, state, speed.precision, speed.device, speed.gflops)


def _others(commands: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A row for each backend that multiplies no matrices of a model here."""
    command = commands.get("openai")
    yield _row("http", f"needs {command}" if command else "runs; the model is behind an address")
    yield _row("precomputed", "runs; vectors come from files")
    yield _row("bm25", "runs; needs no model")


def _row(
    backend: str,
    state: str,
    precision: str | None = None,
    device: str | None = None,
    gflops: float | None = None,
) -> dict[str, Any]:
    figures = {"precision": precision, "device": device, "gflops": gflops}
    return {"backend": backend, **figures, "state": state}
