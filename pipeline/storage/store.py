"""Where are artifacts kept, and who may make one? A folder of them, for any number of processes.

One process makes an artifact, and others that want the same wait for it; what a process uses is not removed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.storage import locks
from pipeline.storage.artifacts import MANIFEST, Artifact, Draft, Recipe, read_manifest

log = logging.getLogger(__name__)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Around code that reads an artifact: where that fails, other things help than where writing does."""
    try:
        yield
    except (IsADirectoryError, PermissionError) as error:
        error.add_note("make it readable, or remove it, or name another folder with --set cache=DIR")
        raise


class Store:
    """A folder of artifacts.

    What a store has loaded or made is protected from `remove`, in this and other processes, as long as
    the store exists.

    Args:
        root: The folder; made when the first artifact is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._in_use: dict[str, locks.Lock] = {}
        self._told: set[Path] = set()  # of whose damage was spoken, to do it once

    def folder(self, recipe: Recipe) -> Path:
        """Where the artifact of `recipe` is, or would be."""
        return self.root / recipe.stage / recipe.key

    @_reading()
    def find(self, recipe: Recipe) -> Artifact | None:
        """The finished artifact of `recipe`; its files' presence and sizes are checked, not their bytes.

        Raises:
            OSError: Its folder or its manifest cannot be read.
        """
        folder = self.folder(recipe)
        manifest = read_manifest(folder)
        if not manifest or (manifest["stage"], manifest["key"]) != (recipe.stage, recipe.key):
            return None
        for name, entry in manifest["files"].items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                return None
        return Artifact(folder, manifest)

    def load(self, recipe: Recipe) -> Artifact | None:
        """The artifact, if it is there and every byte is what its manifest says; damage is told.

        Raises:
            OSError: See `find`.
        """
        folder = self.folder(recipe)
        with _reading():
            lock = locks.hold(folder / MANIFEST, shared=True)
        if lock is None:
            return None
        artifact = self.find(recipe)
        damaged = artifact.damaged() if artifact else []
        if artifact is None or damaged:
            if folder not in self._told:
                what = f"damaged: {', '.join(damaged)}" if damaged else "not whole"
                log.warning("%s: %s; making it again", folder, what)
            self._told.add(folder)
            return None
        self._in_use[recipe.key] = lock
        self.mark_used(recipe)
        return artifact

    def mark_used(self, recipe: Recipe) -> None:
        """Remember that a run had use of an artifact now: its manifest's time says when that last was."""
        with contextlib.suppress(OSError):  # not there, or the cache is read-only
            os.utime(self.folder(recipe) / MANIFEST)

    def make(
        self,
        recipe: Recipe,
        build: Callable[[Draft], tuple[dict[str, Any], dict[str, Any]]],
        fresh: bool = False,
    ) -> tuple[Artifact, bool]:
        """Build the artifact of `recipe`, unless another process just did.

        One process builds; others that want the same artifact wait for it and use it.

        Args:
            recipe: What shapes it.
            build: Writes the files into a draft; returns the facts to record about the result, and
                what to record about how it was made.
            fresh: Build even when it is there.

        Returns:
            The artifact, and whether it was already there.
        """
        with self._making(recipe):
            if not fresh and (artifact := self.load(recipe)):
                return artifact, True
            self._in_use.pop(recipe.key, None)  # this process goes over to what it makes
            draft = Draft.begin(self.folder(recipe), fresh)
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            facts, made = build(draft)
            artifact = draft.finish(recipe, facts, {"at": at, **made})
            if lock := locks.hold(artifact.folder / MANIFEST, shared=True):
                self._in_use[recipe.key] = lock
            return artifact, False

    @contextlib.contextmanager
    def _making(self, recipe: Recipe) -> Iterator[None]:
        """Be the one process that makes an artifact; its folder is there."""
        path = lock_file(self.folder(recipe))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = locks.hold(path, wait=False, create=True)
        if lock is None:
            log.warning("waiting: another process is making %s %s", recipe.stage, recipe.key[:12])
            lock = locks.hold(path, create=True)
        try:
            self.folder(recipe).mkdir(parents=True, exist_ok=True)
            yield
        finally:
            if lock:
                lock.release()


def lock_file(folder: Path) -> Path:
    """What the one process holds that makes, or removes, the artifact of a folder."""
    return folder.parent.parent / ".locks" / f"{folder.parent.name}-{folder.name}"
