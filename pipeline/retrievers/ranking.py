"""Rankings: how every kind's search stores them, and what is measured of them besides the measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.config import SearchConfig
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Float64, Int64, Ranking
from pipeline.metrics.names import Measure
from pipeline.retrievers.stage import Facts
from pipeline.storage.artifacts import Artifact, Draft

COLLECTION = "data"  # the role of the collection, in every plan
TAG = "benchmarco"  # the last column of run.trec
BEST_CHUNKS = "chunks.npy"
"""In the artifact of a ranking of documents: int64 [queries, k], the best chunk of each."""
EXACT = "exact"  # the role of the exact search that an approximate index is compared with
EXACT_MEMORY_MB = 1024  # for that search


def save_ranking(draft: Draft, collection: Collection, ranking: Ranking) -> Facts:
    """Write a ranking as arrays and as a TREC run: what every kind's search leaves."""
    from pipeline.formats.runs import write_run

    draft.save_array("passages.npy", ranking.passages)
    draft.save_array("scores.npy", ranking.scores)
    if ranking.chunks is not None:
        draft.save_array(BEST_CHUNKS, ranking.chunks)
    with draft.file("run.trec") as path, open(path, "wb") as file:
        write_run(file, collection.queries.ids, collection.passages.ids, ranking, TAG)
    return {"queries": len(ranking.passages), "depth": int(ranking.passages.shape[1])}


def open_ranking(artifact: Artifact) -> Ranking:
    """The ranking that `save_ranking` wrote, memory-mapped."""
    ranking = Ranking(artifact.array("passages.npy"), artifact.array("scores.npy"))
    shape = (artifact.facts["queries"], artifact.facts["depth"])
    kinds = ranking.passages.dtype == np.int64 and ranking.scores.dtype in (np.float32, np.float64)
    if not kinds or not ranking.passages.shape == ranking.scores.shape == shape:
        raise ValueError(f"its ranking is not of shape {list(shape)}")
    return ranking


def check_cutoff(measure: Measure, setting: str, top_k: int) -> None:
    """Refuse a measure that looks at more ranks than are kept."""
    if measure.cutoff and measure.cutoff > top_k:
        raise InputError(
            f"{setting}: {measure} looks at {measure.cutoff} ranks, search.top_k keeps {top_k}",
            allowed=f"cutoffs up to {top_k}",
            fix="raise search.top_k or lower the cutoff",
        )


@dataclass(frozen=True)
class Judge:
    """Scores rankings of one collection.

    Attributes:
        collection: The passages, queries and judgments.
        measures: Those of the config.
        queries: int64 [judged queries], the rows of the queries that are scored.
        counted: A ranking without the passages that `data.ignored` names.
        score: The measures of a ranking, float64 [judged queries, measures].
    """

    collection: Collection
    measures: Sequence[Measure]
    queries: Int64
    counted: Callable[[Ranking], Ranking]
    score: Callable[[Ranking], Float64]

    def means(self, values: Float64) -> dict[str, float]:
        """The mean of each measure over the queries."""
        means = values.mean(axis=0).tolist() if self.measures else []
        return dict(zip(map(str, self.measures), means, strict=True))


@dataclass(frozen=True)
class Assessment:
    """What is measured of some rankings of a plan, for `metrics.json`.

    Attributes:
        rankings: The roles of the stages that make them, or what is compared besides.
        assess: Gets the judge and the rankings; returns JSON by its key in `metrics.json`.
    """

    rankings: tuple[str, ...]
    assess: Callable[[Judge, Sequence[Any]], Facts]


def exact_search(search: SearchConfig) -> SearchConfig:
    """How the exact search is done that an approximate one is compared with."""
    return SearchConfig(top_k=search.top_k, batch_size=search.batch_size, memory_mb=EXACT_MEMORY_MB)


def against_exact(ranking: str) -> Assessment:
    """What the ranking of a role loses to that of the role `EXACT`."""

    def assess(judge: Judge, rankings: Sequence[Ranking]) -> Facts:
        from pipeline.search import exact

        found, whole = rankings
        scores = judge.score(found), judge.score(whole)
        return {
            "against_exact": exact.compare_with_exact(found.passages, whole.passages, judge.measures, *scores)
        }

    return Assessment((ranking, EXACT), assess)
