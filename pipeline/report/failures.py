"""Why did a query fail? What was relevant, where it ranked, what stood above it, and what nobody judged.

A result folder holds the ranking; judgments and texts are in the cache, in the data artifact it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.core.display import cut
from pipeline.core.records import Collection, Texts
from pipeline.data import open_collection
from pipeline.formats.trec import Lines, read_run
from pipeline.metrics.evaluation import Joined, join, row_numbers
from pipeline.metrics.names import Measure
from pipeline.metrics.scoring import drop_identical, score
from pipeline.results.records import Manifest
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store

TOP = 10
"""Ranks that are shown, and of which is asked how many were judged."""
MISSED = 5
"""Relevant passages outside the top that are listed."""
CUTOFFS = (1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1000)
CURVES = ("ndcg", "recall")


class Hit(NamedTuple):
    """A passage for one query: `rank` and `score` are None if it was not retrieved, `grade` if not judged."""

    passage: str
    rank: int | None
    score: float | None
    grade: int | None


@dataclass(frozen=True)
class Explained:
    """One query in one result.

    Attributes:
        top: The first passages of the ranking.
        missed: Relevant passages that are not among them, highest grade first, then by rank; the first
            `MISSED`.
        depth: How many passages were retrieved.
        ranks: The rank of every relevant passage that was retrieved, ascending.
        relevant: How many passages are relevant.
        why: One sentence.
    """

    top: list[Hit]
    missed: list[Hit]
    depth: int
    ranks: list[int]
    relevant: int
    why: str


@dataclass(frozen=True)
class Examined:
    """One result against its judgments.

    Attributes:
        cutoffs: Ascending, up to the depth of the ranking.
        curves: For each measure of `CURVES` its mean at each cutoff.
        judged: Share of the top 10 that somebody judged, mean over queries.
        queries: What was asked about, by query id.
    """

    cutoffs: list[int]
    curves: dict[str, list[float]]
    judged: float
    queries: dict[str, Explained]


def find_collection(manifest: Manifest) -> Collection | None:
    """The collection a result was made from, if it is still in the cache its config names."""
    recipe, cache = manifest.recipes.get("data"), manifest.config.get("cache")
    if not recipe or not cache:
        return None
    plain = {name: value for name, value in recipe.items() if name != "key"}
    artifact = Store(Path(cache)).find(Recipe("data", plain))
    return open_collection(artifact) if artifact else None


def examine(
    folder: Path, manifest: Manifest, collection: Collection, chosen: Sequence[str], rel: int
) -> Examined:
    """Score a result's ranking at many cutoffs, and explain some of its queries.

    Args:
        folder: The result folder.
        manifest: The content of its `manifest.json`.
        collection: What `find_collection` found.
        chosen: Ids of the queries to explain.
        rel: The lowest grade that counts as relevant.
    """
    run, judgments = _run(folder / "run.trec"), _judgments(collection)
    alone = manifest.config["evaluate"]["ignore_identical_ids"]
    depth = min(manifest.config["search"]["top_k"], len(collection.passages))
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= depth]
    curves = {name: [Measure(name, (), cutoff) for cutoff in cutoffs] for name in CURVES}
    judged = Measure("judged", (), TOP)
    means = _means(join(run, judgments), [judged, *chain(*curves.values())], alone)
    return Examined(
        cutoffs=cutoffs,
        curves={name: [means[measure] for measure in measures] for name, measures in curves.items()},
        judged=means[judged],
        queries=_explained(run, judgments, chosen, rel, alone),
    )


def _means(joined: Joined, measures: Sequence[Measure], alone: bool) -> dict[Measure, float]:
    """Each measure's mean over all queries; `alone` leaves out passages with a query's own id."""
    ranking = joined.ranking
    if alone:
        ranking = drop_identical(ranking, row_numbers(joined.query_ids, joined.document_ids))
    means = score(ranking, joined.qrels, len(joined.query_ids), measures).mean(axis=0)
    return dict(zip(measures, means.tolist(), strict=True))


def _explained(
    run: Lines, judgments: Lines, chosen: Sequence[str], rel: int, alone: bool
) -> dict[str, Explained]:
    grades = _grades(judgments, chosen)
    return {
        query: explain([hit for hit in hits if not (alone and hit[0] == query)], grades[query], rel)
        for query, hits in _hits(run, chosen).items()
    }


def explain(hits: Sequence[tuple[str, float]], grades: dict[str, int], rel: int) -> Explained:
    """Set one query's ranking against its judgments.

    Args:
        hits: Passage ids and scores, in order.
        grades: The grade of each judged passage.
        rel: The lowest grade that counts as relevant.
    """
    found = [Hit(name, rank, value, grades.get(name)) for rank, (name, value) in enumerate(hits, 1)]
    top, place = found[:TOP], {hit.passage: hit for hit in found}
    relevant = [
        place.get(name, Hit(name, None, None, grade)) for name, grade in grades.items() if grade >= rel
    ]
    shown = {hit.passage for hit in top}
    missed = [hit for hit in relevant if hit.passage not in shown]
    missed.sort(key=lambda hit: (-(hit.grade or 0), hit.rank or len(found) + 1, hit.passage))
    ranks = sorted(hit.rank for hit in relevant if hit.rank)
    return Explained(
        top, missed[:MISSED], len(found), ranks, len(relevant), _why(found, ranks, len(relevant))
    )


def texts_of(texts: Texts, ids: Sequence[str], length: int) -> dict[str, str]:
    """The texts with these ids, as far as they are there, each cut to `length` characters."""
    rows = pa.array(np.flatnonzero(row_numbers(texts.ids, pa.array(ids, pa.string())) >= 0))
    names, found = texts.ids.take(rows).to_pylist(), texts.texts.take(rows).to_pylist()
    return {name: cut(text, length) for name, text in zip(names, found, strict=True)}


def _why(found: Sequence[Hit], ranks: Sequence[int], relevant: int) -> str:
    """What became of the relevant passages, and who stands above the first of them."""
    top = found[:TOP]
    unjudged = sum(hit.grade is None for hit in top)
    judged = f"Nobody judged {unjudged} of the top {len(top)}." if unjudged else ""
    if not relevant:
        return f"No passage is judged relevant. {judged}".strip()
    if not ranks:
        one = "The only relevant passage" if relevant == 1 else f"None of the {relevant} relevant passages"
        return f"{one} is {'not ' if relevant == 1 else ''}among the {len(found)} retrieved. {judged}".strip()
    first = ranks[0]
    if first > 1:
        above = found[: first - 1]
        never = sum(hit.grade is None for hit in above)
        parts = [
            f"{count} {what}"
            for count, what in ((len(above) - never, "judged not relevant"), (never, "never judged"))
            if count
        ]
        led = f"The first relevant passage is at rank {first}, below {' and '.join(parts)}."
    else:
        led = "A relevant passage leads."
    within = sum(rank <= TOP for rank in ranks)
    return f"{led} The top {len(top)} holds {within} of {relevant} relevant. {judged}".strip()


def _run(path: Path) -> Lines:
    """A result's run; it has no line where BM25 found nothing for any query."""
    if path.stat().st_size:
        return read_run(path)
    none = pa.array([], pa.string())
    return Lines(none, np.zeros(0, np.int32), pa.chunked_array([none]), np.zeros(0, np.float32))


