"""What is kept, whether it is whole, and what can go: the commands `cache list`, `verify` and `prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.commands.options import Json, Sets, load, store
from pipeline.errors import InputError
from pipeline.terminal import FAILED, print_json, show

Folder = Annotated[Path, typer.Option("--cache", metavar="DIR", help="Folder of artifacts.")]


def list_artifacts(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Show each artifact's size, age, sources and users."""
    from pipeline.cache import listing

    rows = listing(folder)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
        return
    from pipeline.report.table import cache_table

    show(cache_table(str(folder), rows))


def verify(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Compare every byte with its checksum. Exit code 1 if anything is damaged."""
    from pipeline.cache import verify

    rows = verify(folder)
    damaged = sum(row["state"] == "damaged" for row in rows)
    if as_json:
        print_json({"cache": str(folder), "damaged": damaged, "artifacts": rows})
    else:
        from pipeline.report.table import verify_table

        show(verify_table(str(folder), rows))
    if damaged:
        raise typer.Exit(FAILED)


def prune(
    configs: Annotated[
        list[Path] | None, typer.Argument(metavar="CONFIG", help="What these use is kept.")
    ] = None,
    settings: Sets = None,
    unused: Annotated[
        bool, typer.Option("--unused", help="All that no CONFIG given uses may go.", show_default=False)
    ] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="What no run used for so long may go: 12h, 30d, 8w.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The least recently used may go until this is left: 10GB."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it, instead of only saying what would go.")
    ] = False,
    folder: Folder = Path("indexes"),
    as_json: Json = False,
) -> None:
    """Say what can go, and with --yes remove it. What a running process uses stays."""
    from pipeline.benchmark import Benchmark
    from pipeline.cache import Limits, parse_age, parse_size, prune

    if (unused and not configs) or not (unused or older_than or size):
        raise InputError(
            "cache prune: " + ("--unused without a config" if unused else "what may go is not said"),
            allowed="--older-than AGE, --size SIZE, or --unused with the configs whose artifacts stay",
            fix="name at least one of them",
        )
    recipes = [
        recipe
        for config in load(configs or [], settings)
        for recipe in Benchmark(config, store(config)).recipes.values()
    ]
    limits = Limits(unused, parse_age(older_than) if older_than else None, parse_size(size) if size else None)
    rows = prune(folder, recipes, limits, dry=not yes)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
        return
    from pipeline.report.table import prune_table

    show(prune_table(str(folder), rows, dry=not yes))
