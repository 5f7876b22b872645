"""Evaluation of a run file with a judgment file: `benchmarco evaluate`.

evaluation = evaluate("qrels.trec", "run.trec.gz", "ndcg@10,map")

As in trec_eval, neither the order of a run's lines nor the rank written in them counts
(`pipeline.core.order`). Ids become row numbers. Only documents that are judged, or have the id of a query,
get one of their own; all others share one, as no measure needs to know which of them a hit is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config.stages import MEASURES
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.order import sort_hits
from pipeline.core.records import BoolArray, Float64, Int64, JsonObject, Qrels, Ranking
from pipeline.core.table import Column, Table, Tabular, table_of
from pipeline.formats.given import QrelsLike, judgments_of, named_columns, run_of
from pipeline.formats.judgments import Judgments
from pipeline.formats.runs import Run, RunRows
from pipeline.formats.texts import ids_apart
from pipeline.metrics.definitions import Measure, parse_measures
from pipeline.metrics.presentation import Caveats, ShortRankings, Ties, measure_table
from pipeline.metrics.scoring import (
    compute_with_shares,
    count_relevant,
    drop_hits,
    own_passages,
    row_numbers,
    short_rankings,
    tied_at_cutoffs,
)
from pipeline.metrics.statistics import Interval, estimate

if TYPE_CHECKING:
    import pandas as pd

V = TypeVar("V")


@dataclass(frozen=True)
class JoinedRun:
    """A run and its judgments on common row numbers; `missing` and `unjudged` are as in `Evaluation`."""

    # The rows of some queries, int64, and their ranking, [rows, k], ordered by the tie rule; k is the longest
    # row's length. Queries of very different lengths are in different parts, so that the memory is that of
    # all hits, and not queries times the longest ranking.
    parts: list[tuple[Int64, Ranking]]
    qrels: Qrels
    query_ids: pa.Array  # Arrow strings [queries], every judged query, in the order of the judgment file
    # Arrow strings [documents], those that are judged or have a query's id. The row number of all others is
    # `len(document_ids)`.
    document_ids: pa.Array
    missing: int
    unjudged: int

    @property
    def ranking(self) -> Ranking:
        """The ranking of all queries, [queries, k], in which shorter rows are padded."""
        if len(self.parts) == 1:
            return self.parts[0][1]
        shape = len(self.query_ids), max(ranking.passages.shape[1] for _, ranking in self.parts)
        passages, scores = np.full(shape, -1), np.full(shape, -np.inf, self.parts[0][1].scores.dtype)
        for rows, ranking in self.parts:
            passages[rows, : ranking.passages.shape[1]] = ranking.passages
            scores[rows, : ranking.scores.shape[1]] = ranking.scores
        return Ranking(passages, scores)


@dataclass(frozen=True, repr=False)
class Evaluation(Tabular):
    """A run's scores."""

    query_ids: list[str]  # every judged query, in the order of the judgment file
    measures: list[Measure]  # the measures, in the order given
    values: Float64  # float64 [queries, measures]
    means: Float64  # float64 [measures], over all judged queries
    intervals: list[Interval]  # the 95% interval of each mean; None where none is shown
    fragile: BoolArray  # bool [measures]: the mark of each, as of `Estimate`
    missing: int  # number of judged queries that the run does not have; they score 0
    unjudged: int  # number of the run's queries without judgments; they are left out
    missing_ids: tuple[str, ...] = ()  # the first judged queries that the run does not have
    repeated: int = 0  # number of identical judgments that were merged
    run: str = ""  # name of the run's file, for the title
    short_rankings: ShortRankings | None = None
    # For each measure with a cutoff the mean share of the top k that is judged, by its name.
    judged: dict[str, float] = field(default_factory=dict)
    ties: Ties | None = None  # the queries with equal scores across a cutoff; None if there are none
    ignored_relevant: int = 0  # how many relevant documents were removed, as they have the query's id

    @property
    def mean_by_measure(self) -> dict[str, float]:
        """The mean of each measure, by its name."""
        return self.by_measure(self.means.tolist())

    def by_measure(self, values: Iterable[V]) -> dict[str, V]:
        """A value for each measure, by the measure's name."""
        return dict(zip(map(str, self.measures), values, strict=True))

    def json(self) -> JsonObject:
        """The document that `evaluate --json` prints."""
        return {
            "queries": len(self.query_ids),
            "missing": self.missing,
            "unjudged": self.unjudged,
            "repeated_judgments": self.repeated,
            "short_rankings": self.short_rankings.model_dump() if self.short_rankings else None,
            "metrics": self.mean_by_measure,
            "intervals": self.by_measure(self.intervals),
            "fragile": self.by_measure(self.fragile.tolist()),
            "unjudged_documents": {name: {"judged": share} for name, share in self.judged.items()},
            "ties": self.ties.model_dump() if self.ties else None,
            "ignored_relevant": self.ignored_relevant,
        }

    def to_dataframe(self) -> pd.DataFrame:
        """The values as a pandas DataFrame: a row per query, a column per measure."""
        import pandas as pd

        queries = pd.Index(self.query_ids, name="query_id")
        return pd.DataFrame(self.values, index=queries, columns=list(map(str, self.measures)))

    def tables(self) -> list[Table]:
        """A measure a row; the title says which queries the means are over."""
        merged = counted(self.repeated, "repeated judgment")
        title = (
            f"{self.run + ': ' if self.run else ''}"
            f"{counted(len(self.query_ids), 'judged query', 'judged queries')}, "
            f"{self.missing:,} not in the run (score 0), "
            f"{counted(self.unjudged, 'query', 'queries')} of the run not judged (left out)"
            + (f", {merged} merged" if self.repeated else "")
        )
        shown = self.by_measure(self.intervals), self.by_measure(self.fragile.tolist())
        table = measure_table(title, self.mean_by_measure, *shown, self.judged)
        caveats = Caveats(
            ignored_relevant=self.ignored_relevant, short_rankings=self.short_rankings, ties=self.ties
        )
        return [replace(table, notes=[*table.notes, *(f"{note}." for note in caveats.notes)])]


