"""Files of a folder that are sent to workers, once to each machine, and kept there by their checksum."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.records import UInt8
from pipeline.storage.artifacts import Draft, Recipe
from pipeline.storage.store import Store

CHUNK = 64 << 20  # bytes of a file that travel at once


@dataclass(frozen=True)
class ShippedFiles:
    """The files of a folder on the driver's machine, such as those of a model.

    A worker on that machine reads them where they are. Another machine keeps them in a store of its own,
    each file under its SHA-256, and two workers there that start at the same time write them once.

    Attributes:
        folder: The folder on the driver's machine, absolute.
        entries: The size and checksum of each file by its name in the folder, as in an artifact's manifest.
        node: The id of the driver's node.
    """

    folder: Path
    entries: Mapping[str, dict[str, Any]]
    node: str

    @cached_property
    def _recipe(self) -> Recipe:
        return Recipe("files", {"files": dict(self.entries)})

    def chunks(self, name: str) -> Iterator[UInt8]:
        """The bytes of a file, in order; on the driver's machine."""
        if self.entries[name]["bytes"]:
            content = np.memmap(self.folder / name, np.uint8, "r")
            for start in range(0, len(content), CHUNK):
                yield np.asarray(content[start : start + CHUNK])

    def find(self, node: str, store: Store) -> Path | None:
        """A folder with the files on this machine, which is `node`; None if they have to be sent."""
        if node == self.node and self.folder.is_dir():
            return self.folder
        return self._linked(store) if store.load(self._recipe) else None

    def write(self, store: Store, contents: Mapping[str, Iterable[UInt8]]) -> Path:
        """Write the files to this machine's store, unless another worker just did, and return their folder.

        `contents` has the `chunks` of each file by its name.
        """

        def build(draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
            for name, entry in self.entries.items():
                with draft.file(entry["sha256"]) as path, open(path, "wb") as file:
                    for chunk in contents[name]:
                        file.write(chunk.data)
                if draft.whole[entry["sha256"]] != entry:
                    raise ChildProcessError(f"{name} was damaged on its way to this machine")
            return {}, {"from": str(self.folder)}

        store.make(self._recipe, build)
        return self._linked(store)

    def _linked(self, store: Store) -> Path:
        """A folder in which each file has its name: a link to where its content is."""
        kept = store.folder(self._recipe).absolute()
        folder = store.root.absolute() / ".models" / self._recipe.key
        for name, entry in self.entries.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            link = folder / f"{name}.{uuid.uuid4().hex}"
            link.symlink_to(kept / entry["sha256"])
            os.replace(link, folder / name)
        return folder


def node_store() -> Store:
    """Where this machine keeps files that were sent to it: a cache like any other, of this user."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Store(Path(caches) / "benchmarco")
