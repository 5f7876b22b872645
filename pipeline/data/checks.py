"""Checks of a collection's ids: not empty, no white space, no duplicates.

A query's id may not begin with `#` either: it begins a line of a TREC file, where `#` begins a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np

from pipeline.core.errors import InputError, shown
from pipeline.core.records import Int64
from pipeline.formats.records import Batch


def checked(read: Callable[[], Iterator[Batch]], what: str) -> Iterator[Batch]:
    """The batches of `read`, the ids of each checked; after the last, all are checked for duplicates.

    Only a 64-bit hash of each id is kept. Where two are equal, the source is read again to name the ids.

    Args:
        read: Opens the batches; called a second time to name a duplicate.
        what: "passage" or "query", for the errors.

    Raises:
        InputError: An id is empty, holds white space or is a duplicate, a query's begins with `#`, or there
            is no record at all.
    """
    hashes, origin = [], ""
    for batch in read():
        ids = batch.ids.to_pylist()
        lines = "\n".join(["", *ids])
        if lines.split() != ids or (what == "query" and "\n#" in lines):
            raise _unfit(batch, ids, what)
        hashes.append(np.fromiter(map(hash, ids), np.int64, len(ids)))
        origin = batch.origin
        yield batch
    if not any(map(len, hashes)):
        raise InputError(f"{origin or 'the source'}: holds no {what}", fix="check data.path and data.split")
    _refuse_duplicates(np.concatenate(hashes), read, what)


def numbers_of(batch: Batch, numbers: dict[str, int]) -> Int64:
    """int64 [n]: the number of each record's id, -1 where `numbers` has none."""
    return np.fromiter(map(numbers.get, batch.ids.to_pylist(), repeat(-1)), np.int64, len(batch))


def _unfit(batch: Batch, ids: list[str], what: str) -> InputError:
    problems = (_problem(name, what) for name in ids)
    row, problem = next((row, problem) for row, problem in enumerate(problems) if problem)
    fit = "at least one character, no white space" + (" and no # in front" if what == "query" else "")
    return InputError(
        f"{batch.place(row)}: the {what}'s id {problem}",
        allowed=f"{fit}, as TREC files need",
        fix="rename it, here and in the judgments",
    )


def _problem(name: str, what: str) -> str:
    """What is wrong with an id; "" if nothing is."""
    if name.split() != [name]:
        return f"holds white space: {shown(name)}" if name else "is empty"
    return f"begins with #: {shown(name)}" if what == "query" and name.startswith("#") else ""


def _refuse_duplicates(hashes: Int64, read: Callable[[], Iterator[Batch]], what: str) -> None:
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
