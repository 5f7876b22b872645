"""The commands of the study: `cache list`, `cache verify` and `cache prune`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.core.display import counted, figure
from pipeline.core.errors import InputError
from pipeline.core.table import Column, Table
from pipeline.studies.study import Command, Study
from pipeline.terminal import FAILED, Json, Sets, argument, option, print_json, show

if TYPE_CHECKING:
    from pipeline.core.records import Facts, JsonObject

Folder = Annotated[Path, option("Folder of artifacts.", "DIR", flags="--cache")]
Results = Annotated[Path, option("Folder of results that may use them.", "DIR", flags="--results")]
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


MOST_USERS = 3
"""Lines of an artifact's row that name results."""
RESULTS = "results: those in {}/ that use the artifact; --results DIR names another folder."
STATES = {"whole": "complete", "in the making": "in progress"}
"""States of an artifact whose names in JSON differ from those that people read."""


def list_artifacts(
    folder: Folder = Path("indexes"), results: Results = Path("results"), as_json: Json = False
) -> None:
    """List artifacts: size, age, and results that use each."""
    from pipeline.studies.cache import contents as stored

    rows = stored.add_results(stored.describe_entries(folder), results)
    rows.sort(key=lambda row: (not row["results"], row["results"][:1], -row["bytes"]))
    shown = ("stage", "key", "results", "state", "size", "last used", "created")
    table = _artifact_table(f"{folder}: {_counted_bytes(rows)}", rows, shown, results)
    _show_artifacts(folder, rows, as_json, {"bytes": sum(row["bytes"] for row in rows)}, table)


def verify_artifacts(folder: Folder = Path("indexes"), as_json: Json = False) -> None:
    """Compare every byte with its checksum. Exit code 1 if anything is damaged."""
    from pipeline.studies.cache import contents as stored

    rows = stored.verify(folder)
    damaged = [row for row in rows if row["files"]]
    title = f"{folder}: {counted(len(rows), 'artifact')}, {len(damaged):,} damaged"
    shown = ("stage", "state", "size", "damaged files", "whole key")
    table = _artifact_table(title, damaged, shown)
    _show_artifacts(folder, rows, as_json, {"damaged": len(damaged)}, table)
    raise typer.Exit(FAILED if damaged else 0)


def prune(
    configs: Annotated[list[Path] | None, argument("Configs whose artifacts are kept.", "CONFIG")] = None,
    settings: Sets = None,
    unused: Annotated[bool, option("Prune what none of the CONFIGs uses.", flags="--unused")] = False,
    older_than: Annotated[
        str | None, option("Prune what no run used for this long: 12h, 30d, 8w.", "AGE")
    ] = None,
    size: Annotated[
        str | None, option("Prune the least recently used until this much is left: 10GB.", "SIZE")
    ] = None,
    yes: Annotated[
        bool, option("Remove the artifacts, instead of only listing them.", flags="--yes")
    ] = False,
    folder: Folder = Path("indexes"),
    results: Results = Path("results"),
    as_json: Json = False,
) -> None:
    """List artifacts to remove, and with --yes remove them. What a running process uses is kept.

    With several of --unused, --older-than and --size, only artifacts matching every option are pruned.
    """
    from pipeline.config import of_each_collection
    from pipeline.config.files import load_configs
    from pipeline.run.benchmark import Benchmark, Session
    from pipeline.studies.cache.contents import add_results, prune as prune_entries

    if (unused and not configs) or not (unused or older_than or size):
        raise InputError(
            "cache prune: " + ("--unused without a config" if unused else "no option says what to prune"),
            allowed="--older-than AGE, --size SIZE, or --unused with the configs whose artifacts are kept",
            fix="give at least one of them",
        )
    configured = of_each_collection(load_configs(configs or [], settings or ()))
    with Session() as session:
        benchmarks = (Benchmark(config, session) for config in configured)
        recipes = [recipe for benchmark in benchmarks for recipe in benchmark.recipes.values()]
    seconds = _parse(older_than, "--older-than", _SECONDS, "12h, 30d, 8w") if older_than else None
    most = int(_parse(size.upper(), "--size", _BYTES, "500MB, 10GB")) if size else None
    removed = prune_entries(folder, recipes, unused=unused, older_than=seconds, size=most, dry=not yes)
    rows = add_results(removed, results)
    title = f"{folder}: {'removed' if yes else 'would remove'} {_counted_bytes(rows)}"
    title += "" if yes or not rows else "; --yes removes them"
    table = _artifact_table(title, rows, ("stage", "key", "results", "size", "reason"), results)
    _show_artifacts(folder, rows, as_json, {"bytes": sum(row["bytes"] for row in rows)}, table)


