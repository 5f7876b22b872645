"""Retrieved passages without judgments: a file for people to judge, and all judgments with theirs.

rows, seen = pool(folders, depth=10)
write_pool(rows, Path("pool.tsv"))  # people, or a program of theirs, fill in the grades
add_grades(folders, read_grades(Path("pool.tsv")), Path("judged.trec"))

The file says neither which system found a passage nor at which rank: queries stand in random order, and so
do the passages of each.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.comparison.inputs import CONTENT_OF, ResultLike, read_results
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Int64, Qrels, from_numpy, take_texts
from pipeline.formats.judgments import BEIR, GRADE_RULE
from pipeline.metrics.scoring import row_numbers
from pipeline.results.folder import CollectionResult
from pipeline.storage import whole_files
from pipeline.studies.shared.cached import first_collection, scored_ranking
from pipeline.studies.shared.pools import pair_keys, pairs_of

SEED = 20200


@dataclass(frozen=True)
class PoolRow:
    """A passage of a query; `grade` is None where nobody judged it. `draw` is explained in `sample`."""

    query_id: str
    passage_id: str
    query: str
    passage: str
    grade: float | None = None
    draw: str = ""


COLUMNS = tuple(field.name for field in fields(PoolRow))
"""The columns of a file; `draw` is left out where no query was drawn."""


@dataclass(frozen=True)
class Grades:
    """What a file of judged passages holds."""

    path: Path  # the file, for messages
    rows: list[PoolRow]  # those with a grade, each pair of query and passage once
    empty: int  # how many others there are


def pool(folders: Sequence[ResultLike], depth: int) -> tuple[list[PoolRow], int]:
    """The unjudged passages among the first ranks of several results of one collection, as they are shown.

    Also how many passages of queries were looked at, judged or not.
    """
    results, collection = open_results(folders)
    tops = [scored_ranking(result, collection).passages[:, :depth] for result in results.values()]
    keys = [pair_keys(np.arange(len(top))[:, None], top, collection)[top >= 0] for top in tops]
    seen = np.unique(np.concatenate(keys))
    judged = pair_keys(collection.qrels.queries, collection.qrels.passages, collection)
    queries, passages = pairs_of(np.setdiff1d(seen, judged), collection)
    generator = np.random.default_rng(SEED)
    shown = generator.permutation(len(collection.queries))  # the place of each query
    order = np.lexsort((generator.random(len(queries)), shown[queries]))
    return rows_of_pairs(collection, queries[order], passages[order]), len(seen)


def rows_of_pairs(collection: Collection, queries: Int64, passages: Int64) -> list[PoolRow]:
    """Pairs of a query and a passage, int64 [pairs] rows of the collection, with their ids and texts."""
    query_ids, query_texts, passage_ids, passage_texts = (
        take_texts(column, rows).to_pylist()
        for texts, rows in ((collection.queries, queries), (collection.passages, passages))
        for column in (texts.ids, texts.texts)
    )
    return list(map(PoolRow, query_ids, passage_ids, query_texts, passage_texts))


def add_grades(folders: Sequence[ResultLike], grades: Grades, output: Path) -> int:
    """Write the collection's judgments and additional ones as TREC qrels; returns how many it had already."""
    _, collection = open_results(folders)
    qrels, same = with_grades(collection, grades)
    passages = collection.judged_ids.take(from_numpy(qrels.passages))
    names = collection.queries.ids.take(from_numpy(qrels.queries)), passages
    rows = zip(*(column.to_pylist() for column in names), qrels.grades.tolist(), strict=True)
    lines = (f"{query} 0 {passage} {grade}\n" for query, passage, grade in rows)
    whole_files.write_whole(output, "".join(lines).encode())
    return same


def open_results(folders: Sequence[ResultLike]) -> tuple[dict[str, CollectionResult], Collection]:
    """Results of one collection, by name, and the collection."""
    loaded, _ = read_results(folders, same=CONTENT_OF)
    results = {result.name: result.only_collection() for result in loaded}
    return results, first_collection(list(results.values()))


