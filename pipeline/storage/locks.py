"""Locks between processes."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from pathlib import Path

from pipeline.core.errors import InputError

try:
    import fcntl
except ImportError:
    raise InputError("benchmarco runs on Linux and macOS, and on Windows inside WSL") from None

_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF}


class Lock:
    """A lock between processes: flock(2), which the kernel releases when the holder ends, however it ends.

    It is held until `release` or garbage collection.
    """

    def __init__(self, handle: int) -> None:
        # Closing the file releases its lock; a second call does nothing.
        self.release = weakref.finalize(self, os.close, handle)


def hold(path: Path, *, shared: bool = False, wait: bool = True, create: bool = False) -> Lock | None:
    """Lock a file or folder.

    Args:
        path: The file or folder.
        shared: Allow other shared locks at the same time. Where the file system has no locks, a shared lock
            and one on a folder are granted without locking anything.
        wait: Wait while another process holds it.
        create: Create the file and its folder if they do not exist.

    Returns:
        The lock; None if there is no such file, or if another process holds it and `wait` is off.
    """
    access = os.O_RDONLY if shared or path.is_dir() else os.O_RDWR
    kind = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    # O_NONBLOCK: opening a pipe in the file's place would wait for its other end.
    flags = access | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_CREAT if create else 0)
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
        held = Lock(handle)
        try:
            fcntl.flock(handle, kind)
        except BlockingIOError:
            return None
        except OSError as error:
            if not (shared or path.is_dir()) or error.errno not in _UNSUPPORTED:
                raise
        # The holder may have removed or replaced the file while this process waited. Then this lock is on a
        # file without a name, and the next process would lock the new file beside it: start again.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return held
