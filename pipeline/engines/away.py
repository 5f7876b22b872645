"""What do a job and a model read, and where does a worker find it that does not see the driver's disk?

The driver sends both without a path of its own: each file stands there as its size and checksum, is put in
the exchange before, and is brought to the worker's machine when it is first opened.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pipeline.config import ModelSettings
from pipeline.encoders import Encoder, Model, Precomputed, Source
from pipeline.engines import Job, Part, Piece
from pipeline.engines.exchange import Exchange, node_store, take_name
from pipeline.engines.work import perform
from pipeline.models.files import BUNDLED, Files, find_model
from pipeline.storage import hashing
from pipeline.storage.artifacts import Artifact

Entry = dict[str, Any]
"""A file's size and checksum (see `pipeline.storage.artifacts.entry_of`)."""
Bring = Callable[[Entry], Path]
"""Brings a file to this machine."""
_NOWHERE = Path("not-here")


@dataclass(frozen=True)
class FilesAway(Files):
    """The files of a model in a folder that is not on this machine.

    Attributes:
        entries: Each by its name in the folder.
        bring: Set where they are wanted.
        root: Where the folder is put together.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    bring: Bring | None = None
    root: Path = _NOWHERE

    def folder(self) -> Path:
        """A folder here with all of them."""
        if self.bring is None:
            raise ValueError("nobody brings these files")
        folder = self.root / ".models" / hashing.hash_json(dict(self.entries))
        for name, entry in self.entries.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            link = folder / f"{name}.{uuid.uuid4().hex}"
            link.symlink_to(self.bring(entry))
            os.replace(link, folder / name)
        return folder


@dataclass(frozen=True)
class ArtifactAway(Artifact):
    """An artifact that is not on this machine.

    Attributes:
        bring: What brings a file of it.
    """

    bring: Bring

    def path(self, name: str) -> Path:
        """The path of one of its files, here."""
        return self.bring(self.manifest["files"][name])


class Sender:
    """The driver's end.

    Args:
        url: Of the exchange.

    Raises:
        InputError: It cannot be used from here.
    """

    def __init__(self, url: str) -> None:
        name, self._lock = take_name()
        self.exchange, self.place = Exchange(url, name), (url, name)
        self.exchange.open()

    def job(self, job: Job) -> Job:
        """A job as it is sent; what it reads is in the exchange from now on."""
        for artifact in _read_by(job).values():
            files = artifact.manifest["files"]
            self.exchange.push((artifact.path(name), entry) for name, entry in files.items())
        return _with(job, lambda artifact: Artifact(_NOWHERE, artifact.manifest))

    def source(self, source: Source) -> Source:
        """A model as it is sent."""
        if isinstance(source, Precomputed):
            return Precomputed({})
        if not isinstance(source, Model) or source.files.local is None:
            return source
        entries = {name: entry for name, _, entry in _files(source)}
        return replace(source, files=FilesAway(entries=entries), corpus=None)

    def push(self, source: Source) -> None:
        """Put a model's own files in the exchange."""
        self.exchange.push((path, entry) for _, path, entry in _files(source))

    def take(self, piece: Piece, folder: Path) -> Piece | None:
        """A finished piece, brought into a folder here; None if it is not whole."""
        path = folder / piece.path.name
        return replace(piece, path=path) if self.exchange.take(path, piece.entry) else None

    def close(self) -> None:
        """Leave nothing in the exchange but what later runs may read."""
        self.exchange.close()
        self._lock.release()


class Receiver:
    """A worker's end.

    Args:
        url: Of the exchange.
        driver: The driver's name there.
    """

    def __init__(self, url: str, driver: str) -> None:
        self.exchange, self.store = Exchange(url, driver), node_store()
        self._here: dict[str, Path] = {}

    def bring(self, entry: Entry) -> Path:
        """A file of the exchange, on this machine; its bytes are compared once in a worker's life."""
        key = entry["sha256"]
        if key not in self._here:
            self._here[key] = self.exchange.fetch(entry, self.store)
        return self._here[key]

    def source(self, config: ModelSettings, source: Source) -> Source:
        """A model as it was sent, whose files are brought when it is loaded.

        Raises:
            InputError: It comes in a package that this machine does not have.
        """
        if not isinstance(source, Model) or not isinstance(source.files, FilesAway):
            return source
        if source.name in BUNDLED:
            files = find_model(config.name, config.revision, source.trust_remote_code)
            return replace(source, files=files)
        root = self.store.root.absolute()
        return replace(source, files=replace(source.files, bring=self.bring, root=root))

    def perform(self, job: Job, encoder: Encoder, part: Part, node: str) -> Piece:
        """Do a job as it was sent, and hand in what came of it; see `pipeline.engines.work.perform`."""
        job = _with(job, lambda artifact: ArtifactAway(_NOWHERE, artifact.manifest, self.bring))
        with tempfile.TemporaryDirectory() as folder:
            piece = perform(job, encoder, part, Path(folder), node)
            self.exchange.put(piece.path)
        return replace(piece, path=Path(piece.path.name))


def _files(source: Source) -> Iterator[tuple[str, Path, Entry]]:
    """Name, path and entry of the files of a model that workers have no other way to."""
    if isinstance(source, Model) and source.files.local and source.name not in BUNDLED:
        for name, sha256 in source.identity["files"].items():
            path = source.files.local / name
            yield name, path, {"bytes": path.stat().st_size, "sha256": sha256}


def _read_by(job: Job) -> dict[str, Artifact]:
    """The job's fields that are artifacts."""
    values = {part.name: getattr(job, part.name) for part in fields(job)}
    return {name: value for name, value in values.items() if isinstance(value, Artifact)}


def _with(job: Job, change: Callable[[Artifact], Artifact]) -> Job:
    """The job with other artifacts."""
    return replace(job, **{name: change(artifact) for name, artifact in _read_by(job).items()})
