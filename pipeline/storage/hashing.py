"""Checksums: of JSON values, which become keys, and of files that another program may write meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.records import Array, Int64

T = TypeVar("T")

BLOCK = 1 << 20  # bytes
SMALL = 16 << 20  # bytes that are hashed as fast as it can be checked whether they changed
READ_BYTES = 32 << 20  # read of a file at once
_STEP = 197  # words by which the place of the sample moves from page to page
SETTLED = 2 * 10**9  # nanoseconds after which a later write is sure to get another time from any file system


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text on every machine."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_json(value: Any) -> str:
    """SHA-256 of a value's canonical JSON, as hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_user_file(path: Path) -> str:
    """SHA-256 of a user's file, as hex; a large file is read again only if it was written since."""
    return _unless_settled(path, hash_file)


def hash_blocks(path: Path) -> tuple[bytes, ...]:
    """SHA-256 of each `BLOCK` bytes of a user's file; read again as by `hash_user_file`."""
    return _unless_settled(path, _hash_blocks)


def same_blocks(content: bytes | bytearray, first: int, expected: tuple[bytes, ...]) -> bool:
    """Whether consecutive bytes of a file, from block `first` to a block's end, are those hashed before."""
    view = memoryview(content)
    parts = (view[start : start + BLOCK] for start in range(0, len(view), BLOCK))
    digests = [hashlib.sha256(part).digest() for part in parts]
    return digests == list(expected[first : first + len(digests)])


def _unless_settled(path: Path, compute: Callable[[Path], T]) -> T:
    """`compute` of a file, which reads all its bytes; of a large file once until it is written again."""
    try:
        with open(path, "rb") as file:  # opening makes a network file system ask its server for the times
            # A program that writes through mapped memory (np.memmap) moves the file's times only with the
            # first write to a page after a flush. So the file is flushed here: a later write moves them.
            with contextlib.suppress(OSError):  # a file system without it, or one that is read-only
                os.fsync(file.fileno())
            now = os.fstat(file.fileno())
            # Small files are read, which takes no longer than the check. A file written just now may be
            # written again within the resolution of its times.
            if now.st_size <= SMALL or time.time_ns() - now.st_ctime_ns < SETTLED:
                return compute(path)
            times = (now.st_mtime_ns, now.st_ctime_ns)
            # tmpfs never moves the times of mapped files, so a word of each page is compared too. That finds
            # an array that was computed again; it can miss a single number.
            stamp = (now.st_dev, now.st_ino, now.st_size, *times, _sample(file.fileno()))
        return cast("T", _settled(path, compute, stamp))
    except OSError as error:
        found = f"{path}: cannot be read: {error.strerror}"
        raise InputError(found, fix="check the file and its permissions") from None


@cache
def _settled(path: Path, compute: Callable[[Path], Any], stamp: tuple[int | bytes, ...]) -> Any:
    """What is computed of a file with the device, inode, size, times and sample `stamp`."""
    return compute(path)


def _sample(handle: int) -> bytes:
    """A hash of one 8-byte word of each whole page of a file, at changing places."""
    with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as mapped:
        pages = len(mapped) // mmap.PAGESIZE
        per_page = mmap.PAGESIZE // 8
        words = np.frombuffer(mapped, np.uint64, pages * per_page)
        numbers = np.arange(pages)
        chosen = words[numbers * per_page + numbers * _STEP % per_page]
        del words  # a mapping in use cannot be closed
    return hashlib.sha256(chosen.tobytes()).digest()


def _hash_blocks(path: Path) -> tuple[bytes, ...]:
    """As `hash_blocks`, on all cores: hashing has no lock of Python's."""
    with open(path, "rb") as file:
        handle, size = file.fileno(), os.fstat(file.fileno()).st_size

        def digest(start: int) -> bytes:
            return hashlib.sha256(os.pread(handle, BLOCK, start)).digest()

        with ThreadPoolExecutor(machine.cores()) as pool:
            return tuple(pool.map(digest, range(0, max(size, 1), BLOCK)))  # one even of an empty file


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
        size, block = array.strides[0], BLOCK
        start = array.offset + int(rows[0]) * size
        stop = array.offset + (int(rows[-1]) + 1) * size
        first = start // block
        with open(self.path, "rb") as file:
            file.seek(first * block)
            content = file.read((-(-stop // block) - first) * block)
        if len(content) < stop - first * block or not same_blocks(content, first, self.blocks):
            raise file_changed(str(self.path))
        span = np.frombuffer(content, np.uint8)[start - first * block : stop - first * block]
        values: Array = span.view(array.dtype).reshape(-1, *array.shape[1:])[rows - rows[0]]
        return values


def _near(rows: Int64, size: int) -> Iterator[slice]:
    """Runs of ascending rows of `size` bytes that are read together: near each other, and few enough."""
    begin = 0
    far = np.flatnonzero(np.diff(rows) * size > BLOCK) + 1
    for end in [*far.tolist(), len(rows)]:
        while begin < end:
            last = int(np.searchsorted(rows[begin:end], rows[begin] + max(READ_BYTES // size, 1))) + begin
            yield slice(begin, last)
            begin = last
