"""Packages that only some settings need, and the extras of this package that install them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pipeline.core.errors import InputError

DISTRIBUTION = "benchmarco"
_SETUP = Path(__file__).parents[2] / "scripts" / "setup"


def is_installed(package: str) -> bool:
    """Whether a package can be imported; does not import it."""
    return importlib.util.find_spec(package) is not None


def install_command(extra: str) -> str:
    """The command that installs an extra: in a checkout its own script, which pins versions."""
    return f"scripts/setup {extra}" if _SETUP.is_file() else f"pip install '{DISTRIBUTION}[{extra}]'"


def require(package: str, extra: str, setting: str) -> None:
    """Refuse a setting that needs a package which is not installed.

    Args:
        package: The package to import.
        extra: The extra that installs it.
        setting: The setting and its value, such as `engine.kind: ray`.

    Raises:
        InputError: The package is not installed.
    """
    if not is_installed(package):
        raise InputError(
            f"{setting} needs the package {package}, which is not installed",
            fix=f"run {install_command(extra)}",
        )
