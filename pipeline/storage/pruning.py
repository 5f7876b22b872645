"""Removal of artifacts that are no longer needed: `benchmarco cache prune`.

Whatever a running process makes or uses stays, and so does everything that a given config uses. Of the
rest, `unused` allows everything; `older_than` what no run has used for that long; `size` the least recently
used, until the cache is no larger than that. Only what every given limit allows is removed.
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
    """Which entries `prune` may remove: those that meet every limit given (see above).

    Attributes:
        unused: Entries that no given config uses.
        older_than: Entries not used for so many seconds.
        size: The least recently used entries, until so many bytes are left.
    """

    unused: bool = False
    older_than: float | None = None
    size: int | None = None


def prune(root: Path, recipes: Collection[Recipe], limits: PruneLimits, dry: bool) -> list[dict[str, Any]]:
    """Remove entries within the limits, least recently used first; unreadable ones stay and are logged.

    Args:
        root: The cache.
        recipes: Recipes whose artifacts stay, with all that those are made from.
        limits: Which others may be removed.
        dry: Remove nothing, and say what would be removed.

    Returns:
        A row for each entry removed: `stage`, `key`, `bytes`, `why`, and `removed`, which is false if `dry`.
    """
    everything = sorted(cache_entries(root), key=lambda entry: (entry.used, entry.stage, entry.key))
    needed = _needed({entry.key: entry for entry in everything}, recipes)
    left, rows = sum(entry.bytes for entry in everything), []
    for entry in everything:
        if not entry.readable:
            log.warning("%s: cannot be read, and stays", entry.folder)
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
    """Keys of the recipes' artifacts and of all that those are made from."""
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
    units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
    unit = next((unit for unit, length in units.items() if seconds >= length), "s")
    return f"{int(seconds / units[unit])} {unit}"
