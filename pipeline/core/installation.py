"""What an installation has: packages, extras, and whether the hub answers."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import platform
import re
import sys
import time
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

from pipeline.core.errors import InputError

DISTRIBUTION = "benchmarco"
_SETUP = Path(__file__).parents[2] / "scripts" / "setup"
FOR_DEVELOPERS = ("docs", "test")
"""Extras that no benchmark needs."""
INDIRECT = ("faiss-gpu", "faiss-gpu-cu12", "faiss-gpu-cuvs", "llvmlite")
"""Packages that affect results and are not required by name: Faiss for GPUs, and Numba's compiler."""
HUB_SECONDS = 2.0  # that the hub may take to answer

_REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;.*?extra\s*==\s*["']([\w.-]+))?""")


def is_installed(package: str) -> bool:
    """Whether a package can be imported; does not import it."""
    return importlib.util.find_spec(package) is not None


def install_command(extra: str) -> str:
    """The command that installs an extra: in a checkout its own script, which pins versions."""
    return f"scripts/setup {extra}" if _SETUP.is_file() else f"pip install '{DISTRIBUTION}[{extra}]'"


def require(package: str, extra: str, setting: str) -> None:
    """Refuse a setting, such as `engine.kind: ray`, whose package is not installed; `extra` installs it."""
    if not is_installed(package):
        raise InputError(
            f"{setting} needs the package {package}, which is not installed",
            fix=f"run {install_command(extra)}",
        )


def check_versions(*packages: str) -> None:
    """Refuse packages in versions that this one does not support, before they fail or change results."""
    from packaging.specifiers import SpecifierSet

    wrong: dict[str, str] = {}
    required, installed = required_packages(), versions()
    for name in (name for name in required if name in packages and name in installed):
        supported = SpecifierSet(required[name][0])
        if not supported.contains(installed[name], prereleases=True):
            wrong[f"{name} {installed[name]}"] = f"{name}{supported}"
    if wrong:
        raise InputError(
            f"installed: {', '.join(wrong)}",
            allowed=", ".join(wrong.values()),
            fix=f"run pip install {' '.join(map(repr, wrong.values()))}",
        )


def import_openvino() -> ModuleType:
    """The OpenVINO package; without the telemetry package, which is blocked, it reports nothing to anyone."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return importlib.import_module("openvino")


@dataclass(frozen=True)
class Package:
    """A package that this one needs, or uses if it is there."""

    name: str
    extra: str | None  # that installs it; None if every installation has it
    version: str | None  # None if it is not installed
    install: str | None = None  # the command that installs it, if it is not


@dataclass(frozen=True)
class Hub:
    """What the hub answered."""

    address: str
    reachable: bool
    said: str  # the time it took, or why it was not reached


def installed_packages() -> list[Package]:
    """Python, this package, and those that it requires, extras for users included."""
    packages = [Package("python", None, platform.python_version())]
    for name, (_, extra) in {DISTRIBUTION: ("", ""), **required_packages()}.items():
        version = versions().get(name)
        command = install_command(extra) if extra else f"pip install '{name}'"
        packages.append(Package(name, extra or None, version, None if version else command))
    return packages


def required_packages() -> dict[str, tuple[str, str]]:
    """The versions and the extra, "" for none, of each package that this one requires, by name.

    One with an extra of its own name has that. Where this package is not installed, there are none.
    """
    packages: dict[str, tuple[str, str]] = {}
    with contextlib.suppress(metadata.PackageNotFoundError):
        for match in filter(None, map(_REQUIREMENT.match, metadata.requires(DISTRIBUTION) or [])):
            name, extra = match[1], match[3] or ""
            if extra not in FOR_DEVELOPERS and (name not in packages or extra == name):
                packages[name] = match[2], extra
    return packages


@cache
def versions(*others: str) -> dict[str, str]:
    """Versions of Python, of this package, of those that it runs with and of `others`, where installed."""
    installed = {"python": platform.python_version()}
    for name in (DISTRIBUTION, *required_packages(), *INDIRECT, *others):
        with contextlib.suppress(metadata.PackageNotFoundError):
            if version := metadata.version(name):
                installed[name] = version
    return installed


def ask_hub() -> Hub:
    """Whether the hub answers one HEAD request within `HUB_SECONDS`, and why not."""
    from huggingface_hub import constants, get_session

    address = constants.ENDPOINT
    if constants.HF_HUB_OFFLINE:
        return Hub(address, False, "HF_HUB_OFFLINE is set")
    started = time.perf_counter()
    try:
        answer = get_session().head(address, timeout=HUB_SECONDS)
    except Exception as error:  # of whichever client the hub's package uses
        return Hub(address, False, " ".join(f"{type(error).__name__}: {error}".split()))
    if answer.status_code >= 500:
        return Hub(address, False, f"it answers with status {answer.status_code}")
    return Hub(address, True, f"answered in {time.perf_counter() - started:.2f} s")