def _judgments(collection: Collection) -> Lines:
    """A collection's judgments as if they were read from a file."""
    qrels = collection.qrels
    return Lines(
        query_ids=collection.queries.ids.combine_chunks(),
        queries=qrels.queries.astype(np.int32),
        documents=collection.passages.ids.take(pa.array(qrels.passages)),
        values=np.asarray(qrels.grades),
    )


def _grades(judgments: Lines, chosen: Sequence[str]) -> dict[str, dict[str, int]]:
    """For each chosen query the grade of each passage judged for it."""
    grades, rows = {}, row_numbers(pa.array(chosen, pa.string()), judgments.query_ids)
    for query, row in zip(chosen, rows.tolist(), strict=True):
        first, last = np.searchsorted(judgments.queries, (row, row + 1))
        names = judgments.documents.slice(first, last - first).to_pylist()
        grades[query] = dict(zip(names, judgments.values[first:last].tolist(), strict=True))
    return grades


def _hits(run: Lines, chosen: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """The ranking of each chosen query, in the file's order, which is that of the ranks."""
    rows = row_numbers(pa.array(chosen, pa.string()), run.query_ids)
    lines = np.flatnonzero(np.isin(run.queries, rows))
    names, scores = run.documents.take(pa.array(lines)).to_pylist(), run.values[lines].tolist()
    ranking: dict[int, list[tuple[str, float]]] = {row: [] for row in rows.tolist()}
    for row, name, value in zip(run.queries[lines].tolist(), names, scores, strict=True):
        ranking[row].append((name, value))
    return {query: ranking[row] for query, row in zip(chosen, rows.tolist(), strict=True)}
