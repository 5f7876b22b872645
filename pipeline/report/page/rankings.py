"""Rankings against judgments: measures by cutoff, and for each query what was found, missed or not judged.

The ranking is in the result folder. Judgments and texts are in the cache, in the data artifact that the
manifest names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core.display import counted, cut
from pipeline.core.records import Collection, Texts, from_numpy
from pipeline.formats.judgments import Judgments
from pipeline.formats.runs import Run, read_run
from pipeline.metrics.evaluation import JoinedRun, join_run_and_qrels, row_numbers
from pipeline.metrics.names import Measure
from pipeline.metrics.scoring import compute_measures, drop_identical, drop_negative
from pipeline.results.cached import ignored_hits
from pipeline.results.records import Manifest

TOP = 10
"""Number of ranks that are shown, and the cutoff of `judged`."""
MISSED = 5
"""Most relevant passages outside the top that are listed."""
CUTOFFS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)
CURVES = ("ndcg", "recall")


class Hit(NamedTuple):
    """A passage for one query. `rank` and `score` are None if it was not retrieved, `grade` if not judged."""

    passage: str
    rank: int | None
    score: float | None
    grade: int | None


@dataclass(frozen=True)
class QueryDetails:
    """One query in one result.

    Attributes:
        top: The first `TOP` passages of the ranking.
        missed: At most `MISSED` relevant passages outside the top, by grade and then by rank.
        depth: Number of passages retrieved.
        ranks: Ranks of the relevant passages that were retrieved, ascending.
        relevant: Number of relevant passages.
        why: Sentences that explain the value of the query.
    """

    top: list[Hit]
    missed: list[Hit]
    depth: int
    ranks: list[int]
    relevant: int
    why: str


@dataclass(frozen=True)
class ResultDetails:
    """One result against its judgments.

    Attributes:
        cutoffs: Cutoffs up to the depth of the ranking, or of its judgments, ascending.
        curves: For each measure of `CURVES` its mean at each cutoff.
        judged: Share of the top `TOP` passages that are judged, mean over queries.
        queries: The details of the selected queries, by query id.
    """

    cutoffs: list[int]
    curves: dict[str, list[float]]
    judged: float
    queries: dict[str, QueryDetails]


def examine_result(
    folder: Path, manifest: Manifest, collection: Collection, selected: Sequence[str], rel: int
) -> ResultDetails:
    """Score the ranking of a result at many cutoffs, and explain selected queries.

    Args:
        folder: The result folder.
        manifest: The content of its `manifest.json`.
        collection: The collection of the result.
        selected: Ids of the queries to explain.
        rel: The lowest grade that counts as relevant.
    """
    run = _run(folder / "run.trec")
    judgments = _judgments(collection)
    ignored = ignored_hits(manifest)
    depth = min(manifest.config["search"]["top_k"], len(collection.passages))
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    curves = {name: [Measure(name, (), cutoff) for cutoff in cutoffs] for name in CURVES}
    judged = Measure("judged", (), TOP)
    means = _means(join_run_and_qrels(run, judgments), [judged, *chain(*curves.values())], ignored)
    return ResultDetails(
        cutoffs=cutoffs,
        curves={name: [means[measure] for measure in measures] for name, measures in curves.items()},
        judged=means[judged],
        queries=_query_details(run, judgments, selected, rel, ignored),
    )


def _means(joined: JoinedRun, measures: Sequence[Measure], ignored: set[str]) -> dict[Measure, float]:
    """The mean of each measure over all queries; `ignored` holds values of `data.ignored`."""
    ranking = joined.ranking
    if "negative_grades" in ignored:
        ranking = drop_negative(ranking, joined.qrels)
    if "identical_ids" in ignored:
        ranking = drop_identical(ranking, row_numbers(joined.query_ids, joined.document_ids))
    means = compute_measures(ranking, joined.qrels, len(joined.query_ids), measures).mean(axis=0)
    return dict(zip(measures, means.tolist(), strict=True))


def _query_details(
    run: Run, judgments: Judgments, selected: Sequence[str], rel: int, ignored: set[str]
) -> dict[str, QueryDetails]:
    grades = _grades(judgments, selected)
    details = {}
    for query, hits in _hits(run, selected).items():
        kept = [hit for hit in hits if hit[0] != query] if "identical_ids" in ignored else hits
        if "negative_grades" in ignored:
            kept = [hit for hit in kept if grades[query].get(hit[0], 0) >= 0]
        details[query] = explain_query(kept, grades[query], rel)
    return details


def explain_query(hits: Sequence[tuple[str, float]], grades: dict[str, int], rel: int) -> QueryDetails:
    """Compare the ranking of one query with its judgments.

    Args:
        hits: Passage ids and scores, best first.
        grades: Grade of each judged passage.
        rel: The lowest grade that counts as relevant.
    """
    found = [Hit(name, rank, value, grades.get(name)) for rank, (name, value) in enumerate(hits, 1)]
    by_passage = {hit.passage: hit for hit in found}
    relevant = [
        by_passage.get(name, Hit(name, None, None, grade)) for name, grade in grades.items() if grade >= rel
    ]
    missed = [hit for hit in relevant if hit.rank is None or hit.rank > TOP]
    missed.sort(key=lambda hit: (-(hit.grade or 0), hit.rank or len(found) + 1, hit.passage))
    ranks = sorted(hit.rank for hit in relevant if hit.rank)
    why = _why(found, ranks, len(relevant))
    return QueryDetails(found[:TOP], missed[:MISSED], len(found), ranks, len(relevant), why)


def select_texts(texts: Texts, ids: Sequence[str], length: int) -> dict[str, str]:
    """The texts with these ids, each cut to `length` characters; unknown ids are left out."""
    rows = from_numpy(np.flatnonzero(row_numbers(texts.ids, pa.array(ids, pa.string())) >= 0))
    names, found = texts.ids.take(rows).to_pylist(), texts.texts.take(rows).to_pylist()
    return {name: cut(text, length) for name, text in zip(names, found, strict=True)}


def _why(found: Sequence[Hit], ranks: Sequence[int], relevant: int) -> str:
    """Sentences about the ranks of the relevant passages, and about unjudged ones in the top."""
    top = found[:TOP]
    if not relevant:
        why = "No passage is judged relevant."
    elif not ranks and relevant == 1:
        why = f"The only relevant passage is not among the {len(found)} retrieved."
    elif not ranks:
        why = f"None of the {relevant} relevant passages is among the {len(found)} retrieved."
    else:
        within = sum(rank <= TOP for rank in ranks)
        share = f"{within} of {counted(relevant, 'relevant passage')}"
        why = f"{_first_relevant(found[: ranks[0] - 1])} The top {len(top)} contains {share}."
    unjudged = sum(hit.grade is None for hit in top)
    verb = "is" if unjudged == 1 else "are"
    return f"{why} {unjudged} of the top {len(top)} {verb} unjudged." if unjudged else why


def _first_relevant(above: Sequence[Hit]) -> str:
    """A sentence about the first relevant passage and the passages above it."""
    if not above:
        return "A relevant passage is at rank 1."
    unjudged = sum(hit.grade is None for hit in above)
    counts = {"judged non-relevant": len(above) - unjudged, "unjudged": unjudged}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"The first relevant passage is at rank {len(above) + 1}, below {' and '.join(parts)}."


def _run(path: Path) -> Run:
    """The run of a result, which is empty if nothing was retrieved for any query."""
    if path.stat().st_size:
        return read_run(path)
    none = pa.array([], pa.string())
    return Run(none, np.zeros(0, np.int32), pa.chunked_array([none]), np.zeros(0, np.float32))


def _judgments(collection: Collection) -> Judgments:
    """The judgments of a collection in the form that `read_qrels` gives."""
    qrels = collection.qrels
    judged, queries = np.unique(qrels.queries, return_inverse=True)
    ids = pa.chunked_array([*collection.passages.ids.chunks, *collection.missing_ids.chunks], pa.string())
    passages = ids.take(from_numpy(qrels.passages)).combine_chunks().dictionary_encode()
    return Judgments(
        query_ids=collection.queries.ids.take(from_numpy(judged)).combine_chunks(),
        queries=queries.astype(np.int32),
        passage_ids=passages.dictionary,
        passages=passages.indices.to_numpy(),
        grades=np.asarray(qrels.grades),
        origin="the collection",
        unit="judgment",
        numbers=np.arange(len(qrels.grades)),
    )


def _grades(judgments: Judgments, selected: Sequence[str]) -> dict[str, dict[str, int]]:
    """The grade of each judged passage, for each selected query."""
    grades = {}
    rows = row_numbers(pa.array(selected, pa.string()), judgments.query_ids)
    for query, row in zip(selected, rows.tolist(), strict=True):
        first, last = np.searchsorted(judgments.queries, (row, row + 1))
        names = judgments.passage_ids.take(from_numpy(judgments.passages[first:last])).to_pylist()
        grades[query] = dict(zip(names, judgments.grades[first:last].tolist(), strict=True))
    return grades


def _hits(run: Run, selected: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """Passage ids and scores of each selected query, in the order of the file, which is by rank."""
    rows = row_numbers(pa.array(selected, pa.string()), run.query_ids)
    lines = np.flatnonzero(np.isin(run.queries, rows))
    names, scores = run.documents.take(from_numpy(lines)).to_pylist(), run.scores[lines].tolist()
    ranking: dict[int, list[tuple[str, float]]] = {row: [] for row in rows.tolist()}
    for row, name, value in zip(run.queries[lines].tolist(), names, scores, strict=True):
        ranking[row].append((name, value))
    return {query: ranking[row] for query, row in zip(selected, rows.tolist(), strict=True)}