def with_grades(collection: Collection, grades: Grades) -> tuple[Qrels, int]:
    """The judgments of a collection and additional ones, sorted; and how many of these it had already."""
    queries = _rows("query", [row.query_id for row in grades.rows], collection.queries.ids, grades)
    passages = _rows("passage", [row.passage_id for row in grades.rows], collection.judged_ids, grades)
    given = np.array([row.grade for row in grades.rows])
    own, new = collection.qrels, pair_keys(queries, passages, collection)
    keys = pair_keys(own.queries, own.passages, collection)
    known = np.isin(new, keys)
    stored = own.grades[np.searchsorted(keys, new[known])]
    for number, grade in zip(np.flatnonzero(known), stored, strict=True):
        row = grades.rows[number]
        if row.grade == grade:
            continue
        raise InputError(
            f"{grades.path} gives passage {row.passage_id} of query {row.query_id} the grade {row.grade}; "
            f"the collection's own judgments give it {grade}",
            allowed="grades of passages that were not judged",
            fix="leave the row out, or correct the collection's judgments and run again",
        )
    columns = [
        np.append(one, other[~known])
        for one, other in ((own.queries, queries), (own.passages, passages), (own.grades, given))
    ]
    order = np.lexsort((columns[1], columns[0]))
    return Qrels(*(column[order] for column in columns)), int(known.sum())


def _rows(what: str, ids: list[str], among: pa.ChunkedArray, grades: Grades) -> Int64:
    rows = row_numbers(pa.array(ids, pa.string()), among)
    if (rows < 0).any():
        raise InputError(
            f"{grades.path} has {what} {ids[int(np.argmax(rows < 0))]!r}, which the collection lacks",
            allowed="queries and passages of the results' collection",
            fix="use the file that benchmarco pool wrote from these results",
        )
    return rows


def check_new(path: Path) -> None:
    """Refuse a file that is there: it may hold people's work."""
    if path.is_file() and not whole_files.overwrites.get():
        raise InputError(
            f"--output {path} exists already, and may contain grades",
            allowed="a new file",
            fix="name another, remove it, or add --force to overwrite it",
        )


def write_pool(rows: Sequence[PoolRow], path: Path) -> None:
    """Write rows to judge as TSV with a header, with an empty `grade` and every text on one line."""
    columns = [name for name in COLUMNS if name != "draw" or any(row.draw for row in rows)]
    records = [
        {name: " ".join(str(getattr(row, name)).split()) for name in columns} | {"grade": ""} for row in rows
    ]
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    whole_files.write_whole(path, file.getvalue().encode())


def read_grades(path: Path) -> Grades:
    """Read a file that was judged; its rows may stay empty, stand in another order, or be left out.

    Raises:
        InputError: It cannot be read, lacks a column, has a grade that is no whole number, or two different
            grades for one passage; or none at all.
    """
    allowed = f"rows of {', '.join(COLUMNS)}, as benchmarco pool writes them"
    rows: dict[tuple[str, str], PoolRow] = {}
    empty = 0
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter="\t")
            records = [(reader.line_num, record) for record in reader]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read: {error}", allowed=allowed) from None
    for number, record in records:
        ids, text = (record.get("query_id"), record.get("passage_id")), record.get("grade")
        if text is None or not all(ids):
            raise InputError(
                f"{path}, line {number}: not a query_id, a passage_id and a grade", allowed=allowed
            )
        if not text.strip():
            empty += 1
            continue
        if not BEIR.allows(text.strip()):
            raise InputError(f"{path}, line {number}: grade {text!r}", allowed=f"{GRADE_RULE}, or nothing")
        grade = float(text)
        grade = int(grade) if grade.is_integer() else grade
        row = PoolRow(str(ids[0]), str(ids[1]), "", "", grade, record.get("draw") or "")
        earlier = rows.setdefault((row.query_id, row.passage_id), row)
        if earlier.grade != grade:
            raise InputError(
                f"{path}, line {number}: grade {grade} for passage {row.passage_id} of query "
                f"{row.query_id}, which has {earlier.grade} before",
                allowed="one grade for each",
                fix="keep one of them",
            )
    if not rows:
        raise InputError(
            f"{path} has no grade in {empty:,} rows", allowed=allowed, fix="fill in the column grade"
        )
    return Grades(path, list(rows.values()), empty)
