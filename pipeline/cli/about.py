"""The commands on the program itself: `doctor`, `suites`, `schema` and `example`.

None of them imports the config's classes before it needs them: they answer at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.terminal import Json, Sets, load, print_json, progress, show
from pipeline.core import machine
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.table import Column, Table

if TYPE_CHECKING:
    from pipeline.config.suites import Suite
    from pipeline.core.records import Facts, JsonObject


def doctor(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG", help="Check whether vectors of its model depend on the batch."),
    ] = None,
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Say what is installed, and which backends run here.

    Of a config, say whether the vectors of its model depend on the batch.
    """
    if config is not None:
        _check_batches(config, settings, as_json)
        return
    if settings:
        raise InputError("--set without a config", allowed="doctor CONFIG --set ...", fix="name a config")
    found = examine()
    if as_json:
        print_json(found)
        return
    rows = [(each["backend"], each["state"]) for each in found["backends"]]
    columns = [Column("backend", wrap="never"), Column("state", wrap="words")]
    show(_machine(found), _packages(found), Table("backends", columns, rows))


def _check_batches(config: Path, settings: list[str] | None, as_json: bool) -> None:
    """Print how far vectors depend on their batch."""
    from pipeline.run.batch_check import check_batches

    loaded = load([config], settings)
    if len(loaded) > 1:
        raise InputError(
            f"{config}: {len(loaded)} benchmarks", allowed="one", fix="set one value of each list"
        )
    found = check_batches(loaded[0], progress)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        show(found.table())


def examine() -> Facts:
    """All that `doctor` finds, as plain JSON."""
    from pipeline.core import installation

    packages = installation.installed_packages()
    return {
        "hardware": {**machine.hardware(), "features": machine.processor_features()},
        "threads": machine.threads(),
        "hub": dataclasses.asdict(installation.ask_hub()),
        "packages": [
            {**dataclasses.asdict(each), "extra": each.extra or None, "install": each.command or None}
            for each in packages
        ],
        "backends": [*_backends({each.name: each.command for each in packages})],
    }


def _backends(commands: Mapping[str, str]) -> Iterator[Facts]:
    """A row for each backend; `commands` has the install command of each missing package."""
    from pipeline.config import BACKENDS

    for backend in [name for name in BACKENDS if name != "auto"]:
        state = "runs"
        if command := commands.get(BACKENDS[backend].package):
            state = f"needs {command}"
        elif backend == "native" and not machine.has_vnni():
            state = "runs, slowly: this processor has no VNNI"
        elif backend == "native" and "amx_int8" in machine.processor_features():
            state = "runs, by AMX" if machine.has_amx() else "runs; this process may not use AMX"
        yield {"backend": backend, "state": state}


SHOWN = (
    "python", "benchmarco", "FlagEmbedding", "faiss-cpu", "numba", "openvino", "sentence-transformers",
    "torch", "transformers",
)  # fmt: skip
"""Packages that are shown even if they are installed."""


def _machine(found: Facts) -> Table:
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


def _packages(found: Facts) -> Table:
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


def suites(
    name: Annotated[str | None, typer.Argument(help="List the collections of this suite.")] = None,
    as_json: Json = False,
) -> None:
    """List the suites that are built in: sizes and licenses."""
    from pipeline.config.suites import read_suite, suite_names
    from pipeline.report.listings import suite_table, suites_table

    names = suite_names()
    if name is not None and name not in names:
        raise InputError(f"no suite '{name}'", allowed=", ".join(names), fix="name one of them")
    listed = {each: read_suite(each) for each in ([name] if name else names)}
    if as_json:
        documents = [_suite_document(each, suite) for each, suite in listed.items()]
        print_json(documents[0] if name else documents)
    else:
        show(suite_table(name, listed[name]) if name else suites_table(listed))


def _suite_document(name: str, suite: Suite) -> JsonObject:
    """A suite as JSON, with what holds for each collection written out."""
    collections = [
        {
            "name": collection,
            **{key: getattr(each.data, key, None) for key in ("source", "path", "revision")},
            "main_measure": suite.measure_of(collection),
            "license": suite.license_of(collection),
            **each.model_dump(include={"group", "passages", "queries", "query_instruction"}),
            "data": each.data.model_dump(exclude_unset=True),
            "mteb": each.mteb and each.mteb.model_dump(exclude_unset=True),
        }
        for collection, each in suite.collections.items()
    ]
    known = suite.model_dump(include={"description", "license", "main_measure"})
    totals = {"passages": suite.total("passages"), "queries": suite.total("queries")}
    return {"name": name, **known, "collections": collections, **totals}


def schema() -> None:
    """Print the config's JSON Schema, for editors."""
    from pipeline.config.files import file_schema

    print_json(file_schema())


def example() -> None:
    """Print a config that runs as it is, to start from."""
    print((Path(__file__).parents[1] / "example.yaml").read_text(encoding="utf-8"), end="")
