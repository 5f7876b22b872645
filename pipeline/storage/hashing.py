"""Hashes: of JSON values, which become keys, and of files, which others may write meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

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


def hash_file(path: Path, in_pieces: bool = False) -> str:
    """SHA-256 of a file's bytes, as hex, or of the hashes of its pieces.

    Raises:
        InputError: It cannot be read, or is a pipe or a device, which could be read without end.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a file with an end", allowed="a regular file", fix="replace it")
        with open(path, "rb") as file:
            return _hash_pieces(file) if in_pieces else hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        found = f"{path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check the file and its permissions") from None


def _hash_pieces(file: BinaryIO) -> str:
    """SHA-256 of the hashes of a file's pieces, on all cores: hashing releases Python's lock."""

    def digest(start: int) -> bytes:
        return hashlib.sha256(os.pread(file.fileno(), HASHED_BYTES, start)).digest()

    starts = range(0, max(os.fstat(file.fileno()).st_size, 1), HASHED_BYTES)  # one even of an empty file
    with ThreadPoolExecutor(machine.cores()) as pool:
        return hashlib.sha256(b"".join(pool.map(digest, starts))).hexdigest()


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
        # Where a program writes through memory, the file's times change at its first write to a page since
        # that page has reached the disk.
        with contextlib.suppress(OSError), open(self.path, "rb") as file:
            os.fsync(file.fileno())
        return self._state(), hash_file(self.path, in_pieces=True)

    def _state(self) -> tuple[int, ...]:
        """What changes when a program writes to the file, removes it, or puts another in its place."""
        with contextlib.suppress(OSError):
            status = self.path.stat()
            return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return ()

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
        if self._state() != before:
            raise file_changed(str(self.path))
        machine.release_pages(array)
        return np.asarray(found)
