"""Plugins: what other installed packages add, by entry points.

The groups are `benchmarco.backends`, `.sources`, `.rerankers`, `.kinds`, `.measures` and `.studies`. A plugin
is imported when something of its group is first looked up. One that cannot be used is named in a warning, and
the others are used all the same.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.records import Facts

log = logging.getLogger(__name__)

BACKENDS, SOURCES, RERANKERS, KINDS, MEASURES, STUDIES = GROUPS = tuple(
    f"benchmarco.{name}" for name in ("backends", "sources", "rerankers", "kinds", "measures", "studies")
)
_lock = threading.RLock()


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package."""

    name: str  # of the backend, source or other thing that it adds
    package: str  # the name and version of the package that has it
    problem: str = ""  # why it cannot be used; "" if it is used


CODE = {".py", ".so", ".pyd"}  # endings of files that hold code
_plugins: dict[str, list[Plugin]] = {}  # those of each group that was looked up
_packages: dict[str, str] = {}  # the name and version of the package that has a module, of each entry point


def add_plugins(group: str, add: Callable[[str, Any], None]) -> list[Plugin]:
    """Import the plugins of a group, once in a process, and return them.

    Args:
        group: One of `GROUPS`.
        add: Called with the name of each and the object that it names; raises for one that it cannot use.
    """
    with _lock:
        if group not in _plugins:
            _plugins[group] = []  # a plugin may look up others of its group while it is imported
            _plugins[group] += [_load(entry, add) for entry in metadata.entry_points(group=group)]
    return _plugins[group]


def _load(entry: metadata.EntryPoint, add: Callable[[str, Any], None]) -> Plugin:
    problem = ""
    try:
        add(entry.name, entry.load())
    except Exception as error:  # whatever a package raises when it is imported
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        problem = " ".join(reason.split()).removesuffix(".")
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    _packages[entry.module.partition(".")[0]] = package
    if problem:
        log.warning("%s '%s' of %s is not used: %s", group_noun(entry.group), entry.name, package, problem)
    return Plugin(entry.name, package, problem)


@cache
def origin(kind: type) -> Facts:
    """What a key says of a plugin's class: package, version, code hash; of this package's own, nothing."""
    package = kind.__module__.partition(".")[0]
    if package == __name__.partition(".")[0]:
        return {}
    return {"plugin": {"package": _packages.get(package, package), "code": _hash_code(kind.__module__)}}


def _hash_code(module: str) -> str:
    """SHA-256 of the code of a module's package, as hex. Code without files has a new one in each process."""
    names = module.split(".")
    modules = (sys.modules.get(".".join(names[:count])) for count in range(1, len(names) + 1))
    file = next((module.__file__ for module in modules if module and getattr(module, "__file__", None)), None)
    code = hashlib.sha256()
    if file is None:
        code.update(uuid.uuid4().bytes)
    else:
        path = Path(file)
        files = path.parent.rglob("*") if path.stem == "__init__" else [path]
        for each in sorted(each for each in files if each.suffix in CODE):
            code.update(each.relative_to(path.parent).as_posix().encode() + b"\0" + each.read_bytes())
    return code.hexdigest()


def packages_of(recipe: Mapping[str, object]) -> dict[str, str]:
    """Versions of other packages that a recipe names, by package; for a program, the hash of its code."""
    found = {}
    for name, value in recipe.items():
        if name == "plugin" and isinstance(value, Mapping) and value.keys() == {"package", "code"}:
            package, _, version = str(value["package"]).partition(" ")
            found[package] = version or str(value["code"])
        elif isinstance(value, Mapping):
            found |= packages_of(value)
    return found


def import_and_call(place: str, *arguments: object) -> Any:
    """Call what "module:name" names in this package, which is imported when it is first called."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"pipeline.{module}"), name)(*arguments)


SECTION_SOURCES: list[Callable[[], Mapping[str, Any]]] = []
"""Functions that are called when a config is first loaded. Each returns objects whose `sections` map the name
of a section of the config to the "module:name" of its class."""


def group_noun(group: str) -> str:
    """The word for a plugin of a group, such as `backend`."""
    plural = group.rpartition(".")[2]
    return "study" if group == STUDIES else plural.removesuffix("s")
