"""What is stored, is it intact, and what of it can go? The work of `benchmarco cache`.

What `prune` may take follows one rule. Always kept is what a running process is making or using, and
what a config that was named uses. Of the rest goes: with `unused` everything; with `older_than` what no run
had use of for so long; with `size` the least recently used, until no more than that is left. Given together
they narrow each other: what goes meets all of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.storage import locks
from pipeline.storage.artifacts import MANIFEST, Artifact, Recipe, manifests, read_manifest
from pipeline.storage.store import lock_file

log = logging.getLogger(__name__)

_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Kept:
    """Something in a cache: an artifact, or what an unfinished run left.

    Attributes:
        folder: Where it is.
        manifest: None when it is not finished, or when its manifest cannot be read or trusted.
        finished: Whether there is a manifest, to be trusted or not.
        readable: Whether this user, and the disk, let it be read that far.
        bytes: Size of all its files.
        used: When it was last used or written, in seconds since the epoch.
    """

    folder: Path
    manifest: dict[str, Any] | None
    finished: bool
    readable: bool
    bytes: int
    used: float

    @property
    def stage(self) -> str:
        """The stage that made it."""
        return self.folder.parent.name

    @property
    def key(self) -> str:
        """Its key."""
        return self.folder.name

    def damaged(self) -> list[str]:
        """What is wrong with a finished artifact: its manifest, or files that are not what that says."""
        if self.manifest is None:
            return [MANIFEST] if self.finished else []
        recipe = Recipe(self.stage, self.manifest["recipe"])
        wrong = [] if self.key == self.manifest["key"] == recipe.key else [MANIFEST]
        return wrong + Artifact(self.folder, self.manifest).damaged()

    def sources(self) -> set[str]:
        """Keys of what it was made from; file checksums, which look alike, may be among them."""
        if self.manifest is None:
            return set()
        return set(_keys_in([self.manifest["recipe"], self.manifest["made"].get("from")]))

    def busy(self) -> bool:
        """Whether a process is making or using it now."""
        for path in (lock_file(self.folder), *manifests(self.folder)):
            with contextlib.suppress(OSError):  # nobody makes anything in a read-only cache
                if path.exists() and locks.hold(path, wait=False) is None and path.exists():
                    return True
        return False

    def remove(self) -> bool:
        """Remove it, unless a process is making or using it; whether it was removed."""
        path = lock_file(self.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        making = locks.hold(path, wait=False, create=True)
        using = [locks.hold(manifest, wait=False) for manifest in manifests(self.folder)]
        if making is None or None in using:
            return False
        (self.folder / MANIFEST).unlink(missing_ok=True)  # first, so that what is left is no artifact
        if self.folder.exists():
            shutil.rmtree(self.folder)
        path.unlink(missing_ok=True)
        return True


def contents(root: Path) -> list[Kept]:
    """Everything in a cache, finished or not, by stage and key.

    Raises:
        InputError: There is no such folder.
    """
    if not root.is_dir():
        raise InputError(
            f"cache {root}: no such folder",
            allowed="a folder in which benchmarks kept artifacts",
            fix="name it with --cache DIR",
        )
    folders = (path for path in root.glob("[!.]*/*") if _KEY.fullmatch(path.name))
    return [_look(path) for path in sorted(folders) if path.is_dir() and not path.is_symlink()]


def _look(folder: Path) -> Kept:
    """What is in a folder now; another process may be writing to it or removing it."""
    size, times = 0, [0.0]
    with contextlib.suppress(FileNotFoundError):
        times = [os.lstat(folder).st_mtime]
    for parent, folders, files in os.walk(folder):  # silent, unlike rglob, about a folder that is gone by now
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(parent, name))
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                times.append(status.st_mtime)
    try:
        with contextlib.suppress(FileNotFoundError):
            times = [(folder / MANIFEST).stat().st_mtime]
        manifest, finished, readable = read_manifest(folder), (folder / MANIFEST).exists(), True
    except OSError:
        manifest, finished, readable = None, True, False
    return Kept(folder, manifest, finished, readable, size, max(times))


def listing(root: Path) -> list[dict[str, Any]]:
    """A row for each thing in a cache, as `cache list --json` prints it."""
    everything = contents(root)
    names = {kept.key: f"{kept.stage}/{kept.key}" for kept in everything}
    users: dict[str, list[str]] = {key: [] for key in names}
    for kept in everything:
        for key in kept.sources() & set(names):
            users[key].append(names[kept.key])
    return [
        {
            "stage": kept.stage,
            "key": kept.key,
            "state": _state(kept),
            "bytes": kept.bytes,
            "made_at": kept.manifest["made"].get("at") if kept.manifest else None,
            "used_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(kept.used)),
            "made_from": sorted(names[key] for key in kept.sources() & set(names)),
            "used_by": sorted(users[kept.key]),
        }
        for kept in everything
    ]


def _state(kept: Kept) -> str:
    if not kept.readable:
        return "unreadable"
    if kept.busy():
        return "in use" if kept.finished else "in the making"
    if not kept.finished:
        return "unfinished"
    return "whole" if kept.manifest else "damaged"


def verify(root: Path) -> list[dict[str, Any]]:
    """A row for each thing in a cache, every byte read: `state` and the `files` damaged or unreadable."""
    rows = []
    for kept in contents(root):
        wrong = kept.damaged()
        if wrong and not kept.folder.exists():  # another process removed it meanwhile
            continue
        rows.append(
            {
                "stage": kept.stage,
                "key": kept.key,
                "state": _verdict(kept, wrong),
                "bytes": kept.bytes,
                "files": wrong,
            }
        )
    return rows


def _verdict(kept: Kept, wrong: list[str]) -> str:
    if wrong and kept.readable:
        return "damaged"
    return "whole" if kept.finished and not wrong else _state(kept)


@dataclass(frozen=True)
class Limits:
    """What `prune` may take: what meets all that is given; see the module's rule.

    Attributes:
        unused: Everything that is not kept for a config.
        older_than: Seconds since the last use.
        size: Bytes that may stay.
    """

    unused: bool = False
    older_than: float | None = None
    size: int | None = None


def prune(root: Path, recipes: Collection[Recipe], limits: Limits, dry: bool) -> list[dict[str, Any]]:
    """Remove what can go, least recently used first; what cannot be read stays, and is named in the log.

    Args:
        root: The cache.
        recipes: Of the configs whose artifacts stay.
        limits: What may go.
        dry: Remove nothing.

    Returns:
        A row for each thing that goes: `stage`, `key`, `bytes`, `why`, and whether it was `removed`.
    """
    everything = sorted(contents(root), key=lambda kept: (kept.used, kept.stage, kept.key))
    needed = _needed({kept.key: kept for kept in everything}, recipes)
    left, rows = sum(kept.bytes for kept in everything), []
    for kept in everything:
        if not kept.readable:
            log.warning("%s: cannot be read, and stays", kept.folder)
            continue
        why = _reason(kept, limits, left)
        if why is None or kept.key in needed or kept.busy() or not (dry or kept.remove()):
            continue
        left -= kept.bytes
        rows.append(
            {"stage": kept.stage, "key": kept.key, "bytes": kept.bytes, "why": why, "removed": not dry}
        )
    return rows


def _reason(kept: Kept, limits: Limits, left: int) -> str | None:
    """Why something may go; None if it may not."""
    idle, why = time.time() - kept.used, []
    if limits.unused:
        why.append("no config given uses it")
    if limits.older_than is not None:
        if idle <= limits.older_than:
            return None
        why.append(f"not used for {age(idle)}")
    if limits.size is not None:
        if left <= limits.size:
            return None
        why.append("least recently used")
    return ", ".join(why) or None


def _needed(known: Mapping[str, Kept], recipes: Collection[Recipe]) -> set[str]:
    """Keys of what the recipes make and of all it is made from."""
    needed: set[str] = set()
    waiting = [key for recipe in recipes for key in (recipe.key, *_keys_in(recipe.plain))]
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting.extend(known[key].sources() if key in known else ())
    return needed


def _keys_in(value: Any) -> Iterator[str]:
    """Every string of 64 hex digits in JSON."""
    if isinstance(value, str) and _KEY.fullmatch(value):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _keys_in(inner)


def age(seconds: float) -> str:
    """A time span in its largest unit, such as `3 d`."""
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    unit = next((unit for unit, length in units.items() if seconds >= length), "s")
    return f"{int(seconds / units[unit])} {unit}"
