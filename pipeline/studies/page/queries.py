"""Data for the page's list of queries: the values of all, and why selected ones have theirs.

The ranking is in the result folder. Judgments and texts are in the cache, in the data artifact that the
manifest names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import counted, cut
from pipeline.core.records import Chunks, Collection, Float64, JsonObject, Texts, from_numpy, take_texts
from pipeline.metrics.definitions import parse_measure, parse_measures
from pipeline.metrics.scoring import compute_measures, row_numbers
from pipeline.results.folder import CollectionResult
from pipeline.studies.shared.cached import find_chunks, find_collection, scored_ranking

QUERIES = 200
"""Most queries that are shown with their passages."""
RANKINGS = 500
"""Most rankings, queries times results, that are shown with their passages."""
QUERY_LENGTH = 200
PASSAGE_LENGTH = 300
"""Texts are cut at these numbers of characters."""

Excerpt = tuple[int, int, str]
"""The first character of a chunk, the one after its last, and its text."""
TOP = 10
"""Number of ranks that are shown, and the cutoff of `judged`."""
MISSED = 5
"""Most relevant passages outside the top that are listed."""
CUTOFFS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)
CURVES = ("ndcg", "recall")
OF_PAIR = ("difference", "ci_low", "ci_high", "fragile", "shown", "wins", "ties", "losses")
"""What the page's script says of a pair."""


class Hit(NamedTuple):
    """A passage for one query. `rank` and `score` are None if it was not retrieved, `grade` if not judged.

    `chunk` is the one that it was found by, where passages are cut.
    """

    passage: str
    rank: int | None
    score: float | None
    grade: float | None
    chunk: Excerpt | None = None


@dataclass(frozen=True)
class QueryDetails:
    """One query in one result."""

    top: list[Hit]  # the first `TOP` passages of the ranking
    missed: list[Hit]  # at most `MISSED` relevant passages outside the top, by grade and then by rank
    depth: int  # number of passages retrieved
    ranks: list[int]  # ranks of the relevant passages that were retrieved, ascending
    relevant: int  # number of relevant passages
    why: str  # sentences that explain the value of the query


@dataclass(frozen=True)
class ResultDetails:
    """One result against its judgments."""

    cutoffs: list[int]  # cutoffs up to the depth of the ranking, or of its judgments, ascending
    curves: dict[str, list[float]]  # for each measure of `CURVES` its mean at each cutoff
    judged: float  # share of the top `TOP` passages that are judged, mean over queries
    queries: dict[str, QueryDetails]  # the details of the selected queries, by query id


@dataclass(frozen=True)
class QueryData:
    """What the run files and the cached collections say about the queries."""

    rel: float  # the lowest grade that counts as relevant for the measure
    details: list[ResultDetails | None]  # one per result; None where its collection is not in its cache
    selected: list[str]  # ids of the queries shown with their passages
    queries: dict[str, str]  # text of each query that has one
    passages: dict[str, str]  # text of each passage shown
    notes: list[str]  # sentences about missing collections

    def json(self, comparison: Comparison) -> JsonObject:
        """The data of the page's script, with every query and every text once."""
        query_rows = {query: row for row, query in enumerate(comparison.query_ids)}
        names = {entry.name: number for number, entry in enumerate(comparison.results)}
        return {
            "measure": comparison.measure,
            "rel": self.rel,
            "names": list(names),
            "values": np.round(comparison.values.T, 4).tolist(),
            "pairs": [
                [names[pair.a], names[pair.b], *(getattr(pair, name) for name in OF_PAIR)]
                for pair in comparison.pairs
            ],
            "ids": comparison.query_ids,
            "texts": [self.queries.get(query, "") for query in comparison.query_ids],
            "passages": self.passages,
            "details": {
                query_rows[query]: [details and vars(details.queries[query]) for details in self.details]
                for query in self.selected
            },
        }


