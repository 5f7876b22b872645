"""Checks of a collection's ids: fit for TREC files, and no duplicates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Int64
from pipeline.formats.records import Batch, refuse_unfit_ids


def checked(read: Callable[[], Iterator[Batch]], what: str) -> Iterator[Batch]:
    """The batches of `read`, the ids of each checked; after the last, all are checked for duplicates.

    Only a 64-bit hash of each id is kept. If two are equal, `read` is called again to name the ids.

    Raises:
        InputError: An id is unfit (`refuse_unfit_ids`) or a duplicate, or there is no record at all.
    """
    hashes = []
    origin = ""
    for batch in read():
        ids = batch.ids.to_pylist()
        refuse_unfit_ids(ids, what, batch.place)
        hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
        origin = batch.origin
        yield batch
    if not any(map(len, hashes)):
        raise InputError(f"{origin or 'the source'}: has no {what}", fix="check data.path and data.split")
    _refuse_duplicates(np.concatenate(hashes), read, what)


def numbers_of(batch: Batch, numbers: dict[str, int]) -> Int64:
    """int64 [n]: the number of each record's id, -1 for an id without one."""
    return np.fromiter(map(numbers.get, batch.ids.to_pylist(), repeat(-1)), np.int64, len(batch))


def _refuse_duplicates(hashes: Int64, read: Callable[[], Iterator[Batch]], what: str) -> None:
    """Refuse two equal ids; `hashes` is sorted in place."""
    hashes.sort()
    suspects = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    if not suspects:
        return
    first: dict[str, str] = {}
    for batch in read():
        for row, name in enumerate(batch.ids.to_pylist()):
            if hash(name) not in suspects:
                continue
            if name in first:
                raise InputError(
                    f"{batch.place(row)}: {what} id '{name}' is a duplicate; first at {first[name]}",
                    allowed="each id once",
                    fix="remove or rename one of them",
                )
            first[name] = batch.place(row)
