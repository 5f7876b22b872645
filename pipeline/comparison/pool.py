"""Retrieved passages without judgments: a file for people to judge, and the scores with it.

pooled = pool([read_result(folder) for folder in folders], depth=10)
write_pool(pooled.rows, Path("pool.tsv"))  # people, or a program of theirs, fill in the grades
rescored = score_again(results, read_grades(Path("pool.tsv")))

The file says neither which system found a passage nor at which rank: queries stand in random order, and so
do the passages of each. Additional judgments are nowhere stored: they are counted beside the collection's
own, and every value with them stands beside the one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.comparison.inputs import check_collection, names_of
from pipeline.core.display import counted, rounded, signed
from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits_by_id
from pipeline.core.records import Collection, Int64, Qrels, Ranking, from_numpy
from pipeline.core.table import Cell, Column, Displayed, Table
from pipeline.formats.runs import read_run
from pipeline.metrics.evaluation import drop_ignored, lines_by_query, row_numbers
from pipeline.metrics.names import parse_measures
from pipeline.metrics.scoring import compute_measures, judged_shares
from pipeline.results.cached import find_collection, ignored_hits
from pipeline.results.folder import RUN, SavedResult
from pipeline.results.pool_files import Grades, PoolRow
from pipeline.results.suite_folder import SavedSuite

SEED = 20200


@dataclass(frozen=True)
class Pool:
    """Unjudged passages of several results, in the order in which they are shown.

    Attributes:
        rows: A passage of a query each.
        queries: How many queries they are of.
        depth: How many ranks of each result were looked at.
        seen: How many different passages of queries these ranks hold, judged or not.
    """

    rows: list[PoolRow]
    queries: int
    depth: int
    seen: int


@dataclass(frozen=True, repr=False)
class Rescored(Displayed):
    """Results with additional judgments beside the original ones.

    Attributes:
        added: How many judgments were added.
        same: How many of the file's repeat one of the collection's.
        empty: How many rows of the file have no grade.
        results: For each result its `name`, and by measure the `original` mean, the mean with the judgments
            `added`, and `unjudged` as in `metrics.json`, with them; None where it has none.
    """

    added: int
    same: int
    empty: int
    results: list[dict[str, Any]]

    def json(self) -> dict[str, Any]:
        """The document that `pool --add --json` prints."""
        return {"added": self.added, "same": self.same, "empty": self.empty, "results": self.results}

    def tables(self) -> list[Table]:
        """A measure of a result a row: the mean by the original judgments, and with the additional ones."""
        heads = ("original", "with added", "change", "judged")
        columns = [Column("result"), Column("measure"), *(Column(head, "right", "never") for head in heads)]
        rows = []
        for result in self.results:
            for measure, each in result["metrics"].items():
                change, known = each["added"] - each["original"], each["unjudged"] or {}
                figures = [each["original"], each["added"], *map(known.get, heads[3:])]
                original, added, *others = (Cell(rounded(figure), figure) for figure in figures)
                rows.append((result["name"], measure, original, added, Cell(signed(change), change), *others))
        notes = ["judged: share of the top k that has a grade, with the additional judgments."]
        if self.same or self.empty:
            empty = counted(self.empty, "row has no grade", "rows have no grade")
            notes.append(f"{empty}; {self.same:,} repeat a judgment of the collection.")
        return [Table(f"with {counted(self.added, 'additional judgment')}", columns, rows, notes)]


def pool(results: Sequence[SavedResult], depth: int) -> Pool:
    """The unjudged passages among the first ranks of several results of one collection.

    Raises:
        InputError: The results are of different collections, or it is no longer in the cache.
    """
    collection = _collection(results)
    stride = len(collection.passages) + len(collection.missing_ids) + 1
    tops = [_ranking(result, collection).passages[:, :depth] for result in results]
    keys = [
        (np.arange(len(top))[:, None] * stride + top)[top >= 0] for top in tops
    ]  # a query and a passage as one number
    seen = np.unique(np.concatenate(keys))
    judged = collection.qrels.queries * stride + collection.qrels.passages
    queries, passages = np.divmod(np.setdiff1d(seen, judged), stride)
    generator = np.random.default_rng(SEED)
    shown = generator.permutation(len(collection.queries))  # the place of each query
    order = np.lexsort((generator.random(len(queries)), shown[queries]))
    columns = (
        column.take(from_numpy(rows[order])).to_pylist()
        for texts, rows in ((collection.queries, queries), (collection.passages, passages))
        for column in (texts.ids, texts.texts)
    )
    query_ids, query_texts, passage_ids, passage_texts = columns
    rows = list(map(PoolRow, query_ids, passage_ids, query_texts, passage_texts))
    return Pool(rows, len(np.unique(queries)), depth, len(seen))


def score_again(results: Sequence[SavedResult], grades: Grades) -> Rescored:
    """The measures of results with additional judgments, beside those without.

    Raises:
        InputError: The results are of different collections, the collection is no longer in the cache, a
            query or a passage is not in it, or was judged otherwise.
    """
    names = names_of([SavedSuite.of_one(result) for result in results])
    collection = _collection(results)
    qrels, same = _with_grades(collection, grades)
    judged = np.unique(collection.qrels.queries)
    n_queries = len(collection.queries)
    rescored = []
    for result, name in zip(results, names, strict=True):
        measures = parse_measures(result.measures)
        ranking = _ranking(result, collection)
        means = compute_measures(ranking, qrels, n_queries, measures)[judged].mean(axis=0).tolist()
        shares = judged_shares(ranking, qrels, n_queries, measures)
        rows = {
            measure: {
                "original": result.record.metrics[measure],
                "added": mean,
                "unjudged": {"judged": float(shares[measure][judged].mean())} if measure in shares else None,
            }
            for measure, mean in zip(map(str, measures), means, strict=True)
        }
        rescored.append({"name": name, "metrics": rows})
    return Rescored(len(grades.rows) - same, same, grades.empty, rescored)


def _collection(results: Sequence[SavedResult]) -> Collection:
    """The one collection of all results."""
    names = names_of([SavedSuite.of_one(result) for result in results])
    check_collection(results, names)
    keys = [result.manifest.recipes.get("data", {}).get("key") for result in results]
    if len(set(keys)) > 1:
        other = next(name for name, key in zip(names, keys, strict=True) if key != keys[0])
        raise InputError(
            f"{names[0]} and {other} searched different collections, as their manifests say",
            allowed="results of one collection",
            fix="pool those of each collection by themselves",
        )
    found = next(filter(None, (find_collection(result.manifest) for result in results)), None)
    if found is None:
        raise InputError(
            f"the collection of {names[0]} is no longer in the cache that its config names",
            allowed="results whose collection is in the cache",
            fix="run its config again, from the same folder; nothing else is computed again",
        )
    return found


def _ranking(result: SavedResult, collection: Collection) -> Ranking:
    """The ranking of a result as it was scored, in rows of the collection."""
    path = result.folder / RUN
    if not path.stat().st_size:  # nothing was found for any query
        none = np.zeros((len(collection.queries), 0))
        return Ranking(none.astype(np.int64), none)
    run = read_run(path)
    rows = row_numbers(run.documents, collection.passages.ids)
    queries = row_numbers(run.query_ids, collection.queries.ids)
    if min(rows.min(), queries.min()) < 0:
        raise InputError(
            f"{path} has a query or a passage that its collection lacks",
            allowed="the run that benchmarco run wrote",
            fix="run its config again; what is in the cache is not computed again",
        )
    lines, scores = sort_hits_by_id(*lines_by_query(queries, run, len(collection.queries)), run.documents)
    passages = np.where(lines >= 0, rows[lines], -1)
    return drop_ignored(Ranking(passages, scores), collection, ignored_hits(result.manifest))


def _with_grades(collection: Collection, grades: Grades) -> tuple[Qrels, int]:
    """The judgments of a collection and additional ones, sorted; and how many of these it had already."""
    ids = pa.chunked_array([*collection.passages.ids.chunks, *collection.missing_ids.chunks], pa.string())
    queries = _rows("query", [row.query_id for row in grades.rows], collection.queries.ids, grades)
    passages = _rows("passage", [row.passage_id for row in grades.rows], ids, grades)
    given = np.array([row.grade for row in grades.rows], dtype=np.int64)
    own, stride = collection.qrels, len(ids) + 1
    keys, new = own.queries * stride + own.passages, queries * stride + passages
    place = np.minimum(np.searchsorted(keys, new), len(keys) - 1)
    known = keys[place] == new
    for number in np.flatnonzero(known & (own.grades[place] != given)):
        row = grades.rows[number]
        raise InputError(
            f"{grades.path} gives passage {row.passage_id} of query {row.query_id} the grade {row.grade}; "
            f"the collection's own judgments give it {own.grades[place[number]]}",
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
