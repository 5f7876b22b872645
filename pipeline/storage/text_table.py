"""The texts behind the rows of an artifact, by hash, so that what was made of a text is found again.

Beside its rows an artifact keeps `texts.npy`, uint64 [3, rows]: the upper and lower half of each text's hash
of 16 bytes, sorted, and the number of its row. It is memory-mapped and searched by bisection, and the texts
that are looked for are sorted too: so of a large table few pages are read, one after another.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.core.records import Array, Int64

NAME = "texts.npy"
HASH_BYTES = 16
_BATCH = 65536  # texts that are Python strings at once

UInt64 = npt.NDArray[np.uint64]


def hash_texts(texts: pa.ChunkedArray) -> UInt64:
    """uint64 [n, 2]: the upper and lower half of each text's BLAKE2b hash; equal texts have equal hashes."""
    digests = bytearray()
    for start in range(0, len(texts), _BATCH):
        for text in texts.slice(start, _BATCH).to_pylist():
            digests += hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()
    hashes: UInt64 = np.frombuffer(bytes(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    return hashes


def table_of(hashes: UInt64) -> UInt64:
    """uint64 [3, n]: the table of rows whose texts have these hashes, uint64 [n, 2]."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    return np.stack([hashes[order, 0], hashes[order, 1], order.astype(np.uint64)])


def find_rows(table: Array, hashes: UInt64) -> Int64:
    """int64 [n]: a row with each text in a table, uint64 [3, rows]; -1 where there is none.

    Args:
        table: The table, which may be memory-mapped.
        hashes: uint64 [n, 2], the hashes of the texts looked for.
    """
    upper, lower, rows = table
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    wanted = hashes[order]
    found = np.full(len(hashes), -1, np.int64)
    place = np.searchsorted(upper, wanted[:, 0])
    left = np.arange(len(hashes))
    while len(left):  # again only for a text whose hash has the same upper half as that of another
        left = left[place[left] < len(upper)]
        left = left[upper[place[left]] == wanted[left, 0]]
        same = lower[place[left]] == wanted[left, 1]
        found[order[left[same]]] = rows[place[left[same]]].astype(np.int64)
        left = left[~same]
        place[left] += 1
    return found
