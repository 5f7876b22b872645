"""Relevance judgments: the rules for them, the same for every source, and their files (qrels).

* A grade is a number, whole or not, in the range of a C int, which is trec_eval's; `1.0` is the grade 1.
* An id is fit for a TREC file: see `refuse_unfit_ids`.
* A repeated judgment is merged with the first and counted if its grade is the same, and refused if not.

A file of judgments has TREC's or BEIR's form:

    qid iteration docid grade         TREC's form
    query-id corpus-id score          BEIR's form, with or without that first line

The number of fields of the first line decides the form; the line is a header if its last field is a word
such as `score`. Blank lines and comments, which begin with `#`, are skipped. ASCII white space separates the
fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.order import MOST_BYTES
from pipeline.core.records import Array, Int32, Int64, Qrels, from_numpy
from pipeline.formats.columns import Form, read_columns, wrong_width
from pipeline.formats.texts import SourceRecords, read_blocks, refuse_unfit_ids

if TYPE_CHECKING:
    import pyarrow as pa

LOWEST_GRADE = -(2**31)
HIGHEST_GRADE = 2**31 - 1
GRADE_RULE = f"a number from {LOWEST_GRADE} to {HIGHEST_GRADE}"
_HEADER_WORDS = {"score", "relevance", "rel", "grade", "label", "judgment", "judgement"}
_DATA_LINE = re.compile(rb"^[^\S\n]*[^\s#][^\n]*", re.MULTILINE)  # neither blank nor a comment


@dataclass(frozen=True)
class Judgments(SourceRecords):
    """Relevance judgments in their source's order, each pair of query and passage once."""

    query_ids: pa.Array  # Arrow strings [queries], in order of first appearance
    queries: Int32  # int32 [judgments], row in `query_ids`
    passage_ids: pa.Array  # Arrow strings [passages], in order of first appearance; large strings above 2 GiB
    passages: Int32  # int32 [judgments], row in `passage_ids`
    grades: Array  # int64 [judgments]; float64 where one of them is not whole
    origin: str  # origin, unit, numbers: see `SourceRecords`
    unit: str
    numbers: Int64
    repeated: int = 0  # how many identical judgments were merged
    # How many more a slice of the corpus leaves out, where the source itself makes that slice.
    outside: int = 0


def no_judgments() -> Judgments:
    """Those of a collection in which nothing is judged."""
    import pyarrow as pa

    ids, rows = pa.array([], pa.string()), np.array([], np.int32)
    none = rows.astype(np.int64)
    return Judgments(ids, rows, ids, rows, none, "", "line", none)


def make_judgments(
    queries: pa.Array, passages: pa.Array, grades: Array, origin: str, unit: str, numbers: Int64
) -> Judgments:
    """Judgments from columns of equal length: ids, plain or dictionary-encoded, and any type of number."""
    if not len(grades):
        raise InputError(f"{origin}: has no judgments", fix="check the path and the split")
    queries, passages = queries.dictionary_encode(), passages.dictionary_encode()
    query_ids, query_rows = queries.dictionary, queries.indices.to_numpy()
    passage_ids, passage_rows = passages.dictionary, passages.indices.to_numpy()
    judgments = Judgments(query_ids, query_rows, passage_ids, passage_rows, grades, origin, unit, numbers)
    place = judgments.place
    refuse_unfit_ids(query_ids, "query", lambda row: place(int(np.argmax(query_rows == row))))
    refuse_unfit_ids(passage_ids, "passage", lambda row: place(int(np.argmax(passage_rows == row))))
    fit = (grades >= LOWEST_GRADE) & (grades <= HIGHEST_GRADE)
    if not fit.all():
        row = int(np.argmin(fit))
        found = f"{place(row)}: the grade is {grades[row]}"
        raise InputError(found, allowed=GRADE_RULE, fix="correct that grade")
    grades = grades.astype(np.int64 if np.array_equal(grades, np.floor(grades)) else np.float64)
    pairs = query_rows.astype(np.int64) * len(passage_ids) + passage_rows
    _, first, pair = np.unique(pairs, return_index=True, return_inverse=True)
    if (differs := grades != grades[first[pair]]).any():
        second = int(np.argmax(differs))
        raise _contradiction(replace(judgments, grades=grades), int(first[pair[second]]), second)
    keep = np.sort(first)
    return replace(
        judgments,
        queries=query_rows[keep],
        passages=passage_rows[keep],
        grades=grades[keep],
        numbers=numbers[keep],
        repeated=len(grades) - len(keep),
    )


