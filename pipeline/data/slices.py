"""Slices of a corpus: all judged passages, then those with the lowest seeded hash of their id.

The hash depends on the id alone, so a larger slice contains the smaller one, on every machine and from every
source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator

import numpy as np
import numpy.typing as npt

from pipeline.formats.records import Batch

SEED = b"benchmarco"


def draw(passage_id: str) -> int:
    """The seeded hash of an id: the first 8 bytes of its BLAKE2b, keyed with `SEED`."""
    digest = hashlib.blake2b(passage_id.encode(), digest_size=8, key=SEED).digest()
    return int.from_bytes(digest, "big")


def sample(batches: Iterator[Batch], judged: Container[str], size: int) -> npt.NDArray[np.bool_]:
    """Choose the passages of a slice.

    Args:
        batches: The whole corpus.
        judged: Ids that are always kept.
        size: Passages to keep; more if more are judged, fewer if the corpus has fewer.

    Returns:
        bool [passages of the corpus], whether each is kept.
    """
    drawn, stays = [], []
    for batch in batches:
        ids = batch.ids.to_pylist()
        drawn.append(np.fromiter(map(draw, ids), np.uint64, len(ids)))
        stays.append(np.fromiter((name in judged for name in ids), np.bool_, len(ids)))
    keep = np.concatenate(stays)
    rest = np.flatnonzero(~keep)
    order = np.argsort(np.concatenate(drawn)[rest], kind="stable")
    keep[rest[order[: max(0, size - int(keep.sum()))]]] = True
    return keep
