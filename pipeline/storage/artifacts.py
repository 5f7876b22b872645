"""What is an artifact: which key does it have, which files, and are they whole?

A stage's result lives at `<root>/<stage>/<key>/`. Its key is the SHA-256 of its recipe: the plain JSON of
everything that shaped it. Files are written to a temporary name in the same folder, flushed to disk and
renamed; beside each stands `<file>.sha256` until `manifest.json`, written last, takes the checksums over.
No manifest, no artifact; a file without its checksum is not whole. So a killed run leaves whole files
that the next run keeps, and nothing that looks finished.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.storage import disk, locks

LAYOUT = 2  # of the manifest and the folder; another number on disk is not read
MANIFEST = "manifest.json"
_SUM = ".sha256"


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
        return disk.hash_json({"stage": self.stage, **self.plain})


@dataclass(frozen=True)
class Artifact:
    """A whole, finished result on disk.

    Attributes:
        folder: Where its files are.
        manifest: `stage`, `key`, `recipe`, `files` (name -> bytes, sha256), `facts` (what the stage
            says of its result), `made` (when, how long, with what), and its own `sha256`.
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

    @property
    def bytes(self) -> int:
        """How much its files hold."""
        return sum(entry["bytes"] for entry in self.manifest["files"].values())

    def absolute(self) -> Artifact:
        """The same, found from any working folder."""
        return replace(self, folder=self.folder.absolute())

    def only(self, *names: str) -> Artifact:
        """The same with no other files than these."""
        files = {name: self.manifest["files"][name] for name in names}
        return replace(self, manifest={**self.manifest, "files": files})

    def path(self, name: str) -> Path:
        """The path of one of its files."""
        return self.folder / name

    def damaged(self) -> list[str]:
        """The files whose size or checksum is not the manifest's."""
        expected = self.manifest["files"]
        return [name for name in self.files if not _is_intact(self.path(name), expected[name])]


@dataclass
class Draft:
    """An artifact in the making. Whole files left by a killed run are already here."""

    folder: Path
    whole: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def begin(folder: Path, fresh: bool) -> Draft:
        """An empty draft, or one that keeps the intact files of an unfinished or damaged artifact.

        Files of an artifact made afresh stay until they are replaced: another process may be about to
        open them. Its manifest stays under another name, with the locks of those who use it.
        """
        draft = Draft(folder)
        manifest = {} if fresh else disk.read_json(folder / MANIFEST) or {}
        if manifest.get("layout") == LAYOUT and isinstance(manifest.get("files"), dict):
            for name, entry in manifest["files"].items():
                if _is_entry(name, entry):
                    draft._vouch(name, entry)
        with contextlib.suppress(FileNotFoundError):
            (folder / MANIFEST).rename(folder / f"{MANIFEST}.{uuid.uuid4().hex}")
        if fresh:
            for path in folder.glob("*" + _SUM):
                disk.remove(path)
        else:
            draft._recover()
        return draft

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """A temporary path to write; when the block ends well it becomes the whole file `name`.

        Raises:
            OSError: The disk refuses, whatever the block made of that.
        """
        with disk.replacing(self.folder / name) as temporary:
            yield temporary
            entry = entry_of(temporary)
            self._vouch(name, entry)
        self.whole[name] = entry

    def adopt(self, path: Path, name: str, entry: dict[str, Any]) -> None:
        """Make a finished file, such as one from `aside`, the whole file `name`.

        Args:
            path: On the same disk as the draft; moved.
            name: What it is called from now on.
            entry: Its size and checksum (see `entry_of`).
        """
        self._vouch(name, entry)
        disk.put_in_place(path, self.folder / name)
        self.whole[name] = entry

    def _vouch(self, name: str, entry: dict[str, Any]) -> None:
        """Lay a file's checksum beside it, before the file itself has its name."""
        disk.write_whole(self.folder / (name + _SUM), disk.canonical(entry).encode())

    @contextlib.contextmanager
    def aside(self) -> Iterator[Path]:
        """A folder for what is not part of the result; removed afterwards, by the next run if need be."""
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _recover(self) -> None:
        """Keep the files whose checksum stands beside them and holds."""
        for path in sorted(self.folder.iterdir()):
            entry = disk.read_json(path.with_name(path.name + _SUM))
            if entry and _is_entry(path.name, entry) and _is_intact(path, entry):
                self.whole[path.name] = entry
        self._remove_others()

    def finish(self, recipe: Recipe, facts: dict[str, Any], made: dict[str, Any]) -> Artifact:
        """Write the manifest, last: from now on it is an artifact."""
        manifest = {
            "layout": LAYOUT,
            "stage": recipe.stage,
            "key": recipe.key,
            "recipe": recipe.plain,
            "files": self.whole,
            "facts": facts,
            "made": made,
        }
        manifest["sha256"] = disk.hash_json(manifest)
        self._remove_others()
        disk.write_whole(self.folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        for path in self.folder.glob("*" + _SUM):
            disk.remove(path)
        return Artifact(self.folder, manifest)

    def _remove_others(self) -> None:
        """Remove what is not whole, unless a process uses what was made before: then `prune` will."""
        kept = {*self.whole, *(name + _SUM for name in self.whole)}
        if all(locks.hold(path, wait=False) for path in manifests(self.folder)):
            for path in self.folder.iterdir():
                if path.name not in kept:
                    disk.remove(path)


def manifests(folder: Path) -> list[Path]:
    """The manifest in an artifact's folder, and those it replaced: a process may still use what they list."""
    return list(folder.glob(MANIFEST + "*"))


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest in an artifact's folder, if it is of this layout and not a byte of it was changed.

    Raises:
        OSError: It is there, and cannot be read.
    """
    manifest = disk.read_json(folder / MANIFEST)
    if not manifest or manifest.get("layout") != LAYOUT:
        return None
    content = {name: value for name, value in manifest.items() if name != "sha256"}
    try:
        return manifest if manifest.get("sha256") == disk.hash_json(content) else None
    except ValueError:  # NaN and infinity, which JSON does not have and Python reads
        return None


def entry_of(path: Path) -> dict[str, Any]:
    """What a manifest says of a file: its size and checksum."""
    return {"bytes": path.stat().st_size, "sha256": disk.hash_file(path)}


def _is_entry(name: str, entry: Any) -> bool:
    """Whether a checksum record is well formed, and of a file in its own folder."""
    return Path(name).name == name and isinstance(entry, dict) and {"bytes", "sha256"} <= set(entry)


def _is_intact(path: Path, entry: dict[str, Any]) -> bool:
    try:
        same_size = path.is_file() and path.stat().st_size == entry["bytes"]
        return same_size and disk.hash_file(path) == entry["sha256"]
    except OSError:  # what cannot be read is no use either
        return False
