"""A finished ranking and how it is scored, with changes of the evaluation alone (`EVALUATION`).

scored_run_of(collection, folder).means(["ndcg@10"])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.core.records import Collection, Facts
from pipeline.formats.judgments import Judgments
from pipeline.formats.runs import Run, read_run
from pipeline.metrics.definitions import parse_measure
from pipeline.metrics.evaluation import join_run_and_qrels
from pipeline.metrics.scoring import compute_measures, drop_hits, own_passages, row_numbers
from pipeline.results.folder import ranking_file


@dataclass(frozen=True)
class ScoredRun:
    """A ranking, and how it is scored."""

    run: Run
    qrels: Judgments
    params: Facts = field(default_factory=dict)  # parameters that measures get which have them
    cutoffs: Mapping[str, int | None] = field(default_factory=dict)  # by the name of a measure
    self_hits: bool = True  # whether hits with the query's own id count, where the run has them
    # Over which the mean is taken: all that are judged, or those with hits, or those with a relevant passage.
    queries: str = "judged"
    single: bool = False  # whether scores are compared as float32
    copies: Sequence[str] = ()  # ids of passages whose text an earlier one has, of those retrieved or judged

    def means(self, measures: Sequence[str]) -> dict[str, float]:
        """The mean of each measure."""
        joined = join_run_and_qrels(self.run, self.qrels, self.single)
        ranking, count = joined.ranking, len(joined.query_ids)
        if not self.self_hits:
            ranking = drop_hits(ranking, own_passages(row_numbers(joined.query_ids, joined.document_ids)))
        changed = []
        for measure in map(parse_measure, measures):
            known = [each.name for each in measure.definition.all_params]
            params = dict(measure.params) | {name: self.params[name] for name in known if name in self.params}
            cutoff = self.cutoffs.get(measure.name, measure.cutoff)
            changed.append(replace(measure, params=tuple(sorted(params.items())), cutoff=cutoff))
        values = compute_measures(ranking, joined.qrels, changed)
        kept = np.isin(np.arange(count), joined.qrels.queries)
        if self.queries == "returned":
            kept &= (ranking.passages >= 0).any(axis=1)
        elif self.queries == "relevant":
            kept = np.isin(np.arange(count), joined.qrels.queries[joined.qrels.grades > 0])
        means = values[kept].mean(axis=0) if kept.any() else np.zeros(len(measures))
        return dict(zip(measures, means.tolist(), strict=True))


def _without_zeros(scored: ScoredRun) -> ScoredRun | None:
    before = scored.qrels.passage_ids.to_pylist()
    # without leading zeros of the last number: CACM-46 for CACM-0046
    after = [re.sub(r"(?<!\d)0+(?=\d+$)", "", name) for name in before]
    if after == before or len(set(after)) < len(after):  # none changes, or two become one
        return None
    return replace(scored, qrels=replace(scored.qrels, passage_ids=pa.array(after, pa.string())))


def _ties_ascending(scored: ScoredRun) -> ScoredRun | None:
    """Tied documents in ascending order of ids: their scores are replaced by descending ranks."""
    run = scored.run
    order = np.lexsort(
        (np.array(run.documents.to_pylist(), dtype=object).astype(str), -run.scores, run.queries)
    )
    tied = (np.diff(run.scores[order]) == 0) & (np.diff(run.queries[order]) == 0)
    if not tied.any():
        return None
    scores = np.empty(len(order))
    scores[order] = -np.arange(len(order), dtype=np.float64)
    return replace(scored, run=replace(run, scores=scores))


def _without_copies(scored: ScoredRun) -> ScoredRun | None:
    """Without hits whose text an earlier passage has."""
    if not scored.copies:
        return None
    run = scored.run
    copies = pa.array(scored.copies, run.documents.type)
    lines = np.flatnonzero(~pc.is_in(run.documents, value_set=copies).to_numpy())
    documents = run.documents.take(pa.array(lines))
    hits = replace(run, queries=run.queries[lines], documents=documents, scores=run.scores[lines])
    return replace(scored, run=hits)


def _with(**fields: Any) -> Callable[[ScoredRun], ScoredRun]:
    return lambda scored: replace(scored, **fields)


EVALUATION: dict[str, Callable[[ScoredRun], ScoredRun | None]] = {
    "ids of judgments without leading zeros, which match no passage": _without_zeros,
    "hits with the query's own id removed": _with(self_hits=False),
    "the mean over queries with hits": _with(queries="returned"),
    "the mean over queries with a relevant passage": _with(queries="relevant"),
    "gain 2^grade - 1": _with(params={"gain": "exp"}),
    "the ideal order of retrieved passages only": _with(params={"ideal": "retrieved"}),
    "grades from 2 count as relevant": _with(params={"rel": 2}),
    "grades from 3 count as relevant": _with(params={"rel": 3}),
    "recall over at most k": _with(params={"cap": True}),
    "average precision over the relevant passages retrieved": _with(params={"norm": "retrieved"}),
    **{
        f"{name} with {f'cutoff {k}' if k else 'no cutoff'}": _with(cutoffs={name: k})
        for name in ("map", "mrr", "ndcg")
        for k in (None, 10, 100, 1000)
    },
    "passages with an earlier one's text removed": _without_copies,
    "ties in ascending order of ids": _ties_ascending,
    "scores compared as float32": _with(single=True),
}
"""Changes of the evaluation alone; None where a change does nothing to the files."""


def scored_run_of(collection: Collection, folder: Path) -> ScoredRun:
    """The ranking of a result, and the judgments of its collection."""
    qrels = collection.qrels
    passages = (collection.passages.ids, collection.missing_ids)
    judged = Judgments(
        collection.queries.ids.cast(pa.string()).combine_chunks(),
        qrels.queries.astype(np.int32),
        pa.concat_arrays([chunk for ids in passages for chunk in ids.cast(pa.string()).chunks]),
        qrels.passages.astype(np.int32),
        qrels.grades,
        str(folder),
        "judgment",
        np.arange(len(qrels.grades)),
    )
    run = read_run(ranking_file(folder))
    # of the passages retrieved or judged those whose text an earlier such passage has
    ids = collection.passages.ids.cast(pa.string())
    wanted = np.isin(np.arange(len(ids)), qrels.passages)
    wanted |= pc.is_in(ids, run.documents.unique()).to_numpy()
    columns = (each.filter(pa.array(wanted)).to_pylist() for each in (ids, collection.passages.texts))
    first: dict[str, str] = {}
    copies = [name for name, text in zip(*columns, strict=True) if first.setdefault(text, name) != name]
    return ScoredRun(run, judged, copies=copies)
