"""Search for (query, document) pairs that occur more than once, in millions of lines.

Numbering the distinct ids would find them too, and takes several times as long. Instead each pair gets a
64-bit fingerprint, and the fingerprints are sorted. Equal pairs have equal fingerprints; the few lines that
share one are then compared by their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.core.records import Int32, Int64

if TYPE_CHECKING:
    import pyarrow as pa

UInt64 = npt.NDArray[np.uint64]

_MIX_DOCUMENT = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying loses nothing
_MIX_QUERY = np.uint64(0xC2B2AE3D27D4EB4F)
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], dtype=np.uint64)  # mask of a word's first n


def repeated_keys(keys: Int64) -> tuple[Int64, Int64]:
    """The rows whose key occurs on an earlier row: the previous row with it, and the row itself."""
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    return order[again], order[again + 1]


def repeated_pairs(queries: Int32, documents: pa.ChunkedArray, prints: UInt64) -> tuple[Int64, Int64]:
    """The lines whose query and document are together on an earlier line.

    Args:
        queries: int32 [lines], numbers from 0.
        documents: Arrow strings [lines].
        prints: uint64 [lines], `fingerprints` of the documents.

    Returns:
        As `repeated_keys`; rows from 0, the second array ascending.
    """
    keys = (np.arange(queries.max(initial=0) + 1, dtype=np.uint64) * _MIX_QUERY)[queries]
    keys += prints
    ordered = np.sort(keys)
    suspects = ordered[1:][ordered[1:] == ordered[:-1]]
    if not suspects.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    lines = np.flatnonzero(np.isin(keys, suspects))
    numbered = documents.take(lines).combine_chunks().dictionary_encode()
    pairs = queries[lines].astype(np.int64) * len(numbered.dictionary) + numbered.indices.to_numpy()
    earlier, later = repeated_keys(pairs)
    ascending = np.argsort(later)
    return lines[earlier[ascending]], lines[later[ascending]]


def string_buffers(strings: pa.Array) -> tuple[Int32, npt.NDArray[np.uint8]]:
    """An Arrow string array as NumPy: offsets int32 [n + 1] into its UTF-8 bytes, uint8. No copy."""
    _, offsets, text = strings.buffers()
    window = slice(strings.offset, strings.offset + len(strings) + 1)
    return np.frombuffer(offsets, dtype=np.int32)[window], np.frombuffer(text or b"", dtype=np.uint8)


def fingerprints(ids: pa.Array) -> UInt64:
    """uint64 [ids]: equal for equal ids, and for ids of up to 8 bytes different for different ones."""
    offsets, text = string_buffers(ids)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets)
    padded = np.append(text, np.zeros(8, dtype=np.uint8))
    word_at = np.ndarray(len(text) + 1, dtype="<u8", buffer=padded.data, strides=(1,))  # at every byte
    prints = np.zeros(len(ids), dtype=np.uint64)
    rest: slice | Int64 = slice(None)  # the ids that go on
    for done in range(0, int(lengths.max(initial=0)), 8):
        word = word_at[starts[rest] + done] & _FIRST_BYTES[np.minimum(lengths[rest] - done, 8)]
        mixed = (prints[rest] ^ word) * _MIX_DOCUMENT
        prints[rest] = mixed ^ (mixed >> np.uint64(32))
        rest = np.flatnonzero(lengths > done + 8)
    return prints
