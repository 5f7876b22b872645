"""Arrays in a user's file, whose bytes are hashed as they are read.

What is stored under a key must be made of the bytes that the key was made from. Another program may write to
the file meanwhile, through memory that it has mapped as well, which its times do not always show. So every
block of the file is hashed once, for the key; and each block that is read later is hashed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.core.records import Array, Int64
from pipeline.storage import hashing

READ_BYTES = 32 << 20  # of a file at once


@dataclass(frozen=True)
class VerifiedFile:
    """A file and the hashes of its blocks, computed when they are first used."""

    path: Path

    @cached_property
    def blocks(self) -> tuple[bytes, ...]:
        """SHA-256 of each block."""
        return hashing.hash_blocks(self.path)

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
            if hashing.hash_blocks(self.path) != self.blocks:
                raise hashing.file_changed(str(self.path))
            return found
        taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
        order = np.arange(len(rows)) if (np.diff(rows) >= 0).all() else np.argsort(rows, kind="stable")
        for part in _near(rows[order], array.strides[0]):
            taken[order[part]] = self._read(array, rows[order[part]])
        return taken

    def _read(self, array: np.memmap[tuple[int, ...], np.dtype[np.generic]], rows: Int64) -> Array:
        """Ascending rows that are near each other, from the blocks that they are in."""
        size, block = array.strides[0], hashing.BLOCK
        start = array.offset + int(rows[0]) * size
        stop = array.offset + (int(rows[-1]) + 1) * size
        first = start // block
        with open(self.path, "rb") as file:
            file.seek(first * block)
            content = file.read((-(-stop // block) - first) * block)
        if len(content) < stop - first * block or not hashing.same_blocks(content, first, self.blocks):
            raise hashing.file_changed(str(self.path))
        span = np.frombuffer(content, np.uint8)[start - first * block : stop - first * block]
        values: Array = span.view(array.dtype).reshape(-1, *array.shape[1:])[rows - rows[0]]
        return values


def _near(rows: Int64, size: int) -> Iterator[slice]:
    """Runs of ascending rows of `size` bytes that are read together: near each other, and few enough."""
    begin = 0
    far = np.flatnonzero(np.diff(rows) * size > hashing.BLOCK) + 1
    for end in [*far.tolist(), len(rows)]:
        while begin < end:
            last = int(np.searchsorted(rows[begin:end], rows[begin] + max(READ_BYTES // size, 1))) + begin
            yield slice(begin, last)
            begin = last
