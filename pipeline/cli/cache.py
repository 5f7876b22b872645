"""What is kept, whether it is whole, and what can go: the commands `cache list`, `verify` and `prune`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, Sets, load
from pipeline.cli.terminal import FAILED, print_json, show, width
from pipeline.core.errors import InputError

Folder = Annotated[Path, typer.Option("--cache", metavar="DIR", help="Folder of artifacts.")]
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def list_artifacts(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Show each artifact's size, age, sources and users."""
    from pipeline.storage import cache as stored

    rows = stored.describe_entries(folder)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
        return
    from pipeline.report.table import cache_table

    show(cache_table(str(folder), rows, width()))


def verify(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Compare every byte with its checksum. Exit code 1 if anything is damaged."""
    from pipeline.storage import cache as stored

    rows = stored.verify(folder)
    damaged = sum(bool(row["files"]) for row in rows)
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
        bool, typer.Option("--unused", help="What no CONFIG given uses may go.", show_default=False)
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
    """Say what can go, and with --yes remove it. What a running process uses stays.

    Of --unused, --older-than and --size, given together, only what meets them all goes.
    """
    from pipeline.runner import several
    from pipeline.storage import pruning

    if (unused and not configs) or not (unused or older_than or size):
        raise InputError(
            "cache prune: " + ("--unused without a config" if unused else "what may go is not said"),
            allowed="--older-than AGE, --size SIZE, or --unused with the configs whose artifacts stay",
            fix="name at least one of them",
        )
    benchmarks = several(load(configs or [], settings))
    recipes = [recipe for benchmark in benchmarks for recipe in benchmark.recipes.values()]
    limits = pruning.PruneLimits(
        unused, parse_age(older_than) if older_than else None, parse_size(size) if size else None
    )
    rows = pruning.prune(folder, recipes, limits, dry=not yes)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
        return
    if not rows:
        print(f"{folder}: nothing to prune")
        return
    from pipeline.report.table import prune_table

    show(prune_table(str(folder), rows, dry=not yes))


def parse_age(text: str) -> float:
    """Seconds of a time span such as `30d`."""
    return _parse(text, "--older-than", _SECONDS, "12h, 30d, 8w")


def parse_size(text: str) -> int:
    """Bytes of a size such as `10GB`."""
    return int(_parse(text.upper(), "--size", _BYTES, "500MB, 10GB"))


def _parse(text: str, option: str, units: Mapping[str, float], examples: str) -> float:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([A-Za-z]+)", text.strip())
    if match is None or match[2] not in units:
        raise InputError(
            f"{option} {text}: not a number with a unit",
            allowed=f"units {', '.join(units)}, such as {examples}",
            fix="give a number and its unit without a space",
        )
    return float(match[1]) * units[match[2]]
