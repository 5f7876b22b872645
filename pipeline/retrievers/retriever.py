"""The base class of all kinds of retrievers, and the rankings that they make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
from typing_extensions import TypeVar

from pipeline.config import FLAT, Config
from pipeline.config.settings import Section
from pipeline.core.display import Bar
from pipeline.core.plugins import origin
from pipeline.core.records import Collection, Float32, Float64, Int64, Ranking
from pipeline.data.loading import Identity
from pipeline.encoders.batching import Usage
from pipeline.encoders.opener import ModelSource
from pipeline.engines.engine import EngineFactory
from pipeline.metrics.definitions import Measure
from pipeline.retrievers.costs import VectorsCost
from pipeline.retrievers.sections import ApproximateIndex, Chunking, Sparsity
from pipeline.retrievers.stage import Facts, Inputs, Plan, StoredSize
from pipeline.retrievers.truncation import Truncation
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.store import Store
from pipeline.storage.whole_files import RANKING

COLLECTION, CHUNKS = "data", "chunks"
"""The role of the collection, in every plan, and that of the chunks that its passages are cut into."""
PASSAGES, SCORES, BEST_CHUNKS = "passages.npy", "scores.npy", "chunks.npy"
"""In the artifact of a ranking: the arrays of `Ranking`; the last one only where chunks were searched."""

Settings = TypeVar("Settings", bound=Section, covariant=True, default=Section)
Find = Callable[[Any, int, Bar], Ranking]
"""(queries, k, bar) -> the best k of each; queries are as the stage `queries` opens them."""
QueryEncoder = Callable[[str, Usage], Any]
"""Turns the text of a query into its row; what that costs is added."""


class Search(NamedTuple):
    """A search of the passages, or of the chunks that they are cut into."""

    find: Find
    take: Callable[[Any, Int64], Any]  # (queries, numbers int64 [n]) -> the queries of these numbers
    # (one query, rows int64 [n]) -> their scores, float32 [n]; see `pipeline.search.documents.rank`
    score: Callable[[Any, Int64], Float32] | None = None


def save_ranking(draft: Draft, collection: Collection, ranking: Ranking) -> Facts:
    """Write a ranking as arrays and as a TREC run: what every kind's search leaves."""
    from pipeline.formats.runs import write_run

    draft.save_array(PASSAGES, ranking.passages)
    draft.save_array(SCORES, ranking.scores)
    if ranking.chunks is not None:
        draft.save_array(BEST_CHUNKS, ranking.chunks)
    with draft.file(RANKING) as path, open(path, "wb") as file:
        write_run(file, collection.queries.ids, collection.passages.ids, ranking)
    return {"queries": len(ranking.passages), "depth": int(ranking.passages.shape[1])}


def open_ranking(artifact: Artifact) -> Ranking:
    """The ranking that `save_ranking` wrote, memory-mapped."""
    ranking = Ranking(artifact.array(PASSAGES), artifact.array(SCORES))
    shape = (artifact.facts["queries"], artifact.facts["depth"])
    kinds = ranking.passages.dtype == np.int64 and ranking.scores.dtype in (np.float32, np.float64)
    if not kinds or not ranking.passages.shape == ranking.scores.shape == shape:
        raise ValueError(f"its ranking is not of shape {list(shape)}")
    return ranking


@dataclass(frozen=True)
class Evaluator:
    """Scores rankings of one collection."""

    collection: Collection  # the passages, queries and judgments
    measures: Sequence[Measure]  # those of the config
    queries: Int64  # int64 [judged queries]: the rows of the queries that are scored
    draws: Sequence[Hashable]  # what each of them is a part of, which is drawn as a whole

    def score(self, ranking: Ranking) -> Float64:
        """The measures of a ranking, float64 [judged queries, measures]."""
        from pipeline.metrics.scoring import compute_measures

        return compute_measures(ranking, self.collection.qrels, self.measures)[self.queries]

    def means(self, values: Float64) -> dict[str, float]:
        """The mean of each measure over the queries."""
        means = values.mean(axis=0).tolist() if self.measures else []
        return dict(zip(map(str, self.measures), means, strict=True))


