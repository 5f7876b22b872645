"""Checksums: of JSON values, which become keys, and of files that another program may write meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Array, Int64

BLOCK = 1 << 20  # bytes


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
    """SHA-256 of a user's file, as hex; an InputError if it cannot be read."""
    with _readable(path):
        return hash_file(path)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """An InputError if a user's file cannot be read."""
    try:
        yield
    except OSError as error:
        found = f"{path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check the file and its permissions") from None


def hash_blocks(path: Path, numbers: Iterable[int] | None = None) -> tuple[bytes, ...]:
    """SHA-256 of each `BLOCK` bytes of a file, or of some of them, on all cores: hashing has no lock."""
    with open(path, "rb") as file:
        handle = file.fileno()
        if numbers is None:
            numbers = range(max(-(-os.fstat(handle).st_size // BLOCK), 1))  # one even of an empty file

        def digest(number: int) -> bytes:
            return hashlib.sha256(os.pread(handle, BLOCK, number * BLOCK)).digest()

        with ThreadPoolExecutor(machine.cores()) as pool:
            return tuple(pool.map(digest, numbers))


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
        """Rows of an array of the file, in the order given, int64 [n].

        `array` is mapped from the file by `numpy.memmap`, with its attribute `offset`; or, if the file is
        packed, what was read of it.

        Raises:
            InputError: The file was changed after its blocks were hashed.
        """
        numbers, mapped = np.arange(len(self.blocks)), None
        if isinstance(array, np.memmap) and array.flags.c_contiguous and len(rows):
            starts, size = array.offset + rows * array.strides[0], array.strides[0]
            begin, end = starts // BLOCK, -(-(starts + size) // BLOCK)
            # what was cut off may not be read: the system would end this process
            if end.max() > len(numbers) or self.path.stat().st_size < starts.max() + size:
                raise file_changed(str(self.path))
            begun, ended = (np.bincount(each, minlength=len(numbers) + 1) for each in (begin, end))
            numbers, mapped = np.flatnonzero(np.cumsum(begun - ended)), getattr(array, "_mmap", None)
        found: Array = array[rows]
        if mapped:
            mapped.madvise(mmap.MADV_DONTNEED)  # the file's pages need not stay in memory
        # after the rows were read: whatever was written before that has other hashes
        if hash_blocks(self.path, numbers.tolist()) != tuple(self.blocks[number] for number in numbers):
            raise file_changed(str(self.path))
        return found