def runs_table(names: Sequence[str], scored: Sequence[Evaluation]) -> Table:
    """A run a row: the mean of each measure over all judged queries; notes on queries that a run lacks."""
    columns = [
        (Column(name, "right", "never"), [evaluation.mean_by_measure[name] for evaluation in scored])
        for name in scored[0].mean_by_measure
    ]
    notes = [
        f"{name}: {note}."
        for name, evaluation in zip(names, scored, strict=True)
        for note in Caveats(
            ignored_relevant=evaluation.ignored_relevant,
            missing_queries=evaluation.missing,
            missing_ids=evaluation.missing_ids,
            short_rankings=evaluation.short_rankings,
            ties=evaluation.ties,
        ).notes
    ]
    return table_of("", [(Column("run"), names), *columns], notes)


def evaluate(
    qrels: QrelsLike,
    run: QrelsLike,
    measures: str | Sequence[str] = MEASURES,
    *,
    ignore_identical_ids: bool = False,
    single_precision: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Evaluation:
    """Score any run with any judgments.

    Args:
        qrels: A TREC or BEIR judgment file, perhaps `.gz`; `{query: {document: grade}}`; or a table such as a
            pandas DataFrame with the columns `query_id` (or `qid`, `q_id`), `passage_id` (or `doc_id`,
            `docid`, `docno`, `pid`) and `grade` (or `relevance`, `rel`, `label`).
        run: A TREC run file, perhaps `.gz`; `{query: {document: score}}`; or such a table with `score`.
        measures: Names as in docs/measures.md, as a list or separated by commas.
        ignore_identical_ids: Drop documents whose id is the query's own.
        single_precision: Compare scores as float32, as trec_eval did before 9.0.8 and pytrec_eval does.
        columns: Of tables with other names, the column of `query`, `passage`, `grade` or `score`:
            `{"grade": "weight"}`.

    Returns:
        Values per query, means and 95% intervals.

    Raises:
        InputError: A file or a measure cannot be read, or no query or no document of the run is judged.
    """
    named = parse_measures(measures)
    fields = named_columns(columns or {}, qrels, run)
    judgments, ranked = judgments_of(qrels, fields), run_of(run, fields)
    names = _name(run, "the run"), _name(qrels, "the judgments")
    joined = join_run_and_qrels(ranked, judgments, single_precision)
    if len(joined.query_ids) == joined.missing:
        raise _not_judged("query", "queries", names, (ranked.query_ids[0], joined.query_ids[0]))
    n_judged = len(judgments.passage_ids)  # which come first among `document_ids`
    if not any(((part.passages >= 0) & (part.passages < n_judged)).any() for _, part in joined.parts):
        raise _not_judged("document", "collection", names, (ranked.documents[0], judgments.passage_ids[0]))
    own = row_numbers(joined.query_ids, joined.document_ids)
    n_queries = len(joined.query_ids)
    values, n_hits = np.empty((n_queries, len(named))), np.zeros(n_queries, np.int64)
    shares: dict[str, Float64] = {}
    tied = np.zeros(n_queries, np.bool_)
    for rows, ranking in joined.parts:
        if ignore_identical_ids:
            ranking = drop_hits(ranking, own_passages(own[rows]))
        is_in = np.isin(joined.qrels.queries, rows)
        numbers = np.searchsorted(rows, joined.qrels.queries[is_in])
        qrels_of_rows = Qrels(numbers, joined.qrels.passages[is_in], joined.qrels.grades[is_in])
        values[rows], shares_of_rows = compute_with_shares(ranking, qrels_of_rows, named)
        n_hits[rows] = ranking.lengths()
        for name, share in shares_of_rows.items():
            shares.setdefault(name, np.empty(n_queries))[rows] = share
        tied[rows] = tied_at_cutoffs(ranking, named)
    lacking = pc.invert(pc.is_in(joined.query_ids, value_set=ranked.query_ids))
    estimated = estimate([values], low=0, high=[each.definition.highest for each in named])
    return Evaluation(
        query_ids=joined.query_ids.to_pylist(),
        measures=named,
        values=values,
        means=values.mean(axis=0),
        intervals=estimated.intervals,
        fragile=estimated.fragile,
        missing=joined.missing,
        unjudged=joined.unjudged,
        missing_ids=tuple(joined.query_ids.filter(lacking).slice(0, 3).to_pylist()),
        repeated=judgments.repeated,
        run=Path(_name(run, "")).name,
        short_rankings=short_rankings(n_hits[n_hits > 0], named),  # the others are `missing`
        judged={name: float(share.mean()) for name, share in shares.items()},
        ties=Ties(queries=int(tied.sum()), share=float(tied.mean())) if tied.any() else None,
        ignored_relevant=count_relevant(own_passages(own), joined.qrels) if ignore_identical_ids else 0,
    )


def _not_judged(
    what: str, shared: str, names: tuple[str, str], ids: tuple[pa.Scalar, pa.Scalar]
) -> InputError:
    """A run and judgments without a query or document in common; names and ids are those of each."""
    run, judged = names
    of_run, of_qrels = ids_apart(*(each.as_py() for each in ids))
    return InputError(
        f"no {what} of {run} is judged in {judged}",
        allowed=f"a run and judgments of the same {shared}",
        fix=f"compare their ids: the run has {of_run}, and {judged} {of_qrels}",
    )


def _name(source: QrelsLike, otherwise: str) -> str:
    """A file's path, or what values that are no file are called."""
    return str(source) if isinstance(source, str | Path) else otherwise


def join_run_and_qrels(run: Run, qrels: Judgments, single_precision: bool = False) -> JoinedRun:
    """Give queries and documents of a run and of judgments common row numbers, and order the run.

    `single_precision` is as in `evaluate`; a score past float32 is infinite then, as in C.
    """
    if single_precision:
        with np.errstate(over="ignore"):
            run = replace(run, scores=run.scores.astype(np.float32))
    kind = qrels.passage_ids.type
    document_ids = pc.unique(pa.chunked_array([qrels.passage_ids, qrels.query_ids.cast(kind)], type=kind))
    passages = row_numbers(qrels.passage_ids, document_ids)[qrels.passages]
    judged = Qrels(qrels.queries.astype(np.int64), passages, qrels.grades)
    order = np.lexsort((judged.passages, judged.queries))
    judged = Qrels(judged.queries[order], judged.passages[order], judged.grades[order])

    n_queries = len(qrels.query_ids)
    row = row_numbers(run.query_ids, qrels.query_ids, absent=n_queries)
    with ThreadPoolExecutor(1) as beside:  # takes as long as the sorting, and has no GIL
        numbering = beside.submit(row_numbers, run.documents, document_ids, absent=len(document_ids))
        ordered = [
            (rows, *sort_hits(lines, scores, run.documents))
            for rows, lines, scores in RunRows.of(run, row, n_queries).parts()
        ]
    parts, number_of = [], numbering.result()
    for rows, hits, scores in ordered:
        passages = number_of[hits]
        passages[hits < 0] = -1
        parts.append((rows, Ranking(passages, scores)))
    in_both = int((row < n_queries).sum())
    missing, unjudged = n_queries - in_both, len(row) - in_both
    return JoinedRun(parts, judged, qrels.query_ids, document_ids, missing, unjudged)
