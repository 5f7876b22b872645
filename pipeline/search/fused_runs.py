"""Fusion of run files of any origin: `benchmarco fuse`.

The files are joined on the ids of queries and documents. A query that a file lacks has no hits there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.benchmark import METHODS, NORMALIZATIONS, check_fusion
from pipeline.core.display import Progress
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank, sort_hits
from pipeline.core.records import Facts, Int64, Qrels, Ranking, from_numpy
from pipeline.formats.judgments import read_qrels
from pipeline.formats.run_rows import RunRows, like_lengths
from pipeline.formats.runs import Run, read_run, write_run
from pipeline.metrics.evaluation import row_numbers
from pipeline.metrics.names import parse_measure
from pipeline.search.fusion import Fusion, Tuning, folds_of, join
from pipeline.storage import whole_files


@dataclass(frozen=True)
class JoinedRuns:
    """Runs on common row numbers.

    Attributes:
        query_ids: Arrow strings [queries], those of any run.
        document_ids: Arrow strings [documents], those of any run.
        parts: Rows of queries, int64 [n], and for each run their hits [n, k], ordered by the tie rule.
        id_rank: int64 [documents], see `pipeline.core.order.descending_id_rank`.
        partial: Number of queries that not all runs have.
    """

    query_ids: pa.ChunkedArray
    document_ids: pa.ChunkedArray
    parts: list[tuple[Int64, list[Ranking]]]
    id_rank: Int64
    partial: int


def fuse_files(
    paths: Sequence[Path],
    output: Path,
    fusion: Fusion,
    weights: Sequence[float] | None,
    depth: int | None,
    tune: str | None,
    qrels: Path | None,
    folds: int,
    progress: Progress,
) -> Facts:
    """Join TREC runs into one, and write it; see `pipeline.api.fuse`."""
    whole_files.check_output(output, "output", [*paths, *([qrels] if qrels else [])])
    _check_choice("method", fusion.method, METHODS)
    _check_choice("normalize", fusion.normalize, (None, *NORMALIZATIONS))
    try:
        check_fusion(fusion.method, fusion.normalize, len(paths), weights, tune is not None)
    except ValueError as error:
        raise InputError(str(error)) from None
    if (tune is None) != (qrels is None):
        missing = "tune without qrels" if tune else "qrels without tune"
        raise InputError(missing, allowed="both or neither", fix="add the other")
    measure = parse_measure(tune) if tune else None
    joined = join_runs([read_run(path) for path in paths], together=measure is not None)
    tuning = None
    if measure and qrels:
        tuning = Tuning(measure, _judgments(joined, qrels), folds_of(joined.query_ids, folds))
    facts: Facts = {}
    with whole_files.replacing(output) as temporary, open(temporary, "wb") as file:
        for rows, rankings in joined.parts:
            ranking, facts = join(rankings, fusion, weights, tuning, joined.id_rank, depth, progress)
            write_run(file, joined.query_ids.take(from_numpy(rows)), joined.document_ids, ranking)
    return {
        "queries": len(joined.query_ids),
        "queries_not_in_all": joined.partial,
        "documents": len(joined.document_ids),
        **facts,
    }


def _check_choice(name: str, value: str | None, allowed: Sequence[str | None]) -> None:
    if value not in allowed:
        listed = ", ".join(choice for choice in allowed if choice)
        raise InputError(f"{name} '{value}'", allowed=listed, fix="choose one of them")


def join_runs(runs: Sequence[Run], together: bool = False) -> JoinedRuns:
    """Give queries and documents of several runs common row numbers, and order each run.

    All queries are one part where `together` asks for that; else queries with like numbers of hits are.
    """
    query_ids = pc.unique(pa.chunked_array([run.query_ids for run in runs]))
    documents = pa.chunked_array([chunk for run in runs for chunk in run.documents.chunks])
    document_ids = pa.chunked_array([pc.unique(documents)])
    id_rank = descending_id_rank(document_ids)
    all_rows = [RunRows.of(run, row_numbers(run.query_ids, query_ids), len(query_ids)) for run in runs]
    numbers = [row_numbers(run.documents, document_ids) for run in runs]

    def ranking(rows: Int64, of_run: RunRows, number: Int64) -> Ranking:
        lines, scores = of_run.laid_out(rows)
        return Ranking(*sort_hits(np.where(lines < 0, -1, number[lines]), scores, id_rank))

    counts = [rows.counts for rows in all_rows]
    groups = [np.arange(len(query_ids))] if together else like_lengths(counts)
    parts = [
        (rows, [ranking(rows, of_run, number) for of_run, number in zip(all_rows, numbers, strict=True)])
        for rows in groups
    ]
    partial = int((np.min(counts, axis=0) == 0).sum())
    return JoinedRuns(pa.chunked_array([query_ids]), document_ids, parts, id_rank, partial)


def _judgments(joined: JoinedRuns, qrels: Path) -> Qrels:
    """The judgments of a file on the row numbers of runs."""
    judgments = read_qrels(qrels)
    queries = row_numbers(judgments.query_ids, joined.query_ids)[judgments.queries]
    # a document that no run has counts among the relevant ones all the same
    beyond = np.arange(len(judgments.passage_ids)) + len(joined.document_ids)
    known = row_numbers(judgments.passage_ids, joined.document_ids)
    passages = np.where(known < 0, beyond, known)[judgments.passages]
    if not (queries >= 0).any():
        raise InputError(
            f"no query of the runs is judged in {qrels}",
            allowed="runs and judgments of the same queries",
            fix="check their ids",
        )
    order = np.lexsort((passages, queries))
    order = order[queries[order] >= 0]
    return Qrels(queries[order], passages[order], judgments.grades[order])
