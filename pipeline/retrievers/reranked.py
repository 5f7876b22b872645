"""The `reranked` kind: another retriever's ranking, whose best passages are scored again by a reranker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from pipeline import engines
from pipeline.config import ScorerSettings, keyed_settings
from pipeline.core.display import decimal, p, rate, rounded, signed, signed_interval
from pipeline.core.json_record import Record, Reported, Section
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Collection, Ranking
from pipeline.core.table import Cell, Column, FilledColumn, Table, table_of
from pipeline.encoders import pairs
from pipeline.encoders.pairs import Reranker, ServedReranker
from pipeline.engines import Engine
from pipeline.metrics import paired
from pipeline.models.model import Model
from pipeline.retrievers.pair_scores import Pairs, ScoreStore, score_pairs
from pipeline.retrievers.ranking import (
    COLLECTION,
    Assessment,
    FirstStage,
    Judge,
    PairedChange,
    open_ranking,
    save_ranking,
)
from pipeline.retrievers.retriever import Retriever, TokenCounter
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage, Work
from pipeline.search import reranking
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.hashing import hash_json
from pipeline.storage.store import Store

RERANK = "rerank"
SCHEMAS = {RERANK: 1}
DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
"""Depths below that of the config at which measures are computed too."""


class AtDepth(Record):
    """The mean of each measure if so many passages of each query are reranked."""

    depth: int
    metrics: dict[str, float]


class Reranking(Section):
    """What a reranker could bring, what it brings by depth, and what it takes.

    Attributes:
        depth: Passages of each query that are scored.
        ceiling: The mean of each measure if these were ordered by their judgments.
        by_depth: Measures at lesser depths, ascending, and at `depth`.
        pairs: Pairs of a query and a passage that the ranking needs.
        pairs_per_second: None where no pair was left to score; so is `seconds_per_query`.
    """

    key = "reranking"
    heading = "Made of other rankings"

    depth: int
    ceiling: dict[str, float]
    by_depth: tuple[AtDepth, ...]
    pairs: int | None = None
    pairs_per_second: float | None = None
    seconds_per_query: float | None = None

    @classmethod
    def tables(cls, results: Mapping[str, Reported], measure: str) -> list[Table]:
        """Of each result the measures before and after reranking, and by depth."""
        tables = []
        for name, record in results.items():
            first, reranking = record.section(FirstStage), record.section(cls)
            if first and reranking:
                tables += [_before_and_after(name, record, first, reranking)]
                tables += [_by_depth(name, record, first, reranking)]
        return tables

    def speeds(
        self, encoded: float | None, answered: float | None, passages: int
    ) -> tuple[float | None, float | None]:
        """A query is reranked after its search; its speed is unknown where no pair was left to score."""
        if answered is None or self.seconds_per_query is None:
            return encoded, None
        return encoded, 1 / (1 / answered + self.seconds_per_query)


def _before_and_after(name: str, record: Reported, stage: FirstStage, reranking: Reranking) -> Table:
    """A measure a row: its mean before and after reranking, the difference, and the ceiling."""
    first, ceiling, change = stage.metrics, reranking.ceiling, stage.change
    measures = list(record.metrics)
    columns: list[FilledColumn] = [
        (Column("measure"), measures),
        (Column("first stage", "right"), [_mean(first, measure) for measure in measures]),
        (Column("reranked", "right"), [_mean(record.metrics, measure) for measure in measures]),
        (Column("difference", "right"), [_difference(change.get(measure)) for measure in measures]),
        (Column("p, Holm", "right"), [_p(change.get(measure)) for measure in measures]),
        (Column("ceiling", "right"), [_mean(ceiling, measure) for measure in measures]),
    ]
    depth = reranking.depth
    notes = [
        f"The first stage is the ranking that was reranked. The ceiling is what a reranker would reach that "
        f"ordered the best {depth:,} by their judgments.",
        "p is of the paired t-test over queries, by Holm's correction for all measures here.",
    ]
    return table_of(f"{name}: before and after reranking", columns, notes)


def _by_depth(name: str, record: Reported, first: FirstStage, reranking: Reranking) -> Table:
    """A depth a row: every measure, if so many passages of each query are reranked."""
    rows = [(0, first.metrics), *((at.depth, at.metrics) for at in reranking.by_depth)]
    columns: list[FilledColumn] = [
        (Column("depth", "right"), [Cell(f"{depth:,}", depth) for depth, _ in rows])
    ]
    for measure in record.metrics:
        columns.append((Column(measure, "right"), [_mean(means, measure) for _, means in rows]))
    return table_of(f"{name}: measures by depth of reranking", columns, _speed(reranking))


def _speed(found: Reranking) -> list[str]:
    """What reranking takes, as a note."""
    if found.pairs_per_second is None or found.seconds_per_query is None:
        return []
    return [
        f"{rate(found.pairs_per_second)} pairs scored per second, "
        f"{decimal(found.seconds_per_query, 3)} seconds a query."
    ]


def _mean(means: dict[str, Any], name: str) -> Cell:
    return Cell(rounded(means.get(name)), means.get(name))


def _difference(change: PairedChange | None) -> Cell:
    if change is None:
        return Cell("", None)
    text = signed(change.difference)
    if change.ci_low is not None and change.ci_high is not None:
        text += f"\n{signed_interval(change.ci_low, change.ci_high)}"
    return Cell(text, change.difference)


def _p(change: PairedChange | None) -> Cell:
    return Cell("", None) if change is None else Cell(p(change.p_holm), change.p_holm)


class Reranked(Retriever[ScorerSettings]):
    """See `pipeline.retrievers.retriever.Retriever`; `first` is the retriever whose ranking is reranked."""

    @property
    def settings(self) -> ScorerSettings:
        """The section `rerank`."""
        return cast("ScorerSettings", self.config.rerank)

    @property
    def ranking(self) -> str:
        """See `Retriever.ranking`."""
        return RERANK

    @cached_property
    def first(self) -> Retriever[Any]:
        """The first stage."""
        return self.make(self.config.first_stage, self.identities, self.identity, self.corpus)

    @cached_property
    def model(self) -> Reranker | ServedReranker:
        """The reranker that `rerank.name` names."""
        return self.identities.reranker(self.settings)

    def stages(self) -> Plan:
        """See `Retriever.stages`: those of the first stage, and `rerank`."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            scorer = pairs.recipe(self.settings, self.model)
            made_of = {"first_stage": keys[self.first.ranking], "scorer": scorer}
            return {**made_of, **keyed_settings(self.settings, RERANK)}

        needs = (COLLECTION, self.first.ranking)
        work = Work("pairs", "first_stage", self._pairs)
        stage = Stage(RERANK, SCHEMAS[RERANK], needs, ingredients, self._rerank, open_ranking, work=work)
        return {**self.first.plan(), RERANK: stage}

    def _pairs(self, opened: Callable[[str], Any], alike: Sequence[Artifact]) -> int | None:
        """How many pairs are scored at most; None if the collection has not been read."""
        collection: Collection | None = opened(COLLECTION)
        depth = min(self.settings.depth, self.config.search.top_k)
        return None if collection is None else len(collection.queries) * depth

    def assessments(self) -> list[Assessment]:
        """See `Retriever.assessments`: those of the first stage, and what the reranker brings."""
        own = Assessment((self.first.ranking, RERANK), partial(assess_reranking, self.settings.depth))
        return [*self.first.assessments(), own]

    def report(
        self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[dict[str, Any]]
    ) -> dict[str, Any]:
        """See `Retriever.report`: that of the first stage, and how fast pairs were scored."""
        artifact = artifacts[self.ranking]
        rate, pairs = artifact.manifest["made"].get("items_per_second"), artifact.facts.get("pairs")
        seconds = pairs / artifact.facts["queries"] / rate if rate and pairs else None
        speed = {"pairs": pairs, "pairs_per_second": rate, "seconds_per_query": seconds}
        own = {Reranking.key: {**scores[Reranking.key], **speed}}
        return {**self.first.report(artifacts, scores, stages), **own}

    def check(self, search_is_cached: bool) -> None:
        """See `Retriever.check`."""
        self.first.check(search_is_cached)
        engines.check(self.config.engine, self.model.device, "rerank")
        if isinstance(self.model, ServedReranker) and not search_is_cached:
            self.model.check()

    def confirm(self, store: Store, fresh: bool) -> None:
        """See `Retriever.confirm`."""
        self.first.confirm(store, fresh)
        if isinstance(self.model, ServedReranker):
            self.model.confirm(store, fresh)

    def check_collection(self, collection: Collection) -> None:
        """See `Retriever.check_collection`."""
        self.first.check_collection(collection)

    def models(self) -> list[Model]:
        """See `Retriever.models`: those of the first stage."""
        return self.first.models()

    def open_engine(self, store: Store) -> Engine:
        """See `Retriever.open_engine`: it scores pairs."""
        model = self.model
        if isinstance(model, ServedReranker):
            return engines.ServerEngine(model.load)
        ready = partial(pairs.ready, self.settings, model)
        return engines.open_with(self.config.engine, ready, model.device, store)

    def engine_key(self) -> Any:
        """See `Retriever.engine_key`: the engine's settings and the reranker's, with its files' bytes."""
        if isinstance(self.model, ServedReranker):
            return self
        return hash_json(
            {
                "engine": self.config.engine.model_dump(mode="json"),
                "settings": self.settings.model_dump(mode="json"),
                "device": self.model.device,
                "scorer": pairs.recipe(self.settings, self.model),
            }
        )

    def token_counter(self) -> TokenCounter | None:
        """See `Retriever.token_counter`: that of the first stage."""
        return self.first.token_counter()

    def _rerank(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection, first = inputs[COLLECTION], inputs[self.first.ranking]
        passages = first.passages[:, : self.settings.depth]
        query, column = np.nonzero(passages >= 0)
        asked = Pairs(collection, query, passages[query, column])
        kept = ScoreStore(context.store, pairs.recipe(self.settings, self.model), context.fresh)
        scores = np.full(passages.shape, -np.inf, np.float32)
        scores[query, column] = score_pairs(asked, kept, context)
        ranking = reranking.rerank(first, scores, descending_id_rank(collection.passages.ids))
        facts = save_ranking(draft, collection, ranking)
        facts |= {"reranked": scores.shape[1], "pairs": len(asked), "backend": self.settings.backend}
        return {**facts, "scored_in": kept.keys}


def assess_reranking(depth: int, judge: Judge, rankings: Sequence[Ranking]) -> dict[str, Any]:
    """The sections `first_stage` and `reranking` of `metrics.json`, of the ranking before and that after.

    Lesser depths need no further scores: the passages that they would leave out keep their order.
    """
    first, reranked = rankings
    id_rank = descending_id_rank(judge.collection.passages.ids)
    before, after = judge.score(first), judge.score(reranked)
    ideal = judge.score(reranking.order_ideally(first, judge.judgments(first, depth), depth, id_rank))
    scores = reranking.scores_in_first_order(first, reranked, depth)
    by_depth = []
    for less in DEPTHS:
        if less < depth:
            ranking = reranking.rerank(first, scores[:, :less], id_rank)
            by_depth.append({"depth": less, "metrics": judge.means(judge.score(ranking))})
    return {
        "first_stage": {
            "metrics": judge.means(before),
            "change": paired.changes(judge.measures, before, after),
        },
        "reranking": {
            "depth": depth,
            "ceiling": judge.means(ideal),
            "by_depth": [*by_depth, {"depth": depth, "metrics": judge.means(after)}],
        },
    }
