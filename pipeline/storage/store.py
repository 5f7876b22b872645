"""The artifact store: a folder that any number of processes may read, write and prune at once.

- Making an artifact takes an exclusive lock on `.locks/<stage>-<key>`: a second process that needs the same
  artifact waits, and then finds it finished.
- Using an artifact takes a shared lock on its manifest, until the `Store` is closed.
- Removing one takes exclusive locks on both, without waiting: what another process makes or uses stays.

The kernel releases the locks of a process that is killed; the next one continues from its unfinished draft.
Only what this package made is written over or removed. A link inside the store is refused.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.storage.artifacts import FINISHED, KIN, Artifact, Draft, Recipe, read_manifest
from pipeline.storage.whole_files import MANIFEST, remove_path

try:
    import fcntl
except ImportError:
    raise InputError("benchmarco runs on Linux and macOS, and on Windows inside WSL") from None

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF}
log = logging.getLogger(__name__)


class Lock:
    """A lock between processes: flock(2), which the kernel releases when the holder ends, however it ends.

    It is held until `release` or garbage collection.
    """

    release: Callable[[], object]


@dataclass(eq=False)
class Store:
    """A folder of artifacts.

    Those it has loaded or made cannot be removed until `close`, the end of a `with` block, or garbage
    collection.
    """

    root: Path
    _of_user: Store | None = field(default=None, init=False)
    _in_use: dict[str, Lock] = field(default_factory=dict, init=False)
    _reported: set[Path] = field(default_factory=set, init=False)  # folders whose damage was logged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes remove the artifacts; what is mapped into memory stays readable."""
        if self._of_user:
            self._of_user.close()
        while self._in_use:
            self._in_use.popitem()[1].release()

    def for_models(self, recipe: Recipe) -> Store:
        """Where a prepared model is kept: the user's store, which benchmarks of every folder share.

        It is this one if it has the artifact already, or if the user's cannot be written.
        """
        if self.find(recipe):
            return self
        self._of_user = self._of_user or user_store()
        root = self._of_user.root
        with contextlib.suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
        return self._of_user if os.access(root, os.W_OK | os.X_OK) else self

    def folder(self, recipe: Recipe) -> Path:
        """The folder of the artifact of `recipe`, which may not exist."""
        return self.root / recipe.stage / recipe.key

    def check(self, recipe: Recipe) -> None:
        """Refuse an artifact's folder if others made it, or if it, its stage's or the locks' is a link."""
        folder = self.folder(recipe)
        for path in (folder, folder.parent, making_lock(folder).parent):
            if path.is_symlink():
                raise InputError(
                    f"{path} is a link to {os.readlink(path)}",
                    allowed="folders in a cache; only the cache itself may be a link",
                    fix="remove the link, or name another folder with --set cache=DIR",
                )
        if os.path.lexists(folder) and not is_own(folder):
            raise InputError(
                f"{folder} was not created by benchmarco, and an artifact has to be stored there",
                allowed="a cache that only benchmarco writes to",
                fix="move that elsewhere, or name another folder with --set cache=DIR",
            )

    def find(self, recipe: Recipe, used: bool = False) -> Artifact | None:
        """The finished artifact of `recipe`, or None; checks that its files exist with the right sizes.

        `used` records, in the modification time of its manifest, that a run uses it now.
        """
        folder = self.folder(recipe)
        manifest = None if folder.is_symlink() or folder.parent.is_symlink() else read_manifest(folder)
        if not manifest:  # the folder may be a link, or that of another program
            self.check(recipe)
            return None
        sizes = {folder / name: entry["bytes"] for name, entry in manifest["files"].items()}
        whole = all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())
        if not whole or (manifest["stage"], manifest["key"]) != (recipe.stage, recipe.key):
            return None
        if used:
            with contextlib.suppress(OSError):  # the cache is read-only
                os.utime(folder / MANIFEST)
        return Artifact(folder, recipe.key, manifest["files"], manifest["facts"], manifest["made"])

    def load(self, recipe: Recipe) -> Artifact | None:
        """The finished artifact of `recipe`, or None; checks every byte, and logs damage."""
        folder = self.folder(recipe)
        # The lock comes before the manifest is read, and is on the file that has the name now: so what is
        # read cannot be removed any more.
        if (lock := hold(folder / MANIFEST, shared=True)) is None:
            return None
        artifact = self.find(recipe, used=True)
        damaged = artifact.damaged() if artifact else []
        if artifact and not damaged:
            self._in_use[recipe.key] = lock
            return artifact
        if folder not in self._reported:
            what = f"damaged: {', '.join(damaged)}" if damaged else "not whole"
            log.warning("%s: %s; recomputing it", folder, what)
        self._reported.add(folder)
        return None

    def find_alike(self, recipe: Recipe) -> list[Artifact]:
        """Finished artifacts whose recipes differ from this one in its texts or pairs alone.

        The most recently used come first. They cannot be removed as long as the store exists. What is not
        whole, cannot be read, is a link or is being removed is left out; of files, only sizes are checked.
        """
        alike = []
        for path in (self.root / recipe.stage).glob(f"*{recipe.key[-KIN:]}/{MANIFEST}"):
            with contextlib.suppress(OSError, InputError):
                lock = hold(path, shared=True, wait=False)
                manifest = read_manifest(path.parent) if lock else None
                artifact = self.find(Recipe(recipe.stage, manifest["recipe"])) if manifest else None
                if lock and artifact and artifact.key != recipe.key:
                    self._in_use.setdefault(artifact.key, lock)
                    alike.append((path.stat().st_mtime, artifact))
        return [artifact for _, artifact in sorted(alike, key=lambda pair: -pair[0])]

    def make(self, recipe: Recipe, build: Callable[[Draft], Facts], fresh: bool = False) -> Artifact:
        """The artifact of `recipe`, loaded or made: `build` writes its files, and returns facts about it."""
        with self.making(recipe, fresh) as draft:
            if draft.artifact is None:
                draft.facts = build(draft)
        assert draft.artifact is not None
        return draft.artifact

    @contextlib.contextmanager
    def making(self, recipe: Recipe, fresh: bool = False) -> Iterator[Draft]:
        """A draft, which becomes the artifact of `recipe` at the end of the block.

        If the artifact exists, because another process has made it meanwhile, the draft has it and nothing is
        to be written. With `fresh`, it is made even if it exists.
        """
        self.check(recipe)
        folder = self.folder(recipe)
        path = making_lock(folder)
        new = [parent for parent in (self.root, path.parent, folder.parent) if not parent.exists()]
        # The lock file stays when the lock is released: it shows that the folder was made here even before
        # it has a manifest (`is_own`), and only a process that holds the lock removes it.
        making = hold(path, wait=False, create=True)
        if making is None:
            log.warning("waiting: another process is making %s %s", recipe.stage, recipe.key[:12])
            making = hold(path, create=True)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not fresh and (existing := self.load(recipe)):
                yield Draft(folder, artifact=existing)
                return
            # This process will use the new files; its own shared lock would keep the old ones on the disk.
            self._in_use.pop(recipe.key, None)
            draft = Draft(folder)
            if any(folder.iterdir()):
                draft = Draft.begin(folder, fresh)
                remove_others(draft)
            draft.made["at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            yield draft
            draft.finish(recipe)
            if using := hold(folder / MANIFEST, shared=True):
                self._in_use[recipe.key] = using
        finally:
            with contextlib.suppress(OSError):  # it holds something, or cannot be removed
                folder.rmdir()  # nothing was written, as where the data is refused
                path.unlink()
                for parent in reversed(new):
                    parent.rmdir()
            if making:
                making.release()


def user_store() -> Store:
    """The store of this user on this machine: prepared models, and files that a cluster sent here.

    It is `$BENCHMARCO_CACHE`, or `benchmarco` in `$XDG_CACHE_HOME` or `~/.cache`. A user who has neither
    these nor a home is refused.
    """
    if named := os.environ.get("BENCHMARCO_CACHE"):
        return Store(Path(named))
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if caches.startswith("~"):
        raise InputError(
            f"user {os.getuid()} has no home: HOME is not set, and the system knows no folder of this user",
            allowed="a folder for prepared models",
            fix="set HOME, or BENCHMARCO_CACHE to a folder that stays",
        )
    return Store(Path(caches) / "benchmarco")


def is_own(folder: Path) -> bool:
    """Whether the artifact or draft in a folder was made by this package.

    It was if the folder has a valid manifest or is empty, or if it has a lock file, which is made before it.
    """
    if making_lock(folder).is_file():
        return True
    try:
        return folder.is_dir() and (read_manifest(folder) is not None or not any(folder.iterdir()))
    except OSError:  # a manifest that cannot be read: whoever opens it says so
        return True


def remove_others(draft: Draft) -> None:
    """Remove what a draft does not list, unless a process uses an earlier artifact; then `prune` will."""
    # An exclusive lock is refused while any process holds a shared one. It is dropped at once: whoever opens
    # the folder after this finds no manifest, since `Draft.begin` has renamed it.
    manifests = draft.folder.glob(f"{MANIFEST}*")  # with those that were renamed
    if any(hold(path, wait=False) is None for path in manifests):
        return
    for path in draft.folder.iterdir():
        if path.name not in (*draft.whole, FINISHED):
            remove_path(path)


def making_lock(folder: Path) -> Path:
    """The lock file that a process holds while it makes or removes the artifact in `folder`."""
    return folder.parent.parent / ".locks" / f"{folder.parent.name}-{folder.name}"


def hold(path: Path, *, shared: bool = False, wait: bool = True, create: bool = False) -> Lock | None:
    """A lock on a file or folder; None if there is no such file, or if it is held and `wait` is off.

    Others may hold `shared` locks at the same time. With `create`, the file and its folder are created where
    they do not exist. On a file system without locks, a shared lock and one on a folder do nothing.
    """
    reads = shared or path.is_dir()
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    # O_NONBLOCK: opening a pipe in the file's place would wait for its other end.
    flags = (os.O_RDONLY if reads else os.O_RDWR) | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    while True:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, flags, 0o666)
        except (FileNotFoundError, NotADirectoryError):
            if not create:
                return None
            if path.is_symlink():
                raise InputError(f"{path} is a link to a missing folder", fix="remove the link") from None
            continue  # another process has just removed the empty folder
        lock = Lock()
        lock.release = weakref.finalize(lock, os.close, handle)  # a second call does nothing
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            return None
        except OSError as error:
            if not reads or error.errno not in _UNSUPPORTED:
                raise
        # The holder may have removed or replaced the file while this process waited. Then this lock is on a
        # file without a name, and the next process would lock the new file beside it: start again.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return lock
