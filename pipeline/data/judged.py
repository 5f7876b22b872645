"""Judgments with their ids numbered: of queries and passages, before it is known which the collection has."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.records import Int64
from pipeline.formats.judgments import Judgments


@dataclass(frozen=True)
class Judged:
    """Judgments by numbers, given to ids in order of first appearance.

    Attributes:
        query_numbers: Query id -> number.
        passage_numbers: Passage id -> number.
        queries: int64 [j], number of the query.
        passages: int64 [j], number of the passage.
        grades: int64 [j].
    """

    query_numbers: dict[str, int]
    passage_numbers: dict[str, int]
    queries: Int64
    passages: Int64
    grades: Int64


def number_ids(judgments: Judgments) -> Judged:
    """Number the ids of judgments."""
    passages = judgments.passages.combine_chunks().dictionary_encode()
    query_numbers, passage_numbers = (
        {name: number for number, name in enumerate(names.to_pylist())}
        for names in (judgments.query_ids, passages.dictionary)
    )
    return Judged(
        query_numbers,
        passage_numbers,
        judgments.queries.astype("int64"),
        passages.indices.to_numpy().astype("int64"),
        judgments.grades,
    )
