"""The command `reproduce`, which runs a result's manifest again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, Sets
from pipeline.cli.terminal import FAILED, print_json, progress, show
from pipeline.core.errors import InputError


def reproduce(
    folder: Annotated[Path, typer.Argument(metavar="RESULT_DIR", help="A result's folder.")],
    settings: Sets = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="RESULT_DIR", help="Run nothing: this is the result that was run again."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Keep the new result in this folder of result folders.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what is computed, for an interrupted command.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rerun a result from scratch and show what differs.

    The exit code is 1 if the result is not the same.
    """
    if against and (settings or output or cache):
        raise InputError(
            "--against with --set, --output or --cache",
            allowed="--against alone, which runs nothing",
            fix="leave the others out",
        )
    from pipeline import api

    found = api.reproduce(
        folder,
        against=against,
        overrides=settings or (),
        output=output,
        cache=cache,
        progress=progress,
    )
    if as_json:
        print_json(found.json())
    else:
        show(*found.tables())
    if output:
        print(f"written to {output / found.name}", file=sys.stderr)
    if not found.unchanged:
        sys.stdout.flush()
        raise typer.Exit(FAILED)
