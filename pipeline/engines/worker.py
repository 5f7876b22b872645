"""Workers of the Ray engine: the actor, and the model and its files as they are sent to it."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.core import installation, machine
from pipeline.core.records import Facts, UInt8
from pipeline.encoders.opener import Opener, TextOpener
from pipeline.engines import cluster
from pipeline.engines.base import Content, Job
from pipeline.engines.cluster import Handle
from pipeline.engines.pool import Tally
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store, user_store

SHIPPED_BYTES = 64 << 20  # bytes of a file that travel at once


@dataclass(frozen=True)
class ShippedFiles:
    """The files of a folder on the driver's machine, such as those of a model.

    A worker on that machine reads them where they are. Another machine keeps them in a store of its own,
    each file under its SHA-256, and two workers there that start at the same time write them once.

    `folder` and `node` are the driver's, and `entries` as in an artifact's manifest.
    """

    folder: Path
    entries: Mapping[str, Facts]
    node: str

    @cached_property
    def _recipe(self) -> Recipe:
        return Recipe("files", {"files": dict(self.entries)})

    def chunks(self, name: str) -> Iterator[UInt8]:
        """The bytes of a file, in order; on the driver's machine."""
        if self.entries[name]["bytes"]:
            content = np.memmap(self.folder / name, np.uint8, "r")
            for start in range(0, len(content), SHIPPED_BYTES):
                yield np.asarray(content[start : start + SHIPPED_BYTES])

    def find(self, node: str, store: Store) -> Path | None:
        """A folder with the files on this machine, which is `node`; None if they have to be sent."""
        if node == self.node and self.folder.is_dir():
            return self.folder
        return self._linked(store) if store.load(self._recipe) else None

    def write(self, store: Store, contents: Mapping[str, Iterable[UInt8]]) -> Path:
        """Write the files to this machine's store, unless another worker just did, and return their folder.

        `contents` has the `chunks` of each file by its name.
        """

        def build(draft: Draft) -> Facts:
            for name, entry in self.entries.items():
                with draft.file(entry["sha256"]) as path, open(path, "wb") as file:
                    for chunk in contents[name]:
                        file.write(chunk.data)
                if draft.whole[entry["sha256"]] != entry:
                    raise ChildProcessError(f"{name} was damaged on its way to this machine")
            return {"from": str(self.folder)}

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


@dataclass(frozen=True)
class WorkerModel:
    """A model as it is sent to a worker."""

    opener: Opener
    # Those of the converted model, or else of the model's own folder; None if that is on the hub.
    files: ShippedFiles | None
    prepared: bool  # whether the files are those of the converted model

    @classmethod
    def of(cls, opener: Opener, artifact: Artifact | None) -> WorkerModel:
        """A model, with the artifact of the converted one if its backend converts it."""
        model, files = opener.model, None
        if isinstance(opener, TextOpener):  # the corpus is on this machine, and the model is calibrated
            opener = opener.calibrated_on(None)
        if artifact:
            folder, entries = artifact.folder, artifact.files
            files = ShippedFiles(folder.absolute(), entries, cluster.node_id())
        elif not model.files.repo:
            folder = model.files.small_files.absolute()
            hashes = model.files.hashes
            entries = {n: {"bytes": (folder / n).stat().st_size, "sha256": h} for n, h in hashes.items()}
            files = ShippedFiles(folder, entries, cluster.node_id())
        return cls(opener, files, artifact is not None)

    def load(self, store: Store, contents: Mapping[str, Iterable[UInt8]] | None) -> Content:
        """The loaded model; None if its files are not on this machine and `contents` are not given."""
        opener, folder = self.opener, None
        if self.files:
            folder = self.files.find(cluster.node_id(), store)
            if folder is None and contents is not None:
                folder = self.files.write(store, contents)
            if folder is None:
                return None
            if not self.prepared:
                model = opener.model
                opener = replace(opener, model=replace(model, files=replace(model.files, small_files=folder)))
        return opener.load(folder if self.prepared else None)


class Worker:
    """The actor, which holds the model and uses a number of threads.

    What can fail is left to `join`: Ray takes an error of an actor's constructor for its death.
    """

    def __init__(self, threads: int) -> None:
        # the libraries read these when they are imported
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(threads)
        self._model: Content = None
        self._store = user_store()

    def join(
        self, model: WorkerModel | None, contents: dict[str, list[Handle]] | None
    ) -> tuple[str, dict[str, str], bool | None]:
        """Load a model, if one is given; `contents` are references of its files, if they are sent.

        What jobs import on first use is imported here, so that it is not timed as a part of their work.

        Returns:
            The node's name, the versions of its packages, and whether the model is loaded: False if
            its files have to be sent first, None if there is no model to load.
        """
        for module in (*machine.LAZY, "pipeline.search.faiss_index"):
            importlib.import_module(module)
        if model and self._model is None:
            import ray

            sent = {name: map(ray.get, chunks) for name, chunks in contents.items()} if contents else None
            self._model = model.load(self._store, sent)
        loaded = self._model is not None if model else None
        return cluster.node(), installation.versions(), loaded

    def run(self, job: Job, inputs: Content) -> tuple[Content, int, str]:
        """The outputs of a part, the items that the job counted on its bar, and the node's name."""
        tally = Tally()
        (outputs,) = job(iter([inputs]), self._model, tally)
        return outputs, tally.take(), cluster.node()
