"""The `reranked` kind: another retriever's ranking, whose best passages are scored again by a reranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from pipeline.config import ScorerSettings, keyed_settings
from pipeline.core.order import descending_id_rank, sort_hits
from pipeline.core.records import Float32, Int64, Qrels, Ranking
from pipeline.encoders.opener import PairOpener, ScoreSource
from pipeline.engines.engine import EngineFactory
from pipeline.metrics import paired
from pipeline.metrics.scoring import judged_cells
from pipeline.retrievers.composition import Reranking
from pipeline.retrievers.pair_scores import ScoreStore, score_pairs
from pipeline.retrievers.retriever import (
    COLLECTION,
    Evaluator,
    Retriever,
    open_ranking,
    save_ranking,
)
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage, StoredSize
from pipeline.retrievers.truncation import Truncation, truncation_of
from pipeline.storage.artifacts import Artifact, Draft

RERANK = "rerank"
SCHEMAS = {RERANK: 1}
DEPTHS = (10, 20, 50, 100, 200, 500, 1000)
"""Depths below that of the config at which measures are computed too."""


class RerankingRetriever(Retriever[ScorerSettings]):
    """Scores the best hits of its `first` stage again."""

    ranking = RERANK
    source: ScoreSource  # gives the scores

    @override
    def __post_init__(self) -> None:
        (self.first,) = self.parts
        self.assessed = (*self.first.assessed, self.first.ranking)
        super().__post_init__()

    @override
    def stages(self) -> Plan:
        stage = Stage(
            RERANK,
            SCHEMAS[RERANK],
            needs=(COLLECTION, self.first.ranking),
            made_of={"first_stage": self.first.ranking},
            settings={"scorer": self.source.recipe(), **keyed_settings(self.settings, RERANK)},
            make=self._rerank,
            open=open_ranking,
            engine=EngineFactory(self.source, None) if self.source.served else None,
            grows_with="queries",
        )
        return {**self.first.plan, RERANK: stage}

    @override
    def assess(self, evaluator: Evaluator, rankings: Mapping[str, Ranking]) -> Facts:
        """The measures of the ranking before, of an ideal reranker, and of reranking at lesser depths.

        These need no further scores: the passages that they would leave out keep their order.
        """
        first, reranked, depth = rankings[self.first.ranking], rankings[RERANK], self.settings.depth
        id_rank = descending_id_rank(evaluator.collection.passages.ids)
        before, after = evaluator.score(first), evaluator.score(reranked)
        ideal = evaluator.score(order_ideally(first, evaluator.collection.qrels, depth, id_rank))
        scores = scores_in_first_order(first, reranked, depth)
        by_depth = []
        for less in DEPTHS:
            if less < depth:
                ranking = rerank(first, scores[:, :less], id_rank)
                by_depth.append({"depth": less, "metrics": evaluator.means(evaluator.score(ranking))})
        return {
            **self.first.assess(evaluator, rankings),
            "first_stage": {
                "metrics": evaluator.means(before),
                "change": paired.changes(evaluator.measures, before, after, evaluator.draws),
            },
            "reranking": {
                "depth": depth,
                "ceiling": evaluator.means(ideal),
                "by_depth": [*by_depth, {"depth": depth, "metrics": evaluator.means(after)}],
            },
        }

    @override
    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        artifact = artifacts[self.ranking]
        rate, pairs = artifact.made.get("items_per_second"), artifact.facts.get("pairs")
        seconds = pairs / artifact.facts["queries"] / rate if rate and pairs else None
        speed = {"pairs": pairs, "pairs_per_second": rate, "seconds_per_query": seconds}
        sections = self.first.report(artifacts, scores, stages)
        if pairs_cut := artifact.facts.get(Truncation.key):
            cut = {"chunks": self.config.data.chunks is not None, **sections.get(Truncation.key, {})}
            sections = {**sections, Truncation.key: {**cut, "pairs": pairs_cut}}
        return {**sections, Reranking.key: {**scores[Reranking.key], **speed}}

    @override
    def stored_sizes(self, passages: int, queries: int) -> dict[str, StoredSize]:
        return self.first.stored_sizes(passages, queries)

    def _rerank(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection, first = inputs[COLLECTION], inputs[self.first.ranking]
        passages = first.passages[:, : self.settings.depth]
        query, column = np.nonzero(passages >= 0)
        store = ScoreStore(context.store, self.source.recipe(), context.fresh)
        scores = np.full(passages.shape, -np.inf, np.float32)
        found = passages[query, column]
        scores[query, column], tokens = score_pairs(collection, query, found, store, context)
        ranking = rerank(first, scores, descending_id_rank(collection.passages.ids))
        facts = save_ranking(draft, collection, ranking)
        facts |= {"reranked": scores.shape[1], "pairs": len(query), "backend": self.settings.backend}
        facts["scored_in"] = store.keys
        if isinstance(self.source, PairOpener) and tokens.min(initial=0) >= 0:
            most = self.source.model.max_length
            facts[Truncation.key] = truncation_of(tokens[:, 0], most, tokens[:, 1])
        return facts


def rerank(first: Ranking, scores: Float32, id_rank: Int64) -> Ranking:
    """Order the best hits of each query by new scores; those below keep their order beneath them.

    A run's order is that of its scores, so the hits below get scores that fall from the lowest new one on.

    Args:
        first: The ranking of the first stage, [queries, k].
        scores: float32 [queries, depth], for the first `depth` hits of each query; pads' are not read.
        id_rank: int64 [passages], see `pipeline.core.order.descending_id_rank`.

    Raises:
        InputError: A score is NaN.
    """
    depth = scores.shape[1]
    top, below = first.passages[:, :depth], first.passages[:, depth:]
    passages, best = sort_hits(top, np.where(top < 0, np.float32(-np.inf), scores), id_rank)
    rest = np.where(below < 0, np.float32(-np.inf), _falling(best, below.shape[1]))
    return Ranking(np.concatenate([passages, below], axis=1), np.concatenate([best, rest], axis=1))


def _falling(best: Float32, count: int) -> Float32:
    """float32 [queries, count]: scores below the lowest of each row of `best`, each one below the last.

    They fall by 1, or by twice the distance of neighbouring float32 numbers where that is more.
    """
    lowest = np.where(np.isfinite(best), best, np.float32(np.inf)).min(axis=1, initial=np.inf)
    lowest = np.where(np.isfinite(lowest), lowest, 0).astype(np.float64)
    step = np.maximum(1, 2 * np.spacing(np.abs(lowest).astype(np.float32) + count).astype(np.float64))
    falling: Float32 = (lowest[:, None] - step[:, None] * np.arange(1, count + 1)).astype(np.float32)
    return falling


def order_ideally(first: Ranking, qrels: Qrels, depth: int, id_rank: Int64) -> Ranking:
    """The ranking of a reranker that knows the judgments: the best `depth` hits by their grades.

    A passage that is not judged counts as grade 0; other arguments are as of `rerank`.
    """
    top = first.passages[:, :depth]
    cells, entries = judged_cells(top, qrels)
    grades = np.zeros(top.size, np.float32)
    grades[cells] = np.maximum(qrels.grades[entries], 0)
    return rerank(first, grades.reshape(top.shape), id_rank)


def scores_in_first_order(first: Ranking, reranked: Ranking, depth: int) -> Float32:
    """float32 [queries, depth]: the new score of each of the first `depth` hits, in their first order.

    Both rankings have the same hits of a query in the first `depth` places.
    """
    columns = np.argsort(first.passages[:, :depth], axis=1, kind="stable")
    sorted_again = np.argsort(reranked.passages[:, :depth], axis=1, kind="stable")
    scores = np.empty(columns.shape, np.float32)
    ordered = np.take_along_axis(reranked.scores[:, :depth], sorted_again, axis=1)
    np.put_along_axis(scores, columns, ordered, axis=1)
    return scores
