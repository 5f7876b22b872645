"""Checksums: of JSON values, which become keys, and of files that another program may write meanwhile."""

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

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Array, Int64

HASHED_BYTES = 1 << 20  # bytes
READ_BYTES = 32 << 20  # read of a file at once


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_json(value: object) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


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


def hash_blocks(path: Path) -> tuple[bytes, ...]:
    """SHA-256 of each `HASHED_BYTES` bytes of a file, on all cores: hashing has no lock of Python's."""
    with open(path, "rb") as file:
        handle, size = file.fileno(), os.fstat(file.fileno()).st_size

        def digest(start: int) -> bytes:
            return hashlib.sha256(os.pread(handle, HASHED_BYTES, start)).digest()

        with ThreadPoolExecutor(machine.cores()) as pool:
            return tuple(pool.map(digest, range(0, max(size, 1), HASHED_BYTES)))  # one even of an empty file


def file_changed(what: str) -> InputError:
    """The error for a user's files whose hash differs from the one at the start of this run."""
    return InputError(
        f"{what} changed while the run was reading it",
        allowed="files that stay as they are while a run reads them",
        fix="run again",
    )


@dataclass(frozen=True)
class VerifiedFile:
    """A user's file of arrays, and the hashes of its blocks, computed when they are first used.

    What is stored under a key must be made of the bytes that the key was made from, and another program may
    write to the file meanwhile. So every block is hashed once for the key, and each block that is read later
    is hashed again.
    """

    path: Path

    @cached_property
    def blocks(self) -> tuple[bytes, ...]:
        """SHA-256 of each block."""
        with _readable(self.path):
            return hash_blocks(self.path)

    @property
    def hash(self) -> str:
        """A hash of the whole file, as hex."""
        return hashlib.sha256(b"".join(self.blocks)).hexdigest()

    def take(self, array: Array, rows: Int64) -> Array:
        """Rows of an array of the file, in the order given.

        Args:
            array: [all rows, ...], mapped from the file by `numpy.memmap`, with its attribute `offset`; or,
                if the file is packed, what was read of it.
            rows: int64 [n], from 0 and below the number of rows.

        Raises:
            InputError: The file was changed after its blocks were hashed.
        """
        if not (isinstance(array, np.memmap) and array.flags.c_contiguous):
            found: Array = array[rows]
            if hash_blocks(self.path) != self.blocks:
                raise file_changed(str(self.path))
            return found
        taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
        order = np.arange(len(rows)) if (np.diff(rows) >= 0).all() else np.argsort(rows, kind="stable")
        for part in _near(rows[order], array.strides[0]):
            taken[order[part]] = self._read(array, rows[order[part]])
        return taken

    def _read(self, array: np.memmap[tuple[int, ...], np.dtype[np.generic]], rows: Int64) -> Array:
        """Ascending rows that are near each other, from the blocks that they are in."""
        size, block = array.strides[0], HASHED_BYTES
        start = array.offset + int(rows[0]) * size
        stop = array.offset + (int(rows[-1]) + 1) * size
        first = start // block
        with open(self.path, "rb") as file:
            file.seek(first * block)
            content = file.read((-(-stop // block) - first) * block)
        parts = (memoryview(content)[at : at + block] for at in range(0, len(content), block))
        digests = tuple(hashlib.sha256(part).digest() for part in parts)
        if len(content) < stop - first * block or digests != self.blocks[first : first + len(digests)]:
            raise file_changed(str(self.path))
        span = np.frombuffer(content, np.uint8)[start - first * block : stop - first * block]
        values: Array = span.view(array.dtype).reshape(-1, *array.shape[1:])[rows - rows[0]]
        return values


def _near(rows: Int64, size: int) -> Iterator[slice]:
    """Runs of ascending rows of `size` bytes that are read together: near each other, and few enough."""
    begin = 0
    far = np.flatnonzero(np.diff(rows) * size > HASHED_BYTES) + 1
    for end in [*far.tolist(), len(rows)]:
        while begin < end:
            last = int(np.searchsorted(rows[begin:end], rows[begin] + max(READ_BYTES // size, 1))) + begin
            yield slice(begin, last)
            begin = last
