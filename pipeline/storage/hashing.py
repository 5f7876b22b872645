"""Checksums: of JSON values, which become keys, and of files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from pipeline.core import machine
from pipeline.core.errors import InputError

T = TypeVar("T")

BLOCK = 1 << 20  # bytes
SMALL = 16 << 20  # bytes that are hashed as fast as it can be checked whether they changed
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
    """What is computed of a file's bytes; a large file is not read again while it stays as it is.

    Whether a file was written is told by its times, and they need help where a program writes through memory
    that it has mapped (`np.memmap`). Linux sets the times when such a page is written for the first time
    after it was flushed to the disk. So the file is flushed before its times are read, and a later write
    moves them. Memory file systems (tmpfs) have no disk and never set the times: for them, a word of each
    page is compared too. That finds an array that is written anew, and can miss a single number. Small
    files are always read, as that takes no longer than the check.
    """
    try:
        with open(path, "rb") as file:  # opening makes a network file system ask its server for the times
            with contextlib.suppress(OSError):  # a file system without it, or one that is read-only
                os.fsync(file.fileno())
            now = os.fstat(file.fileno())
            if now.st_size <= SMALL or time.time_ns() - now.st_ctime_ns < SETTLED:
                return compute(path)
            stamp = (
                now.st_dev,
                now.st_ino,
                now.st_size,
                now.st_mtime_ns,
                now.st_ctime_ns,
                _sample(file.fileno()),
            )
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
