"""A finished ranking and how it is scored, with changes of the evaluation alone (`EVALUATION`).

scored_run_of(config, folder).means(["ndcg@10"])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import Config
from pipeline.core.records import BoolArray, Collection, Float64, Int32, Int64
from pipeline.core.result_files import RANKING
from pipeline.formats.judgments import Judgments
from pipeline.formats.runs import Run, read_run
from pipeline.metrics.evaluation import join_run_and_qrels, row_numbers
from pipeline.metrics.names import Measure, parse_measure
from pipeline.metrics.scoring import compute_measures, drop_hits, own_passages
from pipeline.results.folder import CollectionResult, ranking_file
from pipeline.run.benchmark import Session
from pipeline.studies.shared.cached import find_collection, scored_ranking


@dataclass(frozen=True)
class ScoredRun:
    """A ranking, and how it is scored."""

    run: Run
    qrels: Judgments
    # The measure that is computed in place of one.
    measured: Callable[[Measure], Measure] = lambda measure: measure
    self_hits: bool = True  # whether hits with the query's own id count, where the run has them
    # Over which the mean is taken: all that are judged, or those with hits, or those with a relevant passage.
    queries: str = "judged"
    single: bool = False  # whether scores are compared as float32
    # Of a passage whose text an earlier one has, that one's id; of those retrieved or judged.
    copies: Mapping[str, str] = field(default_factory=dict)

    def means(self, measures: Sequence[str]) -> dict[str, float]:
        """The mean of each measure."""
        joined = join_run_and_qrels(self.run, self.qrels, self.single)
        ranking, count = joined.ranking, len(joined.query_ids)
        if not self.self_hits:
            ranking = drop_hits(ranking, own_passages(row_numbers(joined.query_ids, joined.document_ids)))
        changed = [self.measured(parse_measure(name)) for name in measures]
        values = compute_measures(ranking, joined.qrels, count, changed)
        kept: BoolArray = np.ones(count, np.bool_)
        if self.queries == "returned":
            kept = np.asarray((ranking.passages >= 0).any(axis=1))
        elif self.queries == "relevant":
            kept = np.isin(np.arange(count), joined.qrels.queries[joined.qrels.grades > 0])
        means = values[kept].mean(axis=0) if kept.any() else np.zeros(len(measures))
        return dict(zip(measures, means.tolist(), strict=True))


def _unpadded(name: str) -> str:
    """An id without leading zeros of its last number: CACM-46 for CACM-0046."""
    return re.sub(r"(?<!\d)0+(?=\d+$)", "", name)


def _renamed(qrels: Judgments, names: Mapping[str, str]) -> Judgments | None:
    """The judgments with other ids of passages; None if none changes, or two become one."""
    before = qrels.passage_ids.to_pylist()
    after = [names.get(name, name) for name in before]
    if after == before or len(set(after)) < len(after):
        return None
    return replace(qrels, passage_ids=pa.array(after, pa.string()))


def _without_zeros(scored: ScoredRun) -> ScoredRun | None:
    ids = scored.qrels.passage_ids.to_pylist()
    renamed = _renamed(scored.qrels, {name: _unpadded(name) for name in ids})
    return replace(scored, qrels=renamed) if renamed else None


def _with_zeros(scored: ScoredRun) -> ScoredRun | None:
    documents = set(scored.run.documents.unique().to_pylist())
    padded = {_unpadded(name): name for name in documents}
    absent = [name for name in scored.qrels.passage_ids.to_pylist() if name not in documents]
    renamed = _renamed(scored.qrels, {name: padded[name] for name in absent if name in padded})
    return replace(scored, qrels=renamed) if renamed else None


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


def _without_copies(judgments: bool) -> Callable[[ScoredRun], ScoredRun | None]:
    """The first passage of each text alone is retrieved; with `judgments` by their highest grade."""

    def first(ids: Sequence[str], scored: ScoredRun) -> tuple[pa.Array, Int64]:
        named = pa.array([scored.copies.get(name, name) for name in ids], pa.string()).dictionary_encode()
        return named.dictionary, named.indices.to_numpy().astype(np.int64)

    def change(scored: ScoredRun) -> ScoredRun | None:
        if not scored.copies:
            return None
        run, qrels = scored.run, scored.qrels
        listed = run.documents.combine_chunks().dictionary_encode()
        names, row = first(listed.dictionary.to_pylist(), scored)
        documents = row[listed.indices.to_numpy()]
        lines = _highest(run.queries, documents, run.scores)
        made = replace(
            run,
            queries=run.queries[lines],
            documents=pa.chunked_array([names.take(pa.array(documents[lines]))]),
            scores=run.scores[lines],
        )
        if judgments:
            names, row = first(qrels.passage_ids.to_pylist(), scored)
            passages = row[qrels.passages]
            lines = _highest(qrels.queries, passages, qrels.grades)
            qrels = replace(
                qrels,
                queries=qrels.queries[lines],
                passage_ids=names,
                passages=passages[lines].astype(np.int32),
                grades=qrels.grades[lines],
                numbers=qrels.numbers[lines],
            )
        return replace(scored, run=made, qrels=qrels)

    return change


def _highest(queries: Int32, passages: Int64, values: Int64 | Float64) -> Int64:
    """The rows of each pair's highest value, ascending."""
    order = np.lexsort((-values, passages, queries))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (np.diff(queries[order]) != 0) | (np.diff(passages[order]) != 0)
    return np.sort(order[begins])