def _contradiction(judgments: Judgments, first: int, second: int) -> InputError:
    """The error for two rows of a pair whose grades differ."""
    query = judgments.query_ids[int(judgments.queries[first])]
    passage = judgments.passage_ids[int(judgments.passages[first])]
    return InputError(
        f"{judgments.place(second)}: query '{query}' and passage '{passage}' have grade "
        f"{judgments.grades[second]}, but {judgments.grades[first]} at {judgments.place(first)}",
        allowed="one grade for each pair",
        fix="remove one of the two",
    )


_GRADE = ("grade", GRADE_RULE, LOWEST_GRADE, HIGHEST_GRADE)
TREC = Form(("query", "iteration", "document", "grade"), *_GRADE)
BEIR = Form(("query", "document", "grade"), *_GRADE)


def read_qrels(path: Path | str) -> Judgments:
    """Read a judgment file; one with a malformed or contradictory line, or with none, is refused."""
    import pyarrow as pa

    (block,) = read_blocks(path, whole=True)
    columns = None
    if line := _DATA_LINE.search(block.data):
        before = block.data.count(b"\n", 0, line.start())
        place = f"{path}, line {before + 1}"
        fields = [field.decode() for field in line[0].split()]
        form = {len(form.columns): form for form in (BEIR, TREC)}.get(len(fields))
        if form is None:
            raise wrong_width(place, len(fields), BEIR, TREC)
        if fields[-1].lower() in _HEADER_WORDS:
            if re.match("corpus|doc|passage|pid", fields[0], re.IGNORECASE) and fields[-2][0] in "qQ":
                raise _swapped(place, fields)
            block = replace(block, data=b"\n" * before + block.data[line.end() :])
        elif len(cells := line[0].rstrip().split(b"\t")) != len(fields):
            _refuse_shifted(place, cells)
        columns = read_columns(block, form)
    if columns is None:
        allowed = f"lines of {' '.join(TREC.columns)} or {' '.join(BEIR.columns)}"
        raise InputError(f"{path}: has no judgments", allowed=allowed, fix="check the file")
    documents = columns.documents
    if documents.nbytes > MOST_BYTES:  # more than an array of Arrow's usual strings holds
        documents = documents.cast(pa.large_string())
    passages = documents.dictionary_encode().combine_chunks()
    return make_judgments(columns.queries, passages, columns.values, str(path), "line", columns.numbers)


def beir_qrels(query_ids: pa.Array, passage_ids: pa.Array, judged: Judgments | Qrels) -> str:
    """The text of a file in BEIR's form; the judgments have rows of the ids, Arrow strings."""
    queries = query_ids.take(from_numpy(judged.queries)).to_pylist()
    passages = passage_ids.take(from_numpy(judged.passages)).to_pylist()
    rows = zip(queries, passages, judged.grades.tolist(), strict=True)
    lines = (f"{query}\t{passage}\t{grade}\n" for query, passage, grade in rows)
    return "query-id\tcorpus-id\tscore\n" + "".join(lines)


def _swapped(place: str, fields: list[str]) -> InputError:
    """The error for a header in which passages come before queries."""
    return InputError(
        f"{place}: the header is {' '.join(fields)}",
        allowed="query-id corpus-id score",
        fix="swap the columns of queries and of passages",
    )


def _refuse_shifted(place: str, cells: list[bytes]) -> None:
    """Refuse a first line whose tabs are around an empty field or one that holds a space.

    Lines are split at all white space, so such a field would shift the columns behind it.
    """
    if len(cells) in (len(BEIR.columns), len(TREC.columns)) and BEIR.allows(cells[-1].decode().strip()):
        wrong = next(field for field, cell in enumerate(cells, start=1) if len(cell.split()) != 1)
        raise InputError(
            f"{place}: {len(cells)} fields separated by tabs, and number {wrong} is empty or holds a space",
            allowed="no white space inside an id",
            fix="write 0 for an iteration, or rename the id, in the collection and in the judgments",
        )