@dataclass(eq=False)
class Retriever(ABC, Generic[Settings]):
    """Makes a ranking of a collection; a kind names the class of its section, as `Retriever[Settings]`.

    Args:
        config: The benchmark's settings, with the backends that are used.
        settings: The section of the config that names the kind.
        identity: The hashes of the collection's parts.
        source: What gives the rows or scores that parts of the work consist of; None if no work is divided.
        parts: The retrievers that are joined, or the one whose ranking is reranked: each is that of a
            benchmark alone.

    Attributes:
        sources: The sources of the parts, and then its own.
        plan: `stages` with the engine of each, and the `origin` of a kind of another package in its settings.
        assessed: The roles of the rankings that `assess` gets besides its own.
    """

    ranking: ClassVar[str] = "search"  # the role, in `stages`, of the stage that makes the ranking
    config: Config
    settings: Settings
    identity: Identity
    source: ModelSource | None = None
    parts: Sequence[Retriever] = ()
    sources: list[ModelSource] = field(init=False)
    plan: Plan = field(init=False)
    assessed: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.sources = [source for part in self.parts for source in part.sources]
        self.sources += [self.source] if self.source else []
        engine, made_by = EngineFactory(self.source, self.config.engine), origin(type(self))
        self.plan = {
            role: replace(stage, engine=stage.engine or engine, settings={**stage.settings, **made_by})
            for role, stage in self.stages().items()
        }

    @abstractmethod
    def stages(self) -> Plan:
        """The stages from the collection to the ranking."""

    def assess(self, evaluator: Evaluator, rankings: Mapping[str, Ranking]) -> Facts:
        """What is measured of the `assessed` rankings, by role, as JSON by its key in `metrics.json`."""
        return {}

    def check(self) -> None:
        """Refuse settings that do not fit the model, the index or this machine."""
        for part in self.parts:
            part.check()

    def check_collection(self, collection: Collection) -> None:
        """Refuse settings that do not fit the collection, once it is read and before texts are encoded."""
        for part in self.parts:
            part.check_collection(collection)

    def stored_sizes(self, passages: int, queries: int) -> dict[str, StoredSize]:
        """Of so many texts, by role: sizes of vectors and indexes, where a formula gives them."""
        return {}

    def open_search(self, inputs: Inputs) -> Search:
        """Open what the stage `search` searches; of its inputs, the queries are not needed.

        A kind that reads texts itself has this and `encode_query`: by them it answers queries one at a time.
        """
        raise NotImplementedError

    def encode_query(self, store: Store) -> QueryEncoder:
        """Loads what turns the text of one query into what the stage `queries` would open."""
        raise NotImplementedError

    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        """What `metrics.json` says besides the measures, by key of `pipeline.retrievers.sections`.

        It is given the artifacts of the listed stages by role, what was measured, and the rows of stages as
        JSON. Chunks that are no longer stored are left out.
        """
        config, facts = self.config, artifacts[self.ranking].facts
        sections: Facts = {}
        if config.data.chunks and CHUNKS in artifacts:
            counts = {name: artifacts[CHUNKS].facts[name] for name in ("chunks", "cut")}
            settings = {**config.data.chunks.model_dump(mode="json"), "aggregate": config.search.aggregate}
            sections[Chunking.key] = {**settings, **counts}
        sections |= Truncation.reported(artifacts, bool(config.data.chunks))
        sections |= {key: facts[key] for key in (VectorsCost.key, Sparsity.key) if key in facts}
        if config.index.factory != FLAT:
            settings = {**config.index.model_dump(mode="json"), "parameters": config.search.parameters}
            sections[ApproximateIndex.key] = settings
        return sections
