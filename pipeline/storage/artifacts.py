"""Artifacts: the key, the files and the manifest of a stage's result, and the draft it is made in.

A stage's result lives at `<root>/<stage>/<key>/`. Its key is a hash of its recipe: the plain JSON of
everything that can change its bytes. The files come first and `manifest.json`, which lists them with their
sizes and checksums, comes last: a folder without a manifest is not an artifact. Every file is written under
a temporary name and renamed (`whole_files`), and its size and checksum are added to a list, `finished.jsonl`,
before the rename. What a killed process leaves, and what the next one does with it:

- while a file is written: a temporary file; removed
- before the rename: a line of the list with no file, or with an older one that it does not match; removed
- before the manifest: whole files, each with its line; checked and kept, and only the others are made
- after the manifest: a finished artifact; a list that is left over is not read

Only the manifest is flushed to the disk before it is renamed. What a power cut takes of the files that were
written just before, their checksums show, and the next run makes it again.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Array, Facts
from pipeline.storage import hashing, whole_files
from pipeline.storage.whole_files import MANIFEST

LAYOUT = 2  # version of the manifest and the folder; artifacts of another version are not read
FINISHED = "finished.jsonl"
_PARTS = {"stage": str, "key": str, "recipe": dict, "files": dict, "facts": dict, "made": dict}
"""The parts of a manifest besides its layout and its own `sha256`."""
VARYING = ("texts", "pairs")
"""Ingredients that say which texts or pairs an artifact is of; one of other texts may share rows."""
KIN = 16  # hex digits at the end of a key, which artifacts that differ in those alone share


@dataclass(frozen=True)
class Recipe:
    """Everything that can change the bytes of one artifact."""

    stage: str  # the stage that makes it, and the name of the folder it is in
    plain: Facts  # JSON values: schema version, settings, identities of files and models, keys of its inputs

    @cached_property
    def key(self) -> str:
        """64 hex digits: of the SHA-256 of the canonical recipe, and of that without `VARYING`."""
        kin = {name: value for name, value in self.plain.items() if name not in VARYING}
        whole, alike = (hashing.hash_json({"stage": self.stage, **plain}) for plain in (self.plain, kin))
        return whole[:-KIN] + alike[:KIN]


@dataclass(frozen=True)
class Artifact:
    """A finished result on disk."""

    folder: Path
    key: str
    files: Mapping[str, Facts]  # name -> bytes, sha256
    facts: Facts = field(default_factory=dict)  # what the stage recorded about its result
    made: Facts = field(default_factory=dict)  # when, how long, with what

    @cached_property
    def content(self) -> str:
        """A hash of its files' names, sizes and checksums."""
        return hashing.hash_json(self.files)

    def array(self, name: str) -> Array:
        """The array in one of its `.npy` files, memory-mapped."""
        mapped: Array = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        return mapped

    def damaged(self, names: Iterable[str] | None = None) -> list[str]:
        """Names of the files, among some or all, whose size or checksum differs from the manifest."""
        wrong = []
        for name in sorted(self.files if names is None else names):
            path, entry = self.folder / name, self.files[name]
            # what cannot be read is damage, too, and so is an entry that is none
            with contextlib.suppress(InputError, OSError, TypeError, LookupError):
                if path.stat().st_size == entry["bytes"] and hashing.hash_file(path) == entry["sha256"]:
                    continue
            wrong.append(name)
        return wrong


