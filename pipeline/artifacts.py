"""Where are results kept, under which key, and are they whole? The only code that knows artifact paths.

A stage's result lives at `<root>/<stage>/<key>/`. Its key is the SHA-256 of its recipe: the plain JSON of
everything that shaped it. Files are written to a temporary name in the same folder, flushed to disk and
renamed; beside each stands `<file>.sha256` until `manifest.json`, written last, takes the checksums over.
No manifest, no artifact; a file without its checksum is not whole. So a killed run leaves whole files
that the next run keeps, and nothing that looks finished.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

LAYOUT = 1  # of the manifest and the folder; another number on disk is not read
MANIFEST = "manifest.json"
_SUM = ".sha256"
_TEMPORARY = ".tmp"


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Recipe:
    """What shapes one artifact.

    Attributes:
        stage: The stage that makes it; names its folder.
        plain: JSON values: schema version, settings, keys of what it is made from, identities.
    """

    stage: str
    plain: dict[str, Any]

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical recipe, as 64 hex digits."""
        return hashlib.sha256(canonical({"stage": self.stage, **self.plain}).encode()).hexdigest()


@dataclass(frozen=True)
class Artifact:
    """A whole, finished result on disk.

    Attributes:
        folder: Where its files are.
        manifest: `stage`, `key`, `recipe`, `files` (name -> bytes, sha256), `facts` (what the stage
            says of its result) and `made` (when, how long, with what).
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """What the stage recorded about its result."""
        facts: dict[str, Any] = self.manifest["facts"]
        return facts

    @property
    def files(self) -> list[str]:
        """Names of its files, sorted."""
        return sorted(self.manifest["files"])

    def path(self, name: str) -> Path:
        """The path of one of its files."""
        return self.folder / name

    def damaged(self, names: list[str] | None = None) -> list[str]:
        """The files (of `names`, or of all) whose size or checksum is not the manifest's."""
        return [name for name in names or self.files if not self._intact(name)]

    def _intact(self, name: str) -> bool:
        expected, path = self.manifest["files"][name], self.folder / name
        return (
            path.is_file()
            and path.stat().st_size == expected["bytes"]
            and hash_file(path) == expected["sha256"]
        )


@dataclass
class Draft:
    """An artifact in the making. Whole files left by a killed run are already here."""

    folder: Path
    whole: dict[str, dict[str, Any]] = field(default_factory=dict)

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """A temporary path to write; when the block ends well it becomes the whole file `name`."""
        temporary = self.folder / (name + _TEMPORARY)
        try:
            yield temporary
            _flush(temporary)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        entry = {"bytes": temporary.stat().st_size, "sha256": hash_file(temporary)}
        write_whole(self.folder / (name + _SUM), canonical(entry).encode())
        os.replace(temporary, self.folder / name)
        _flush(self.folder)
        self.whole[name] = entry

    def _recover(self) -> None:
        """Keep the files whose checksum stands beside them and holds; remove everything else."""
        for path in sorted(self.folder.iterdir()):
            if path.suffix == _SUM or path.name in self.whole:
                continue
            entry = _read_json(path.with_name(path.name + _SUM))
            if entry and path.stat().st_size == entry["bytes"] and hash_file(path) == entry["sha256"]:
                self.whole[path.name] = entry
            else:
                path.unlink()
        for path in self.folder.glob("*" + _SUM):
            if path.name.removesuffix(_SUM) not in self.whole:
                path.unlink()

    def _finish(self, recipe: Recipe, facts: dict[str, Any], made: dict[str, Any]) -> Artifact:
        manifest = {
            "layout": LAYOUT,
            "stage": recipe.stage,
            "key": recipe.key,
            "recipe": recipe.plain,
            "files": self.whole,
            "facts": facts,
            "made": made,
        }
        write_whole(self.folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        for name in self.whole:
            (self.folder / (name + _SUM)).unlink(missing_ok=True)
        return Artifact(self.folder, manifest)


class Store:
    """A folder of artifacts.

    Args:
        root: The folder; made when the first artifact is.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, recipe: Recipe) -> Path:
        """Where the artifact of `recipe` is, or would be."""
        return self.root / recipe.stage / recipe.key

    def find(self, recipe: Recipe) -> Artifact | None:
        """The finished artifact of `recipe`; its files' presence and sizes are checked, not their bytes."""
        folder = self.folder(recipe)
        manifest = _read_json(folder / MANIFEST)
        if not manifest or manifest.get("layout") != LAYOUT or manifest.get("key") != recipe.key:
            return None
        for name, entry in manifest["files"].items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                return None
        return Artifact(folder, manifest)

    def load(self, recipe: Recipe) -> Artifact | None:
        """The artifact, if it is there and every byte is what its manifest says; damage is told."""
        artifact = self.find(recipe)
        if artifact is None:
            if (self.folder(recipe) / MANIFEST).exists():
                log.warning("%s is not whole; making it again", self.folder(recipe))
            return None
        if damaged := artifact.damaged():
            log.warning("%s: damaged: %s; making it again", artifact.folder, ", ".join(damaged))
            return None
        return artifact

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
        folder = self.folder(recipe)
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock(recipe):
            if not fresh and (artifact := self.load(recipe)):
                return artifact, True
            self._unfinish(folder, fresh)
            draft = Draft(folder)
            draft._recover()
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            facts, made = build(draft)
            return draft._finish(recipe, facts, {"at": at, **made}), False

    def _unfinish(self, folder: Path, fresh: bool) -> None:
        """Turn a damaged artifact back into a draft that keeps its intact files, or an empty one."""
        manifest = _read_json(folder / MANIFEST)
        if fresh or (manifest and manifest.get("layout") != LAYOUT):
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder)
            folder.mkdir()
            return
        for name, entry in (manifest or {}).get("files", {}).items():
            write_whole(folder / (name + _SUM), canonical(entry).encode())
        (folder / MANIFEST).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _lock(self, recipe: Recipe) -> Iterator[None]:
        """Hold the artifact's lock; the kernel frees it when its holder dies."""
        locks = self.root / ".locks"
        locks.mkdir(exist_ok=True)
        lock = FileLock(locks / f"{recipe.stage}-{recipe.key}")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.warning("waiting: another process is making %s %s", recipe.stage, recipe.key[:12])
            lock.acquire()
        try:
            yield
        finally:
            lock.release()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that it is either whole under its name or not there."""
    temporary = path.with_name(path.name + _TEMPORARY)
    temporary.write_bytes(content)
    _flush(temporary)
    os.replace(temporary, path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    """Ask the disk to keep what was written to a file, or which names a folder holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
