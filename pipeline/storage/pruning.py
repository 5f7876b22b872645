"""Removal of artifacts that are no longer needed: `benchmarco cache prune`.

Whatever a running process makes or uses stays, and so does everything that a given config uses. Of the
rest, only what every given limit (`PruneLimits`) allows is removed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.storage.artifacts import Recipe
from pipeline.storage.cache import CacheEntry, cache_entries, keys_in

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PruneLimits:
    """Which entries `prune` may remove: those that meet every limit given.

    Attributes:
        unused: Entries that no given config uses.
        older_than: Entries not used for this many seconds.
        size: The least recently used entries, until at most this many bytes are left.
    """

    unused: bool = False
    older_than: float | None = None
    size: int | None = None


def prune(root: Path, recipes: Collection[Recipe], limits: PruneLimits, dry: bool) -> list[dict[str, Any]]:
    """Remove entries within the limits, least recently used first; unreadable ones stay and are logged.

    The artifacts of `recipes` stay, together with everything they are made from. Returns a row for each entry
    removed: `stage`, `key`, `bytes`, `why`, and `removed`. With `dry`, which sets `removed` to false, nothing
    is removed, and the rows are the entries that would be.
    """
    everything = sorted(cache_entries(root), key=lambda entry: (entry.used, entry.stage, entry.key))
    needed = _needed({entry.key: entry for entry in everything}, recipes)
    left = sum(entry.bytes for entry in everything)
    rows = []
    for entry in everything:
        if not entry.readable:
            log.warning("%s: cannot be read, so it is kept", entry.folder)
            continue
        why = _reason(entry, limits, left)
        if why is None or entry.key in needed or entry.busy():
            continue
        if not dry and not entry.remove():
            continue
        left -= entry.bytes
        row = {"stage": entry.stage, "key": entry.key, "bytes": entry.bytes}
        rows.append({**row, "why": why, "removed": not dry})
    return rows


def _reason(entry: CacheEntry, limits: PruneLimits, left: int) -> str | None:
    """Why an entry may be removed; None if it may not."""
    idle = time.time() - entry.used
    why = []
    if limits.unused:
        why.append("no config given uses it")
    if limits.older_than is not None:
        if idle <= limits.older_than:
            return None
        why.append(f"not used for {format_age(idle)}")
    if limits.size is not None:
        if left <= limits.size:
            return None
        why.append("least recently used")
    return ", ".join(why) or None


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


def format_age(seconds: float) -> str:
    """A time span in its largest unit, such as `3 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds / length)} {unit}"
    return f"{int(seconds)} s"