def read_query_data(comparison: Comparison) -> QueryData:
    """Read the rankings, and the judgments and texts of the collections that are in their caches."""
    rows = select_queries(comparison.values, min(QUERIES, RANKINGS // len(comparison.results)))
    ids = [comparison.query_ids[row] for row in rows]
    rel = parse_measure(comparison.measure).settings.get("rel", 1)
    assert isinstance(rel, int | float)
    opened: dict[tuple[str, str], Collection | None] = {}
    details: list[ResultDetails | None] = []
    queries: dict[str, str] = {}
    passages: dict[str, str] = {}
    for source in comparison.sources:
        place = source.manifest.cache_here, str(source.manifest.recipes.get("data", {}).get("key"))
        if place not in opened:
            opened[place] = find_collection(source)
        collection = opened[place]
        if collection is None:
            details.append(None)
            continue
        examined = examine_result(source, collection, ids, rel)
        details.append(examined)
        queries = queries or select_texts(collection.queries, comparison.query_ids, QUERY_LENGTH)
        hits = chain.from_iterable((*query.top, *query.missed) for query in examined.queries.values())
        new = [name for name in dict.fromkeys(hit.passage for hit in hits) if name not in passages]
        passages |= dict.fromkeys(new, "") | select_texts(collection.passages, new, PASSAGE_LENGTH)
    selected = ids if any(details) else []
    notes = []
    if missing := [number for number, found in enumerate(details) if found is None]:
        results = ", ".join(comparison.results[number].name for number in missing)
        manifests = [comparison.sources[number].manifest for number in missing]
        caches = ", ".join(sorted({manifest.cache or manifest.cache_here for manifest in manifests}))
        notes.append(
            f"The collection of {results} is not in its cache ({caches}), so this page shows no curves, "
            "judgments or passages for it. Run the config again."
        )
    return QueryData(rel, details, selected, queries, passages, notes)


def select_queries(values: Float64, limit: int) -> list[int]:
    """Rows of the queries where two results differ most, or where one scores lowest: `limit` at most.

    Of `values`, float64 [queries, results], in turn the row with the largest difference of every pair and
    with the lowest value of every result, then those with the second largest and second lowest, and so on;
    each row once.
    """
    orders: list[Sequence[int]] = [
        np.argsort(-np.abs(values[:, a] - values[:, b]), kind="stable").tolist()
        for a, b in combinations(range(values.shape[1]), 2)
    ]
    orders += [np.argsort(column, kind="stable").tolist() for column in values.T]
    return list(dict.fromkeys(chain.from_iterable(zip(*orders, strict=True))))[:limit]


def examine_result(
    source: CollectionResult, collection: Collection, selected: Sequence[str], rel: float
) -> ResultDetails:
    """Score the ranking of a result at many cutoffs, and explain the queries with the ids `selected`.

    `rel` is the lowest grade that counts as relevant.
    """
    ranking, qrels = scored_ranking(source, collection), collection.qrels
    depth = min(source.manifest.config["search"]["top_k"], len(collection.passages))
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    measures = parse_measures([f"judged@{TOP}", *(f"{name}@{k}" for name in CURVES for k in cutoffs)])
    values = compute_measures(ranking, qrels, measures)
    judged, *means = values[np.unique(qrels.queries)].mean(axis=0).tolist()
    ids, found_by = collection.judged_ids, find_chunks(source.manifest)
    queries = {}
    rows = row_numbers(pa.array(selected, pa.string()), collection.queries.ids)
    for query, row in zip(selected, rows.tolist(), strict=True):
        kept = np.flatnonzero(ranking.passages[row] >= 0)
        passages = ranking.passages[row][kept]
        found = ids.take(from_numpy(passages)).to_pylist()
        first, last = np.searchsorted(qrels.queries, (row, row + 1))
        names = ids.take(from_numpy(qrels.passages[first:last])).to_pylist()
        grades = dict(zip(names, qrels.grades[first:last].tolist(), strict=True))
        hits = list(zip(found, ranking.scores[row][kept].tolist(), strict=True))
        told = queries[query] = explain_query(hits, grades, rel)
        if found_by:
            chunks, documents, best = found_by
            by_row = dict(zip(documents[row].tolist(), best[row].tolist(), strict=True))
            chunk_of = dict(zip(found, map(by_row.get, passages.tolist()), strict=True))
            for shown in (told.top, told.missed):
                shown[:] = [hit._replace(chunk=_excerpt(chunks, chunk_of.get(hit.passage))) for hit in shown]
    size = len(cutoffs)
    curves = {name: means[number * size : (number + 1) * size] for number, name in enumerate(CURVES)}
    return ResultDetails(cutoffs, curves, judged, queries)


def _excerpt(chunks: Chunks, number: int | None) -> Excerpt | None:
    """The characters [start, stop) of a chunk, and its text, cut; None of a document that was not found."""
    if number is None:
        return None
    start, stop = chunks.places[:, number].tolist()
    return start, stop, cut(chunks.texts.texts[number].as_py(), PASSAGE_LENGTH)


def explain_query(hits: Sequence[tuple[str, float]], grades: dict[str, float], rel: float) -> QueryDetails:
    """Compare the ranking of one query, passage ids and scores, best first, with its judgments.

    `grades` has that of each judged passage; from `rel` on it is relevant.
    """
    hits_shown = [Hit(name, rank, value, grades.get(name)) for rank, (name, value) in enumerate(hits, 1)]
    by_passage = {hit.passage: hit for hit in hits_shown}
    relevant = [
        by_passage.get(name, Hit(name, None, None, grade)) for name, grade in grades.items() if grade >= rel
    ]
    missed = [hit for hit in relevant if hit.rank is None or hit.rank > TOP]
    missed.sort(key=lambda hit: (-(hit.grade or 0), hit.rank or len(hits_shown) + 1, hit.passage))
    ranks = sorted(hit.rank for hit in relevant if hit.rank)
    why = _why(hits_shown, ranks, len(relevant))
    return QueryDetails(hits_shown[:TOP], missed[:MISSED], len(hits_shown), ranks, len(relevant), why)


def select_texts(texts: Texts, ids: Sequence[str], length: int) -> dict[str, str]:
    """The texts with these ids, each cut to `length` characters; unknown ids are left out."""
    rows = np.flatnonzero(row_numbers(texts.ids, pa.array(ids, pa.string())) >= 0)
    names, found = (take_texts(column, rows).to_pylist() for column in (texts.ids, texts.texts))
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
        above = found[: ranks[0] - 1]
        unjudged = sum(hit.grade is None for hit in above)
        counts = {"judged non-relevant": len(above) - unjudged, "unjudged": unjudged}
        below = " and ".join(f"{count} {what}" for what, count in counts.items() if count)
        within = f"{sum(rank <= TOP for rank in ranks)} of {counted(relevant, 'relevant passage')}"
        why = f"The first relevant passage is at rank {ranks[0]}{below and f', below {below}'}."
        why += f" The top {len(top)} contains {within}."
    unjudged = sum(hit.grade is None for hit in top)
    verb = "is" if unjudged == 1 else "are"
    return f"{why} {unjudged} of the top {len(top)} {verb} unjudged." if unjudged else why
