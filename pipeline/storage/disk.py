"""How does a file get to the disk whole, and how is it known to be? The primitives under `artifacts`."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError

TEMPORARY = ".tmp"
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_PROBE = 1 << 20  # bytes written to ask a disk whether it is full
SETTLED = 2 * 10**9  # nanoseconds from a write until no clock of a file system gives the next its time


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_json(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_given(path: Path) -> str:
    """SHA-256 of a file that a user gave, as hex; its bytes are read again only if it was written since.

    Raises:
        InputError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:  # opened, for then a network file system asks its server
            now = os.fstat(file.fileno())
        if time.time_ns() - now.st_ctime_ns < SETTLED:
            return hash_file(path)
        return _hash_settled(path, (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))
    except OSError as error:
        what = f"{path}: cannot be read: {error.strerror}"
        raise InputError(what, fix="check the file and its permissions") from None


@cache
def _hash_settled(path: Path, stamp: tuple[int, ...]) -> str:
    """The hash of a file that has `stamp`, and will have another when it is written next."""
    return hash_file(path)


def changed(what: str) -> InputError:
    """What to say of a user's files whose hash is no longer the one that this run began with."""
    return InputError(
        f"{what} was changed after this run had looked at it",
        allowed="files that stay as they are while a run reads them",
        fix="run again",
    )


def read_json(path: Path) -> dict[str, Any] | None:
    """A small JSON file that holds an object; None where there is none that can be read as one."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that it is either whole under its name or not there."""
    with replacing(path) as temporary, open(temporary, "xb") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write; when the block ends well, it is flushed and takes the name `path`.

    Raises:
        OSError: The disk refuses, whatever the block made of that.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        temporary.unlink(missing_ok=True)  # never written through: it may be a link to somewhere else
        with refusals_named(temporary):
            yield temporary
            put_in_place(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Give a written file its name, when all of it has reached the disk."""
    flush(temporary)
    os.replace(temporary, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Ask the disk to keep what was written to a file, or which names a folder holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def refusals_named(path: Path) -> Iterator[None]:
    """Around code that writes `path`: what the disk refuses comes out as an OSError that names the file.

    NumPy raises an OSError without a number and Faiss a RuntimeError, both silent about why the write
    failed; so the disk is asked by writing to `path`, which is given up anyway. Others name another file,
    or none.
    """
    try:
        yield
    except Exception as error:
        number = getattr(error, "errno", None)
        if not number and not isinstance(error, InputError):
            number = _probe(path)
        if number in _REFUSALS:
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def _probe(path: Path) -> int | None:
    """The number of the error that writing to a file meets, if it meets one."""
    try:
        with open(path, "ab") as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())
    except OSError as refusal:
        return refusal.errno
    return None
