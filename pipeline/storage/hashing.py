"""Hashes: of JSON values, which become keys, and of files, which others may write meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core import machine
from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.records import Array, Int64  # it imports NumPy, for which no command waits

HASHED_BYTES = 1 << 20  # bytes


def hash_json(value: object) -> str:
    """SHA-256 of a value's canonical JSON, as hex: its keys are sorted, so equal values have equal hashes.

    Raises:
        ValueError: It holds NaN or infinity, which JSON does not have.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_user_file(path: Path) -> str:
    """SHA-256 of a user's file, as hex.

    Raises:
        InputError: It cannot be read, or is a pipe or a device, which could be read without end.
    """
    with _readable(path):
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a file with an end", allowed="a regular file", fix="replace it")
        return hash_file(path)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """An InputError if a user's file cannot be read."""
    try:
        yield
    except OSError as error:
        found = f"{path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check the file and its permissions") from None


def file_changed(what: str) -> InputError:
    """The error for a user's files whose hash differs from the one at the start of this run."""
    return InputError(
        f"{what} changed while the run was reading it",
        allowed="files that stay as they are while a run reads them",
        fix="run again",
    )


@dataclass(frozen=True)
class VerifiedFile:
    """A user's file of arrays, which must stay as it was when its hash was computed, at its first use.

    What is stored under a key must be made of the bytes that the key was made from, and another program may
    write to the file meanwhile.
    """

    path: Path

    @cached_property
    def _hashed(self) -> tuple[tuple[int, ...], str]:
        def digest(start: int) -> bytes:  # on all cores: hashing has no lock of Python's
            return hashlib.sha256(os.pread(handle, HASHED_BYTES, start)).digest()

        with _readable(self.path), open(self.path, "rb") as file, ThreadPoolExecutor(machine.cores()) as pool:
            handle = file.fileno()
            # Where a program writes through memory, the file's times change at its first write to a page
            # since that page has reached the disk.
            with contextlib.suppress(OSError):
                os.fsync(handle)
            before = self._state()
            starts = range(0, max(os.fstat(handle).st_size, 1), HASHED_BYTES)  # one even of an empty file
            return before, hashlib.sha256(b"".join(pool.map(digest, starts))).hexdigest()

    def _state(self) -> tuple[int, ...]:
        """What changes when a program writes to the file, or puts another in its place."""
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    @property
    def hash(self) -> str:
        """A hash of the whole file, as hex."""
        return self._hashed[1]

    def take(self, array: Array, rows: Int64) -> Array:
        """Rows, int64 [n], of an array [all rows, ...] that is read or mapped from the file, in their order.

        Raises:
            InputError: The file was changed after it was hashed.
        """
        import numpy as np

        before, found = self._hashed[0], array[rows]
        with _readable(self.path):
            if self._state() != before:
                raise file_changed(str(self.path))
        machine.release_pages(array)
        return np.asarray(found)
