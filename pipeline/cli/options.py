"""Arguments and options that several commands share, and checks made before any work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.config import Config

Configs = Annotated[
    list[Path],
    typer.Argument(metavar="CONFIG", help="A benchmark's YAML file."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="key.path=value", help="Change a setting of the config."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def load(paths: list[Path], settings: list[str] | None) -> list[Config]:
    """Read the benchmarks of config files, with `--set` applied."""
    from pipeline.config.files import load_configs

    return load_configs(paths, settings or ())


def check_file(path: Path, option: str) -> None:
    """Refuse an output file that cannot be written, before anything is computed for it."""
    if path.is_dir() or not path.parent.is_dir():
        found = "is a folder" if path.is_dir() else f"no folder {path.parent}"
        raise InputError(
            f"{option} {path}: {found}", allowed="a file in a folder that exists", fix="name another"
        )
