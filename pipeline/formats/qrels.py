"""Judgment files (qrels) in TREC's or BEIR's form, for `benchmarco run` and `benchmarco evaluate`.

    qid iteration docid grade         TREC's form
    query-id corpus-id score          BEIR's form, with or without that first line

The number of fields of the first line decides the form; the line is a header if its last field is a word
such as `score`. Lines that are blank or begin with `#` are skipped. ASCII white space separates the fields.
`pipeline.formats.judgments` holds the rules for ids, grades and repeated judgments.
"""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.core.errors import InputError
from pipeline.core.records import Int64
from pipeline.formats.columns import Form, column_blocks, data_lines, read_columns, wrong_width
from pipeline.formats.judgments import GRADE_RULE, HIGHEST_GRADE, LOWEST_GRADE, Judgments, make_judgments

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER_WORDS = {"score", "relevance", "rel", "grade", "label", "judgment", "judgement"}
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,10}", re.ASCII)


def _grades(column: pa.Array) -> Int64:
    """The grades of a column of texts, of which few are distinct; ValueError for one that is not a C int."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    if not all(_INTEGER.fullmatch(text) and LOWEST_GRADE <= int(text) <= HIGHEST_GRADE for text in texts):
        raise ValueError(f"a grade is not {GRADE_RULE}")
    grades: Int64 = np.array([int(text) for text in texts], dtype=np.int64)[encoded.indices.to_numpy()]
    return grades


TREC = Form(("query", "iteration", "document", "grade"), "grade", "string", _grades, GRADE_RULE)
BEIR = Form(("query", "document", "grade"), "grade", "string", _grades, GRADE_RULE)


def read_qrels(path: Path | str) -> Judgments:
    """Read a judgment file; one with a malformed or contradictory line, or with none, is refused."""
    import pyarrow as pa

    blocks = column_blocks(path)
    columns = None
    for block in blocks:
        number, fields = next(data_lines(block), (0, []))
        if not fields:
            continue
        form = {len(form.columns): form for form in (BEIR, TREC)}.get(len(fields))
        if form is None:
            raise wrong_width(block, number, len(fields), BEIR, TREC)
        if fields[-1].lower() in _HEADER_WORDS:
            block = block.after(number)
        columns = read_columns(chain([block], blocks), form)
        break
    if columns is None:
        allowed = f"lines of {' '.join(TREC.columns)} or {' '.join(BEIR.columns)}"
        raise InputError(f"{path}: has no judgments", allowed=allowed, fix="check the file")
    queries = pa.DictionaryArray.from_arrays(columns.queries, columns.query_ids)
    passages = columns.documents.combine_chunks()
    return make_judgments(queries, passages, columns.values, str(path), "line", columns.numbers)
