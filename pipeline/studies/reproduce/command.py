"""The command of the study: `reproduce`."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from pipeline.core.errors import InputError
from pipeline.studies.study import Command, Study
from pipeline.terminal import FAILED, Json, Sets, argument, option, print_json, progress, show


def reproduce(
    folder: Annotated[Path, argument("A result folder.", "RESULT_DIR")],
    settings: Sets = None,
    against: Annotated[
        Path | None, option("Run nothing: compare with this result of another run.", "RESULT_DIR")
    ] = None,
    output: Annotated[Path | None, option("Keep the new result, in DIR/NAME.", "DIR")] = None,
    as_json: Json = False,
) -> None:
    """Rerun a result from scratch and show what differs.

    The exit code is 1 if anything differs.
    """
    if against and (settings or output):
        raise InputError(
            "--against with --set or --output",
            allowed="--against alone, which runs nothing",
            fix="leave the others out",
        )
    from pipeline.storage.whole_files import SUITE
    from pipeline.studies.reproduce.reproduction import reproduce as run_again

    reports = run_again(folder, against=against, overrides=settings or (), output=output, progress=progress)
    name, unchanged = folder.resolve().name, all(each.unchanged for each in reports)
    if not as_json:
        show(*chain.from_iterable(each.tables() for each in reports))
    elif (folder / SUITE).is_file():
        print_json({"name": name, "unchanged": unchanged, "collections": {e.name: e.json() for e in reports}})
    else:
        print_json(reports[0].json())
    if output:
        print(f"written to {output / name}", file=sys.stderr)
    raise typer.Exit(0 if unchanged else FAILED)


STUDY = Study(
    "Does running a result's manifest again give the same result?",
    {"reproduce": Command(reproduce, "results/A")},
)
