"""Relevance judgments, and the rules that they obey wherever they were read.

* A grade is a whole number that fits a C int, as in trec_eval.
* An id is not empty and holds no white space.
* A judgment that is given again with the same grade is merged with the first and counted; with another grade
  it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.errors import InputError, shown
from pipeline.core.records import Array, Int32, Int64
from pipeline.formats.duplicates import fingerprints, repeated_pairs
from pipeline.formats.records import Located

if TYPE_CHECKING:
    import pyarrow as pa

LOWEST_GRADE, HIGHEST_GRADE = -(2**31), 2**31 - 1
GRADE_RULE = f"a whole number from {LOWEST_GRADE} to {HIGHEST_GRADE}"

_UNFIT_ID = r"^$|[\t-\r\x1c-\x20\x{85}\p{Z}]"  # the white space of `str.split`, in RE2's words


@dataclass(frozen=True)
class Judgments(Located):
    """Relevance judgments in their source's order, each pair of query and passage once.

    Attributes:
        query_ids: Arrow strings [queries], in order of first appearance.
        queries: int32 [judgments], row in `query_ids`.
        passages: Arrow strings [judgments], ids.
        grades: int64 [judgments].
        origin, unit, numbers: See `Located`.
        repeated: How many identical judgments were merged.
    """

    query_ids: pa.Array
    queries: Int32
    passages: pa.ChunkedArray
    grades: Int64
    origin: str
    unit: str
    numbers: Int64
    repeated: int = 0


def judgments_of_columns(
    queries: pa.Array, passages: pa.Array, grades: Array, origin: str, unit: str, numbers: Int64
) -> Judgments:
    """`checked_judgments` of columns: ids as Arrow strings [judgments], grades of any type of number."""
    import pyarrow as pa

    encoded = queries.dictionary_encode()
    columns = encoded.dictionary, encoded.indices.to_numpy(), pa.chunked_array([passages]), grades
    return checked_judgments(Judgments(*columns, origin, unit, numbers))


def checked_judgments(given: Judgments) -> Judgments:
    """The same judgments, identical ones merged.

    Args:
        given: As read: pairs may be repeated, and `grades` may have any type of number.

    Raises:
        InputError: A rule of this module is broken, or there is no judgment.
    """
    if not len(given.grades):
        raise InputError(f"{given.origin}: holds no judgment", fix="check the path and the split")
    _refuse_unfit_ids(given)
    _refuse_unfit_grades(given)
    prints = np.concatenate([fingerprints(chunk) for chunk in given.passages.chunks])
    earlier, later = repeated_pairs(given.queries, given.passages, prints)
    conflicts = np.flatnonzero(given.grades[earlier] != given.grades[later])
    if conflicts.size:
        raise _contradiction(given, int(earlier[conflicts[0]]), int(later[conflicts[0]]))
    keep = np.delete(np.arange(len(given.grades)), later)
    return Judgments(
        given.query_ids,
        given.queries[keep],
        given.passages.take(keep) if later.size else given.passages,
        given.grades[keep].astype(np.int64),
        given.origin,
        given.unit,
        np.asarray(given.numbers)[keep],
        repeated=len(later),
    )


def _refuse_unfit_ids(given: Judgments) -> None:
    import pyarrow.compute as pc

    for what, ids in (("query", given.query_ids), ("passage", given.passages)):
        unfit = pc.index(pc.match_substring_regex(ids, _UNFIT_ID), True).as_py()
        if unfit < 0:
            continue
        name = ids[unfit].as_py()
        row = int(np.argmax(given.queries == unfit)) if what == "query" else unfit
        problem = f"holds white space: {shown(name)}" if name else "is empty"
        raise InputError(
            f"{given.place(row)}: the {what}'s id {problem}",
            allowed="at least one character and no white space; between columns, tabs and plain spaces",
            fix="rename it, here and in the collection, or separate the columns by tabs",
        )


def _refuse_unfit_grades(given: Judgments) -> None:
    grades: Any = given.grades
    fit = (grades >= LOWEST_GRADE) & (grades <= HIGHEST_GRADE) & (grades == np.floor(grades))
    if not fit.all():
        row = int(np.argmin(fit))
        raise InputError(
            f"{given.place(row)}: the grade is {grades[row]}", allowed=GRADE_RULE, fix="correct that grade"
        )


def _contradiction(given: Judgments, earlier: int, later: int) -> InputError:
    query, passage = given.query_ids[int(given.queries[later])].as_py(), given.passages[later].as_py()
    return InputError(
        f"{given.place(later)}: query '{query}' and passage '{passage}' have grade {given.grades[later]}, "
        f"but {given.grades[earlier]} at {given.place(earlier)}",
        allowed="one grade for each pair",
        fix="remove one of the two",
    )