def _show_artifacts(folder: Path, rows: list[Facts], as_json: bool, total: JsonObject, table: Table) -> None:
    """Print the artifacts of a cache as JSON, or as a table; of one without rows the title."""
    if as_json:
        print_json({"cache": str(folder), **total, "artifacts": rows})
    elif not folder.exists():
        print(f"{folder} does not exist yet: nothing is cached")
    elif table.rows:
        show(table)
    else:
        print(table.title)


def _artifact_table(
    title: str, rows: Sequence[Facts], shown: Sequence[str], results: Path | None = None
) -> Table:
    """An artifact a row, with some of `_CELLS`; `results` is the folder that the results are from."""
    columns, cells = zip(*map(_CELLS.__getitem__, shown), strict=True)
    notes = [RESULTS.format(results)] if results else []
    return Table(title, columns, [[cell(row) for cell in cells] for row in rows], notes)


def _counted_bytes(rows: Sequence[Facts]) -> str:
    """The number of some artifacts, and the size of all."""
    return f"{counted(len(rows), 'artifact')}, {figure(sum(row['bytes'] for row in rows), 'bytes')}"


def _minute(instant: str | None) -> str:
    return (instant or "")[:16].replace("T", " ")


def _users(names: Sequence[str]) -> str:
    """The results that use an artifact, one a line."""
    if len(names) > MOST_USERS:
        names = [*names[: MOST_USERS - 1], f"and {len(names) - MOST_USERS + 1:,} more"]
    return "\n".join(names)


_CELLS: dict[str, tuple[Column, Callable[[Facts], str]]] = {
    "stage": (Column("stage"), lambda row: row["stage"]),
    "key": (Column("key", wrap="never"), lambda row: row["key"][:12]),
    "whole key": (Column("key"), lambda row: row["key"]),
    "results": (Column("results"), lambda row: _users(row["results"])),
    "state": (Column("state"), lambda row: STATES.get(row["state"], str(row["state"]))),
    "size": (Column("size", "right"), lambda row: figure(row["bytes"], "bytes")),
    "last used": (Column("last used"), lambda row: _minute(row["used_at"])),
    "created": (Column("created", from_width=140), lambda row: _minute(row["made_at"])),
    "damaged files": (Column("damaged files"), lambda row: "\n".join(row["files"])),
    "reason": (Column("reason"), lambda row: row["why"]),
}
"""Columns of artifacts, each with the cell of an artifact."""


def _parse(text: str, option: str, units: Mapping[str, float], examples: str) -> float:
    """Seconds of a time span such as `30d`, or bytes of a size such as `10GB`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)\s*([A-Za-z]+)", text.strip())
    if match is None or match[2] not in units:
        raise InputError(
            f"{option} {text}: not a number with a unit",
            allowed=f"units {', '.join(units)}, such as {examples}",
            fix="give a number and its unit without a space",
        )
    return float(match[1]) * units[match[2]]


STUDY = Study(
    "List, check and prune stored artifacts.",
    {
        "cache list": Command(list_artifacts, ""),
        "cache verify": Command(verify_artifacts, "--cache indexes"),
        "cache prune": Command(prune, "--older-than 30d --yes"),
    },
)
