"""Packages that only some settings need, and the extras of this package that install them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

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


def import_openvino() -> Any:
    """The OpenVINO package; without the telemetry package, which is blocked, it reports nothing to anyone."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def has_bfloat16() -> bool:
    """Whether this processor multiplies in bfloat16; if not, OpenVINO emulates it."""
    capabilities: list[str] = import_openvino().Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return "BF16" in capabilities
