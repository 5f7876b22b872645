"""The commands on a cache: `cache list`, `cache verify` and `cache prune`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.terminal import FAILED, Json, Sets, load, print_json, show
from pipeline.core.errors import InputError
from pipeline.report.listings import cache_table, prune_table, verify_table

Folder = Annotated[Path, typer.Option("--cache", metavar="DIR", help="Folder of artifacts.")]
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def list_artifacts(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """List artifacts: size, age, inputs, what uses each."""
    from pipeline.storage import cache as stored

    rows = stored.describe_entries(folder)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
    elif folder.exists():
        show(cache_table(str(folder), rows))
    else:
        _say_empty(folder)


def verify(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Compare every byte with its checksum. Exit code 1 if anything is damaged."""
    from pipeline.storage import cache as stored

    rows = stored.verify(folder)
    damaged = sum(bool(row["files"]) for row in rows)
    if as_json:
        print_json({"cache": str(folder), "damaged": damaged, "artifacts": rows})
    elif folder.exists():
        show(verify_table(str(folder), rows))
    else:
        _say_empty(folder)
    if damaged:
        raise typer.Exit(FAILED)


def prune(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONFIG", help="Configs whose artifacts are kept."),
    ] = None,
    settings: Sets = None,
    unused: Annotated[
        bool, typer.Option("--unused", help="Prune what no given CONFIG uses.", show_default=False)
    ] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Prune what no run used for this long: 12h, 30d, 8w.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Prune the least recently used until this much is left: 10GB."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove the artifacts, instead of only listing them.")
    ] = False,
    folder: Folder = Path("indexes"),
    as_json: Json = False,
) -> None:
    """List artifacts to remove, and with --yes remove them. What a running process uses is kept.

    With several of --unused, --older-than and --size, only artifacts matching every option are pruned.
    """
    from pipeline.config import of_each_collection
    from pipeline.run.benchmark import Session
    from pipeline.storage.cache import PruneLimits, prune

    if (unused and not configs) or not (unused or older_than or size):
        raise InputError(
            "cache prune: " + ("--unused without a config" if unused else "no option says what to prune"),
            allowed="--older-than AGE, --size SIZE, or --unused with the configs whose artifacts are kept",
            fix="give at least one of them",
        )
    given = of_each_collection(load(configs or [], settings))
    with Session() as session:
        benchmarks = map(session.benchmark, given)
        recipes = [recipe for benchmark in benchmarks for recipe in benchmark.recipes.values()]
    limits = PruneLimits(
        unused, parse_age(older_than) if older_than else None, parse_size(size) if size else None
    )
    rows = prune(folder, recipes, limits, dry=not yes)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
    elif rows:
        show(prune_table(str(folder), rows, dry=not yes))
    elif not folder.exists():
        _say_empty(folder)
    else:
        print(f"{folder}: nothing to prune")


def _say_empty(folder: Path) -> None:
    print(f"{folder} does not exist yet: nothing is cached")


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
