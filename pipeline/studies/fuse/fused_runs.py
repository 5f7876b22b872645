"""Fusion of run files of any origin: `benchmarco fuse`.

The files are joined on the ids of queries and documents. A query that a file lacks has no hits there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.benchmark import METHODS, NORMALIZATIONS, MethodName, NormalizationName, check_fusion
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.order import descending_id_rank, sort_hits
from pipeline.core.records import Facts, Int64, Qrels, Ranking, from_numpy
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import Run, RunRows, like_lengths, read_run, write_run
from pipeline.metrics.definitions import parse_measure
from pipeline.metrics.scoring import row_numbers
from pipeline.search.fusion import Fusion, fuse as fuse_rankings
from pipeline.storage import whole_files
from pipeline.studies.fuse.tuning import Tuning, folds_of, tune as tune_weights, tuned_facts


@dataclass(frozen=True)
class JoinedRuns:
    """Runs on common row numbers."""

    query_ids: pa.ChunkedArray  # Arrow strings [queries], those of any run
    document_ids: pa.ChunkedArray  # Arrow strings [documents], those of any run
    # Rows of queries, int64 [n], and for each run their hits [n, k], ordered by the tie rule.
    parts: list[tuple[Int64, list[Ranking]]]
    id_rank: Int64  # int64 [documents], see `pipeline.core.order.descending_id_rank`
    partial: int  # number of queries that not all runs have


def fuse(
    runs: Sequence[str | Path],
    output: str | Path,
    *,
    method: str = "rrf",
    normalize: str | None = None,
    weights: Sequence[float] | None = None,
    k: int | None = None,
    depth: int | None = None,
    tune: str | None = None,
    qrels: str | Path | None = None,
    folds: int = 5,
    progress: Progress = silent,
) -> Facts:
    """Join TREC runs of any systems into one.

    Args:
        runs: Run files, two or more; `.gz` is accepted.
        output: The run to write.
        method: `rrf`, `combsum`, `combmnz`, `weighted` or `interpolation`; see docs/rerank-and-fuse.md.
        normalize: What is made of scores; None is the method's own.
        weights: One for each run; of `interpolation` that of the first alone.
        k: Added to every rank by `rrf`; None is 60.
        depth: Documents kept for each query; None keeps all.
        tune: A measure that weights are tuned for by cross-validation over queries, with `qrels`.
        qrels: Judgment file.
        folds: Parts of the queries.
        progress: Opens progress bars; none by default.

    Returns:
        The method, the weights, and the numbers of queries and documents.

    Raises:
        InputError: A file cannot be read, or the method does not fit the runs or the weights.
    """
    paths, output, judgments = [Path(run) for run in runs], Path(output), Path(qrels) if qrels else None
    whole_files.check_output(output, "output", [*paths, *([judgments] if judgments else [])])
    for name, value, choices in (("method", method, METHODS), ("normalize", normalize, NORMALIZATIONS)):
        if value is not None and value not in choices:
            raise InputError(f"{name} '{value}'", allowed=", ".join(choices), fix="choose one of them")
    if k is not None and method != "rrf":
        raise InputError(f"k {k} with the method {method}", allowed="k with rrf", fix="leave it out")
    fusion = Fusion(cast("MethodName", method), cast("NormalizationName | None", normalize), k or 60)
    if tune and weights is not None:
        raise InputError("weights and a measure to tune them for", fix="leave out one of the two")
    tried = [1.0] * (1 if method == "interpolation" else len(paths)) if tune else weights
    try:
        check_fusion(fusion.method, fusion.normalize, len(paths), tried)
    except ValueError as error:
        raise InputError(str(error)) from None
    if (tune is None) != (judgments is None):
        missing = "tune without qrels" if tune else "qrels without tune"
        raise InputError(missing, allowed="both or neither", fix="add the other")
    measure = parse_measure(tune) if tune else None
    joined = join_runs([read_run(path) for path in paths], together=measure is not None)
    tuning = None
    if measure and judgments:
        tuning = Tuning(measure, _judgments(joined, judgments), folds_of(joined.query_ids, folds))
    facts: Facts = {}
    with whole_files.replacing(output) as temporary, open(temporary, "wb") as file:
        for rows, rankings in joined.parts:
            if tuning is None:
                used = fusion.weights(weights, len(rankings))
                facts = fusion.facts(used)
            else:  # all queries are one part
                with progress("tune weights", None, "weights") as bar:
                    of_folds = tune_weights(rankings, fusion, tuning, joined.id_rank, depth, bar)
                used = of_folds[tuning.folds]
                facts = {"method": fusion.method, "normalize": fusion.normalization}
                facts["tuned"] = tuned_facts(tuning, of_folds)
            ranking = fuse_rankings(rankings, fusion, used, joined.id_rank, depth)
            write_run(file, joined.query_ids.take(from_numpy(rows)), joined.document_ids, ranking)
    return {
        "queries": len(joined.query_ids),
        "queries_not_in_all": joined.partial,
        "documents": len(joined.document_ids),
        **facts,
    }


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