def _param(name: str, value: int | bool | str) -> Callable[[ScoredRun], ScoredRun | None]:
    """A parameter of the measures that have it, as a change."""

    def change(scored: ScoredRun) -> ScoredRun:
        def measured(measure: Measure) -> Measure:
            if name not in [each.name for each in measure.definition.all_params]:
                return measure
            params = dict(measure.params) | {name: value}
            return replace(measure, params=tuple(sorted(params.items())))

        return replace(scored, measured=measured)

    return change


def _cutoff(name: str, k: int | None) -> Callable[[ScoredRun], ScoredRun | None]:
    """Another cutoff of a measure, or none."""

    def measured(measure: Measure) -> Measure:
        return replace(measure, cutoff=k) if measure.name == name else measure

    return lambda scored: replace(scored, measured=measured)


EVALUATION: dict[str, Callable[[ScoredRun], ScoredRun | None]] = {
    "ids of judgments without leading zeros, which match no passage": _without_zeros,
    "ids of judgments with the leading zeros that the passages' ids have": _with_zeros,
    "hits with the query's own id removed": lambda scored: replace(scored, self_hits=False),
    "the mean over queries with hits": lambda scored: replace(scored, queries="returned"),
    "the mean over queries with a relevant passage": lambda scored: replace(scored, queries="relevant"),
    "gain 2^grade - 1": _param("gain", "exp"),
    "the ideal order of retrieved passages only": _param("ideal", "retrieved"),
    "grades from 2 count as relevant": _param("rel", 2),
    "grades from 3 count as relevant": _param("rel", 3),
    "recall over at most k": _param("cap", True),
    "average precision over the relevant passages retrieved": _param("norm", "retrieved"),
    **{
        f"{name} with {f'cutoff {k}' if k else 'no cutoff'}": _cutoff(name, k)
        for name in ("map", "mrr", "ndcg")
        for k in (None, 10, 100, 1000)
    },
    "passages with an earlier one's text removed": _without_copies(judgments=False),
    "passages with an earlier one's text removed, judged as that one": _without_copies(judgments=True),
    "ties in ascending order of ids": _ties_ascending,
    "scores compared as float32": lambda scored: replace(scored, single=True),
}
"""Changes of the evaluation alone; None where a change does nothing to the files."""


def scored_run_of(config: Config, folder: Path) -> ScoredRun:
    """The ranking of a result, and the judgments of its collection."""
    with Session() as session:
        collection = session.benchmark(config).collection
        qrels = collection.qrels
        ids = pa.concat_arrays(
            [
                *collection.passages.ids.cast(pa.string()).chunks,
                *collection.missing_ids.cast(pa.string()).chunks,
            ]
        )
        judged = Judgments(
            collection.queries.ids.cast(pa.string()).combine_chunks(),
            qrels.queries.astype(np.int32),
            ids,
            qrels.passages.astype(np.int32),
            qrels.grades,
            str(folder),
            "judgment",
            np.arange(len(qrels.grades)),
        )
        run = read_run(ranking_file(folder))
        return ScoredRun(run, judged, copies=_copies(collection, run))


def _copies(collection: Collection, run: Run) -> dict[str, str]:
    """Of each passage retrieved or judged whose text an earlier such passage has, that one's id."""
    ids = collection.passages.ids.cast(pa.string())
    wanted = np.isin(np.arange(len(ids)), collection.qrels.passages)
    wanted |= pc.is_in(ids, run.documents.unique()).to_numpy()
    first: dict[str, str] = {}
    pairs = zip(
        *(column.filter(pa.array(wanted)).to_pylist() for column in (ids, collection.passages.texts)),
        strict=True,
    )
    found = {name: first.setdefault(text, name) for name, text in pairs}
    return {name: other for name, other in found.items() if name != other}


def measure_anew(result: CollectionResult, measures: Sequence[Measure]) -> dict[str, float] | None:
    """The means of measures over the result's queries, from its ranking; None without its collection."""
    collection = find_collection(result)
    if collection is None or not (result.folder / RANKING).is_file():
        return None
    ranking = scored_ranking(result, collection)
    values = compute_measures(ranking, collection.qrels, len(collection.queries), measures)
    rows = row_numbers(pa.array(result.query_ids, pa.string()), collection.queries.ids)
    return dict(zip(map(str, measures), values[rows].mean(axis=0).tolist(), strict=True))
