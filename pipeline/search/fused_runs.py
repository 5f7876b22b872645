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

from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank, sort_hits
from pipeline.core.records import Facts, Int64, Qrels, Ranking
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import Run, read_run, write_run
from pipeline.metrics.evaluation import lines_by_query, row_numbers
from pipeline.metrics.names import Measure
from pipeline.search.fusion import Fusion, TunedWeights, folds_of, fuse, tune
from pipeline.storage import whole_files

TAG = "benchmarco"  # the last column of the run that is written


@dataclass(frozen=True)
class Tuning:
    """How weights are to be tuned.

    Attributes:
        measure: What is maximized.
        qrels: A file of judgments.
        folds: Parts of the queries.
    """

    measure: Measure
    qrels: Path
    folds: int


@dataclass(frozen=True)
class JoinedRuns:
    """Runs on common row numbers.

    Attributes:
        query_ids: Arrow strings [queries], those of any run.
        document_ids: Arrow strings [documents], those of any run.
        rankings: For each run its hits [queries, k], ordered by the tie rule.
        id_rank: int64 [documents], see `pipeline.core.order.descending_id_rank`.
        partial: Number of queries that not all runs have.
    """

    query_ids: pa.ChunkedArray
    document_ids: pa.ChunkedArray
    rankings: list[Ranking]
    id_rank: Int64
    partial: int


def fuse_files(
    paths: Sequence[Path],
    output: Path,
    fusion: Fusion,
    weights: Sequence[float] | None,
    depth: int | None = None,
    tuning: Tuning | None = None,
    progress: Progress = silent,
) -> Facts:
    """Join TREC runs into one, and write it.

    Args:
        paths: Run files, two or more; `.gz` is accepted.
        output: The file to write, as a whole.
        fusion: The method.
        weights: See `Fusion.weights`; None is equal weights, or those of `tuning`.
        depth: Documents kept for each query; None keeps all.
        tuning: How weights are tuned; None does not.
        progress: Opens progress bars.

    Returns:
        The method, the weights, and how many queries and documents there are, as JSON.

    Raises:
        InputError: A file is malformed, or a score is infinite.
    """
    joined = join_runs([read_run(path) for path in paths])
    facts: Facts = {
        "queries": len(joined.query_ids),
        "queries_not_in_all": joined.partial,
        "documents": len(joined.document_ids),
        "method": fusion.method,
        "normalize": fusion.normalization,
    }
    used = fusion.weights(weights, len(paths))
    if tuning:
        tuned = _tune(joined, fusion, tuning, depth, progress)
        used, facts["tuned"] = tuned.by_query, tuned.facts()
    else:
        facts["weights"] = used.tolist()
    ranking = fuse(joined.rankings, fusion, used, joined.id_rank, depth)
    with whole_files.replacing(output) as temporary, open(temporary, "wb") as file:
        write_run(file, joined.query_ids, joined.document_ids, ranking, TAG)
    return facts


def join_runs(runs: Sequence[Run]) -> JoinedRuns:
    """Give queries and documents of several runs common row numbers, and order each run."""
    query_ids = pc.unique(pa.chunked_array([run.query_ids for run in runs]))
    documents = pa.chunked_array([chunk for run in runs for chunk in run.documents.chunks])
    document_ids = pa.chunked_array([pc.unique(documents)])
    id_rank = descending_id_rank(document_ids)
    rankings = []
    has = np.zeros(len(query_ids), np.int64)
    for run in runs:
        row = row_numbers(run.query_ids, query_ids)
        has[row] += 1
        lines, scores = lines_by_query(row, run, len(query_ids))
        hits = np.where(lines < 0, -1, row_numbers(run.documents, document_ids)[lines])
        rankings.append(Ranking(*sort_hits(hits, scores, id_rank)))
    partial = int((has < len(runs)).sum())
    return JoinedRuns(pa.chunked_array([query_ids]), document_ids, rankings, id_rank, partial)


def _tune(
    joined: JoinedRuns, fusion: Fusion, tuning: Tuning, depth: int | None, progress: Progress
) -> TunedWeights:
    """Tune weights on the judged queries of the runs."""
    judgments = read_qrels(tuning.qrels)
    queries = row_numbers(judgments.query_ids, joined.query_ids)[judgments.queries]
    # a document that no run has counts among the relevant ones all the same
    beyond = np.arange(len(judgments.passage_ids)) + len(joined.document_ids)
    known = row_numbers(judgments.passage_ids, joined.document_ids)
    passages = np.where(known < 0, beyond, known)[judgments.passages]
    if not (queries >= 0).any():
        raise InputError(
            f"no query of the runs is judged in {tuning.qrels}",
            allowed="runs and judgments of the same queries",
            fix="check their ids",
        )
    order = np.lexsort((passages, queries))
    order = order[queries[order] >= 0]
    qrels = Qrels(queries[order], passages[order], judgments.grades[order])
    folds = folds_of(joined.query_ids, tuning.folds)
    with progress("tune weights", None, "weights") as bar:
        return tune(joined.rankings, fusion, tuning.measure, qrels, folds, joined.id_rank, depth, bar)