@dataclass
class Draft:
    """An artifact that is being made."""

    folder: Path
    # Size and checksum of each finished file, including those that a killed run left.
    whole: dict[str, Facts] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    made: Facts = field(default_factory=dict)
    # What it became; in a new draft, the artifact that another process has made meanwhile.
    artifact: Artifact | None = None

    @staticmethod
    def begin(folder: Path, fresh: bool) -> Draft:
        """An empty draft if `fresh`, else one with the intact files of an unfinished or damaged artifact.

        The folder exists, and the caller holds its lock (`Store.making`). The list is written before the
        manifest is renamed, as nothing reads one that was renamed.
        """
        draft = Draft(folder)
        if not fresh:
            manifest = whole_files.read_json_object(folder / MANIFEST) or {}
            own = {"layout": LAYOUT, "stage": folder.parent.name, "key": folder.name}
            files = manifest.get("files") if manifest.items() >= own.items() else None
            known: Facts = files if isinstance(files, dict) else {}
            with contextlib.suppress(OSError):
                for line in (folder / FINISHED).read_bytes().splitlines():
                    with contextlib.suppress(ValueError, TypeError):  # of a killed process, cut short
                        name, entry = json.loads(line)
                        known[name] = entry
            there = {path.name for path in folder.iterdir()}
            known = {name: entry for name, entry in known.items() if name in there}
            damaged = Artifact(folder, folder.name, known).damaged()
            draft.whole = {name: entry for name, entry in known.items() if name not in damaged}
        # Without a line, no old file is taken for a new one after a kill.
        if draft.whole:
            lines = (f"{json.dumps([name, entry])}\n" for name, entry in draft.whole.items())
            whole_files.write_whole(folder / FINISHED, "".join(lines).encode())
        else:
            (folder / FINISHED).unlink(missing_ok=True)
        # From here on the folder is no artifact. The manifest is renamed and not deleted: processes that use
        # the old files hold shared locks on it, at which `remove_others` and `CacheEntry.remove` look.
        with contextlib.suppress(FileNotFoundError):
            (folder / MANIFEST).rename(folder / f"{MANIFEST}.{uuid.uuid4().hex}")
        return draft

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[Path]:
        """A temporary path to write, which becomes the file `name`; see `whole_files.replacing`."""
        with whole_files.replacing(self.folder / name, lasting=False) as temporary:
            yield temporary
            # before the rename: a whole file always has a line in the list
            entry = {"bytes": temporary.stat().st_size, "sha256": hashing.hash_file(temporary)}
            with open(self.folder / FINISHED, "a", encoding="utf-8") as finished:
                finished.write(f"{json.dumps([name, entry])}\n")
        self.whole[name] = entry

    def save_array(self, name: str, array: Array) -> None:
        """Write an array as a `.npy` file."""
        with self.file(name) as path, open(path, "wb") as file:  # given a path, NumPy would append ".npy"
            np.save(file, array, allow_pickle=False)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for temporary files; removed at the end, or by the next run after a kill."""
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as folder:
            try:
                yield Path(folder)
            except Exception as error:
                if refusal := whole_files.disk_error(error, Path(folder, "file"), self.folder):
                    raise refusal from error
                raise

    def finish(self, recipe: Recipe) -> None:
        """Write the manifest, which makes the draft an artifact."""
        manifest = {"layout": LAYOUT, "stage": recipe.stage, "key": recipe.key, "recipe": recipe.plain}
        manifest |= {"files": self.whole, "facts": self.facts, "made": self.made}
        manifest["sha256"] = hashing.hash_json(manifest)
        whole_files.write_whole(self.folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        (self.folder / FINISHED).unlink(missing_ok=True)
        self.artifact = Artifact(self.folder, recipe.key, self.whole, self.facts, self.made)


def read_manifest(folder: Path) -> Facts | None:
    """The manifest in a folder; None if there is none, or of another layout, or damaged.

    Raises:
        OSError: It exists and cannot be read.
    """
    manifest = whole_files.read_json_object(folder / MANIFEST) or {}
    has_parts = all(isinstance(manifest.get(part), kind) for part, kind in _PARTS.items())
    if manifest.get("layout") != LAYOUT or not has_parts:
        return None
    contents, sources = manifest["made"].get("from_files", {}), manifest["made"].get("from") or ()
    if not isinstance(contents, dict) or any(name not in sources for name in contents):
        return None
    for name, entry in manifest["files"].items():
        if Path(name).name != name or "\0" in name or not isinstance(entry, dict):
            return None
        if not isinstance(entry.get("bytes"), int) or not isinstance(entry.get("sha256"), str):
            return None
    found = manifest.pop("sha256", None)
    with contextlib.suppress(ValueError):  # NaN or infinity: Python reads them, and canonical JSON has none
        if found == hashing.hash_json(manifest):
            return manifest
    return None
