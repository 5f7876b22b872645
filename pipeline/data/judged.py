"""Which queries and passages are judged? Ids become numbers once; a pair is judged at most once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Int64
from pipeline.formats.source import Judgments

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Judged:
    """Judgments with their ids numbered in order of first appearance, each pair once.

    Attributes:
        query_numbers: Query id -> number.
        passage_numbers: Passage id -> number.
        queries: int64 [j], number of the query.
        passages: int64 [j], number of the passage.
        grades: int64 [j].
        repeated: How many identical judgments were merged.
    """

    query_numbers: dict[str, int]
    passage_numbers: dict[str, int]
    queries: Int64
    passages: Int64
    grades: Int64
    repeated: int


def merge(judgments: Judgments) -> Judged:
    """Number the ids and merge identical judgments.

    Raises:
        InputError: One pair is judged twice with different grades, or there is no judgment.
    """
    if not len(judgments.grades):
        raise InputError(f"{judgments.origin}: holds no judgment", fix="check data.path and data.split")
    query_numbers, queries = _numbered(judgments.queries)
    passage_numbers, passages = _numbered(judgments.passages)
    pairs = queries * len(passage_numbers) + passages
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(pairs[order][1:] == pairs[order][:-1])
    earlier, later = order[again], order[again + 1]
    if (conflict := np.flatnonzero(judgments.grades[earlier] != judgments.grades[later])).size:
        raise _conflict(judgments, int(earlier[conflict[0]]), int(later[conflict[0]]))
    keep = np.ones(len(pairs), dtype=np.bool_)
    keep[later] = False
    grades = judgments.grades[keep]
    return Judged(query_numbers, passage_numbers, queries[keep], passages[keep], grades, len(later))


def _numbered(ids: pa.Array) -> tuple[dict[str, int], Int64]:
    encoded = ids.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    return {name: number for number, name in enumerate(names)}, encoded.indices.to_numpy().astype(np.int64)


def _conflict(judgments: Judgments, earlier: int, later: int) -> InputError:
    query, passage = judgments.queries[later].as_py(), judgments.passages[later].as_py()
    return InputError(
        f"{judgments.place(later)}: query '{query}' and passage '{passage}' have grade "
        f"{judgments.grades[later]}, but {judgments.grades[earlier]} at {judgments.place(earlier)}",
        allowed="one grade for each pair",
        fix="remove one of the two",
    )
