"""The contents of a cache: each artifact's size, state, inputs and users; the check of all bytes; pruning.

`prune` keeps what a running process makes or uses, and everything that a given config uses. Of the rest it
removes only what every given limit allows.
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

from pipeline.core.display import figure
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.storage.artifacts import Artifact, Recipe, read_manifest
from pipeline.storage.store import hold, is_own, making_lock
from pipeline.storage.whole_files import MANIFEST, read_json_object

log = logging.getLogger(__name__)
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CacheEntry:
    """An artifact in a cache, or the files that an unfinished run left."""

    folder: Path
    manifest: Facts | None  # none if there is none, or if it is damaged or unreadable
    state: str  # "whole", "damaged", "unfinished" (no manifest) or "unreadable" (its folder or its manifest)
    bytes: int
    used: float  # when it was last used or written, in seconds since the epoch

    @property
    def stage(self) -> str:
        """The stage that made it."""
        return self.folder.parent.name

    @property
    def key(self) -> str:
        """Its key."""
        return self.folder.name

    def damaged(self) -> list[str]:
        """Names of the damaged files of a finished artifact, `manifest.json` among them."""
        if self.manifest is None:
            return [] if self.state == "unfinished" else [MANIFEST]
        recipe = Recipe(self.stage, self.manifest["recipe"])
        wrong = [] if self.key == self.manifest["key"] == recipe.key else [MANIFEST]
        return wrong + Artifact(self.folder, self.key, self.manifest["files"]).damaged()

    def sources(self) -> set[str]:
        """Keys of the artifacts it was made from; checksums of files look alike and may be among them."""
        if self.manifest is None:
            return set()
        manifest = self.manifest
        return set(keys_in([manifest["recipe"], manifest["facts"], manifest["made"].get("from")]))

    def busy(self) -> bool:
        """Whether a process is making or using it now."""
        for path in (making_lock(self.folder), *self.folder.glob(f"{MANIFEST}*")):
            with contextlib.suppress(OSError):  # in a read-only cache nothing is being made
                free = hold(path, wait=False) is not None
                if not free and path.exists():  # a file that is gone cannot be locked either
                    return True
        return False

    def remove(self) -> bool:
        """Remove it, unless a process is making or using it; returns whether it was removed."""
        path = making_lock(self.folder)
        # Both locks, held to the end: nobody begins to make or use it while its files go. Nobody waits for
        # the other here, so two locks cannot block each other.
        making = hold(path, wait=False, create=True)
        using = [hold(manifest, wait=False) for manifest in self.folder.glob(f"{MANIFEST}*")]
        if making is None or None in using:
            return False
        (self.folder / MANIFEST).unlink(missing_ok=True)  # first: without it, the rest is not an artifact
        if self.folder.exists():
            shutil.rmtree(self.folder)
        # Last, while it is locked: until then it shows that the folder is this package's. Whoever waits for
        # it sees that the file has lost its name, and locks a new one.
        path.unlink(missing_ok=True)
        return True


def cache_entries(root: Path) -> list[CacheEntry]:
    """Every artifact in a cache, finished or not, sorted by stage and key; links are not followed.

    A folder that does not exist is empty: the first run makes it.
    """
    if not root.exists():
        return []
    if not root.is_dir():
        raise InputError(
            f"cache {root} is a file",
            allowed="a folder with the artifacts of benchmarks",
            fix="name it with --cache DIR",
        )
    stages = (path for path in root.glob("[!.]*") if not path.is_symlink())
    folders = (path for stage in stages for path in stage.glob("*") if _KEY.fullmatch(path.name))
    return [
        _look(path) for path in sorted(folders) if not path.is_symlink() and path.is_dir() and is_own(path)
    ]


def _look(folder: Path) -> CacheEntry:
    """The entry in a folder, to which another process may be writing, or which it may be removing."""
    size = 0
    times = [0.0]
    with contextlib.suppress(FileNotFoundError):
        times = [os.lstat(folder).st_mtime]
    for parent, folders, files in os.walk(folder):  # unlike rglob, os.walk ignores a folder removed meanwhile
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(parent, name))
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
                times.append(status.st_mtime)
    try:
        with contextlib.suppress(FileNotFoundError):
            times = [(folder / MANIFEST).stat().st_mtime]
        manifest = read_manifest(folder)
        without = "damaged" if (folder / MANIFEST).exists() else "unfinished"
        state = "whole" if manifest else without
    except OSError:
        manifest, state = None, "unreadable"
    return CacheEntry(folder, manifest, state, size, max(times))


def describe_entries(root: Path) -> list[Facts]:
    """A row for each entry of a cache, as `cache list --json` prints it."""
    entries = cache_entries(root)
    names = {entry.key: f"{entry.stage}/{entry.key}" for entry in entries}
    sources = {entry.key: entry.sources() & names.keys() for entry in entries}
    return [
        {
            **_row(entry, _state(entry)),
            "made_at": entry.manifest["made"].get("at") if entry.manifest else None,
            "used_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.used)),
            "made_from": sorted(names[key] for key in sources[entry.key]),
            "used_by": sorted(names[user] for user, keys in sources.items() if entry.key in keys),
        }
        for entry in entries
    ]


def verify(root: Path) -> list[Facts]:
    """Read every byte; a row for each entry, with its `state` and the `files` damaged or unreadable."""
    rows = []
    for entry in cache_entries(root):
        wrong = entry.damaged()
        if wrong and not entry.folder.exists():  # another process removed it meanwhile
            continue
        state = _state(entry) if entry.state == "unfinished" else entry.state
        rows.append({**_row(entry, "damaged" if wrong and state == "whole" else state), "files": wrong})
    return rows


def _row(entry: CacheEntry, state: str) -> Facts:
    return {"stage": entry.stage, "key": entry.key, "state": state, "bytes": entry.bytes}


def _state(entry: CacheEntry) -> str:
    if entry.state != "unreadable" and entry.busy():
        return "in the making" if entry.state == "unfinished" else "in use"
    return entry.state


def add_results(rows: list[Facts], results: Path) -> list[Facts]:
    """The rows with `results`: the names of the results in a folder that were computed with each artifact."""
    users: dict[str, list[str]] = {}
    for depth in ("*", "*/*"):  # the second is a collection of a suite
        for path in sorted(results.glob(f"{depth}/{MANIFEST}")):
            recipes = (read_json_object(path) or {}).get("recipes")
            for key in set(keys_in(recipes)):
                users.setdefault(key, []).append(str(path.parent.relative_to(results)))
    return [{**row, "results": users.get(row["key"], [])} for row in rows]


def keys_in(value: object) -> Iterator[str]:
    """All strings of 64 hex digits in a JSON value."""
    if isinstance(value, str) and _KEY.fullmatch(value):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from keys_in(inner)


def prune(
    root: Path,
    recipes: Collection[Recipe],
    *,
    unused: bool = False,
    older_than: float | None = None,
    size: int | None = None,
    dry: bool,
) -> list[Facts]:
    """Remove entries that meet every limit given, least recently used first.

    The artifacts of `recipes` stay, together with everything they are made from; unreadable entries stay and
    are logged.

    Args:
        root: The cache.
        recipes: Those of all stages of the configs whose artifacts stay.
        unused: Remove entries that no given config uses.
        older_than: Remove entries not used for this many seconds.
        size: Remove the least recently used entries, until at most this many bytes are left.
        dry: Remove nothing: the rows are the entries that would be removed.

    Returns:
        A row for each entry removed: `stage`, `key`, `bytes`, `why`, and `removed`.
    """
    everything = sorted(cache_entries(root), key=lambda entry: (entry.used, entry.stage, entry.key))
    needed = _needed({entry.key: entry for entry in everything}, recipes)
    left = sum(entry.bytes for entry in everything)
    rows = []
    for entry in everything:
        if entry.state == "unreadable":
            log.warning("%s: cannot be read, so it is kept", entry.folder)
            continue
        idle = time.time() - entry.used
        reasons = {
            "no config given uses it": unused,
            f"not used for {figure(idle, 'time')}": older_than is not None,
            "least recently used": size is not None,
        }
        why = ", ".join(reason for reason, asked in reasons.items() if asked)
        too_new = older_than is not None and idle <= older_than
        if not why or too_new or (size is not None and left <= size):
            continue
        if entry.key in needed or entry.busy() or not (dry or entry.remove()):
            continue
        left -= entry.bytes
        row = {"stage": entry.stage, "key": entry.key, "bytes": entry.bytes}
        rows.append({**row, "why": why, "removed": not dry})
    return rows


def _needed(known: Mapping[str, CacheEntry], recipes: Collection[Recipe]) -> set[str]:
    """Keys of the recipes' artifacts and of everything they are made from."""
    needed: set[str] = set()
    waiting = [key for recipe in recipes for key in (recipe.key, *keys_in(recipe.plain))]
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed.add(key)
            waiting.extend(known[key].sources() if key in known else ())
    return needed
