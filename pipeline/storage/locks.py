"""Locks between processes: flock(2) on a file, released by the kernel when the holder ends, however it ends.

A file may be removed or replaced while others wait for its lock; the process that does so holds the lock.
A waiting process then gets the lock of a file that has lost its name, and would be alone with it while the
next one locks the new file. So whoever gets a lock compares the open file with the one at the path, and
starts again when they differ.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF}


class Lock:
    """A lock, held until `release` is called or the object is garbage-collected."""

    def __init__(self, handle: int) -> None:
        self._close = weakref.finalize(self, os.close, handle)  # closing the file releases its lock

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        self._close()


def hold(path: Path, *, shared: bool = False, wait: bool = True, create: bool = False) -> Lock | None:
    """Lock a file or folder.

    Args:
        path: The file or folder.
        shared: Allow other shared locks at the same time. Where the file system has no locks, a shared lock
            and one on a folder are granted without locking anything.
        wait: Wait while another process holds it.
        create: Create the file if it does not exist.

    Returns:
        The lock; None if there is no such file, or if another process holds it and `wait` is off.
    """
    access = os.O_RDONLY if shared or path.is_dir() else os.O_RDWR
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    flags = access | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_CREAT if create else 0)  # never waits for a pipe
    while True:
        try:
            handle = os.open(path, flags, 0o666)
        except FileNotFoundError:
            if create:
                raise
            return None
        lock = Lock(handle)
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            return None
        except OSError as error:
            if not (shared or path.is_dir()) or error.errno not in _UNSUPPORTED:
                raise
        if _is_at(path, handle):
            return lock


def _is_at(path: Path, handle: int) -> bool:
    """Whether an open file is the one at `path` now: it was neither removed nor replaced."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
