"""How do files reach workers that do not see this machine's disks, and results come back? By an fsspec URL.

    URL/files/SHA256    what jobs read, put there by drivers, named by its content: good for every later run
    URL/runs/DRIVER/    what one driver's workers have finished; each file goes when the driver has it

Nothing is taken that has another checksum than was said; files are streamed and never held in memory.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError
from pipeline.storage import locks, whole_files
from pipeline.storage.artifacts import Recipe, entry_of
from pipeline.storage.store import Store

MARK = "driver"  # a file of the driver's, by which a worker knows that it sees the same place
_CONTENT = "content"
_URLS = (
    "an fsspec URL that every node can read and write, such as s3://bucket/folder or file:///shared/folder"
)


class Exchange:
    """A place that driver and workers reach.

    Args:
        url: Its fsspec URL.
        driver: Names the driver's own folder there.

    Raises:
        InputError: Nothing installed here knows the URL.
    """

    def __init__(self, url: str, driver: str) -> None:
        import fsspec

        self.url, self.driver = url, driver
        try:
            self._system, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise _refusal(url, error, "install what the URL needs, or give another") from None
        root = root.rstrip("/")
        self._files, self._run = f"{root}/files", f"{root}/runs/{driver}"

    def open(self) -> None:
        """Begin as the driver: what an earlier one of the same name left is removed.

        Raises:
            InputError: The place cannot be reached, written or read.
        """
        try:
            self.close()
            for folder in (self._files, self._run):
                self._system.makedirs(folder, exist_ok=True)
            self._system.pipe_file(self._place(MARK), self.driver.encode())
        except Exception as error:  # each kind of place has errors of its own
            raise _refusal(self.url, error, "check the URL, and who may write there") from None
        self.check("here")

    def check(self, node: str) -> None:
        """Refuse a machine that does not find what the driver left.

        Raises:
            InputError: It cannot be reached from here, or it is another place.
        """
        try:
            found = self._system.cat_file(self._place(MARK))
        except Exception as error:  # as above
            raise _refusal(self.url, f"on node {node}: {error}", "check what that node can reach") from None
        if found != self.driver.encode():
            raise _refusal(self.url, f"on node {node} it is another place", "give a URL that all nodes share")

    def close(self) -> None:
        """Remove what only this driver has use of."""
        self._system.invalidate_cache()
        if self._system.exists(self._run):
            self._system.rm(self._run, recursive=True)

    def push(self, files: Iterable[tuple[Path, dict[str, Any]]]) -> None:
        """Let workers read files; those that are there already are not sent again.

        Args:
            files: Each file's path, and its size and checksum.
        """
        self._system.invalidate_cache()
        found = self._system.find(self._files, detail=True)  # which S3, where no folder is empty, can say
        there = {Path(name).name: what["size"] for name, what in found.items()}
        for path, entry in files:
            if there.get(entry["sha256"]) != entry["bytes"]:
                under_way = self._place(uuid.uuid4().hex)
                self._system.put_file(str(path), under_way)
                self._system.mv(under_way, f"{self._files}/{entry['sha256']}")

    def fetch(self, entry: dict[str, Any], store: Store) -> Path:
        """The file of a size and checksum, from a store on this machine; into which it is brought first.

        Raises:
            InputError: What is there has another checksum; it is removed, so that the next run sends it.
        """
        recipe = Recipe("files", {name: entry[name] for name in ("bytes", "sha256")})

        def bring(draft: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            source = f"{self._files}/{entry['sha256']}"
            with draft.file(_CONTENT) as path:
                self._system.get_file(source, str(path))
                if entry_of(path) != recipe.plain:
                    self._system.rm_file(source)
                    raise InputError(
                        f"engine.store: {self.url}/files/{entry['sha256']} is damaged, and was removed",
                        fix="run again: it is sent anew",
                    )
            return {}, {"from": self.url}

        artifact, _ = store.make(recipe, bring)
        return artifact.path(_CONTENT)

    def put(self, path: Path) -> None:
        """Hand the driver a finished file, under its own name."""
        self._system.put_file(str(path), self._place(path.name))

    def take(self, path: Path, entry: dict[str, Any]) -> bool:
        """Take what a worker has `put` under a path's name; whether it was whole.

        Args:
            path: Where it goes.
            entry: Its size and checksum, as the worker says.
        """
        self._system.invalidate_cache()
        place = self._place(path.name)
        if not self._system.exists(place):
            return False
        with whole_files.disk_errors_named(path):
            self._system.get_file(place, str(path))
        self._system.rm_file(place)
        return entry_of(path) == entry

    def _place(self, name: str) -> str:
        return f"{self._run}/{name}"


def node_store() -> Store:
    """Where this machine keeps what it fetched: a cache like any other, of this user."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Store(Path(caches) / "benchmarco")


def take_name() -> tuple[str, locks.Lock]:
    """A name for this driver that no other has now, and one that was killed may have had; and its lock."""
    folder = node_store().root / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    machine = f"{socket.gethostname()}-{uuid.getnode():x}-{os.getuid()}"
    number = 0
    while (lock := locks.hold(folder / f"driver-{number}", wait=False, create=True)) is None:
        number += 1
    return f"{machine}-{number}", lock


def _refusal(url: str, error: object, fix: str) -> InputError:
    said = str(error).strip().rstrip(".") or type(error).__name__
    return InputError(f"engine.store: {url}: {said}", allowed=_URLS, fix=fix)
