"""Who else is at it? Locks between processes, which the kernel frees when their holder dies, however it dies.

A lock is on a file. Whoever removes or replaces that file does so while holding it; whoever then gets the
lock of the old file sees that and tries the new one.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF}


class Lock:
    """A hold on a file, until `release`, or until nothing refers to it any more.

    Args:
        handle: The open, locked file; closed at the end.
    """

    def __init__(self, handle: int) -> None:
        self._close = weakref.finalize(self, os.close, handle)

    def release(self) -> None:
        """Let go; a second call does nothing."""
        self._close()


def hold(path: Path, *, shared: bool = False, wait: bool = True, create: bool = False) -> Lock | None:
    """Lock a file or folder.

    Args:
        path: What to lock.
        shared: With others who share it; without, alone. On a disk that has no locks, and for folders on one
            that locks files only, nothing is locked.
        wait: For as long as another holds it.
        create: Make the file if it is not there.

    Returns:
        The lock; None if another holds it and `wait` is off, or if there is no file.

    Raises:
        OSError: The file cannot be opened or locked.
    """
    access = os.O_RDONLY if shared or path.is_dir() else os.O_RDWR
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        try:
            handle = os.open(path, access | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
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
        if _is_still(path, handle):
            return lock


def _is_still(path: Path, handle: int) -> bool:
    """Whether an open file is the one at `path`, and not one that was removed or replaced since."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
