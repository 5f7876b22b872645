"""The `reranked` kind: another retriever's ranking, the best passages of which are scored anew."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from pipeline import rerankers
from pipeline.config import RerankSettings, keyed_settings
from pipeline.core.arrow import from_numpy
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Collection, Float32, Ranking
from pipeline.engines import Engine, LocalEngine, Part, jobs
from pipeline.models.model import Model
from pipeline.rerankers import Reranker
from pipeline.retrievers.assessment import Assessment
from pipeline.retrievers.before_and_after import assess_reranking
from pipeline.retrievers.retriever import Retriever, TokenCounter, make_retriever
from pipeline.retrievers.shared import COLLECTION, open_ranking, save_ranking
from pipeline.retrievers.stage import Context, Facts, Inputs, Keys, Plan, Stage
from pipeline.search import reranking
from pipeline.storage.artifacts import Draft
from pipeline.storage.store import Store

RERANK = "rerank"
SCHEMAS = {RERANK: 1}
SHARD_PAIRS = 4096  # pairs that an engine is given at once


class Reranked(Retriever[RerankSettings]):
    """See `pipeline.retrievers.retriever.Retriever`; `first` is the retriever whose ranking is reranked."""

    @property
    def settings(self) -> RerankSettings:
        """The section `rerank`."""
        return cast("RerankSettings", self.config.rerank)

    @property
    def ranking(self) -> str:
        """See `Retriever.ranking`."""
        return RERANK

    @cached_property
    def first(self) -> Retriever[Any]:
        """The first stage."""
        return make_retriever(self.config.first_stage, self.identities, self.identity, self.corpus)

    @cached_property
    def model(self) -> Reranker:
        """The reranker that `rerank.name` names."""
        return self.identities.reranker(self.settings)

    def stages(self) -> Plan:
        """See `Retriever.stages`: those of the first stage, and `rerank`."""

        def ingredients(keys: Keys) -> dict[str, Any]:
            made_of = {"first_stage": keys[self.first.ranking], "model": self.model.recipe()}
            return {**made_of, **keyed_settings(self.settings, RERANK)}

        needs = (COLLECTION, self.first.ranking)
        stage = Stage(RERANK, SCHEMAS[RERANK], needs, ingredients, self._rerank, open_ranking)
        return {**self.first.plan(), RERANK: stage}

    def assessments(self) -> list[Assessment]:
        """See `Retriever.assessments`: those of the first stage, and what the reranker brings."""
        own = Assessment((self.first.ranking, RERANK), partial(assess_reranking, self.settings.depth))
        return [*self.first.assessments(), own]

    def check(self, search_is_cached: bool) -> None:
        """See `Retriever.check`."""
        self.first.check(search_is_cached)

    def check_collection(self, collection: Collection) -> None:
        """See `Retriever.check_collection`."""
        self.first.check_collection(collection)

    def models(self) -> list[Model]:
        """See `Retriever.models`: those of the first stage."""
        return self.first.models()

    def open_engine(self, store: Store) -> Engine:
        """See `Retriever.open_engine`: this process."""
        return LocalEngine(partial(rerankers.open_scorer, self.settings, self.model))

    def token_counter(self) -> TokenCounter | None:
        """See `Retriever.token_counter`: that of the first stage."""
        return self.first.token_counter()

    def _rerank(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection, first = inputs[COLLECTION], inputs[self.first.ranking]
        scores, pairs = self._score(collection, first, context)
        id_rank = descending_id_rank(collection.passages.ids)
        context.meter.count(pairs)
        facts = save_ranking(draft, collection, reranking.rerank(first, scores, id_rank))
        return {**facts, "reranked": scores.shape[1], "pairs": pairs}

    def _score(self, collection: Collection, first: Ranking, context: Context) -> tuple[Float32, int]:
        """float32 [queries, depth]: the scores of the first hits of each query; and the number of pairs."""
        passages = first.passages[:, : self.settings.depth]
        row, column = np.nonzero(passages >= 0)

        def read(start: int, stop: int) -> list[tuple[str, str]]:
            queries = collection.queries.texts.take(from_numpy(row[start:stop])).to_pylist()
            rows = from_numpy(passages[row[start:stop], column[start:stop]])
            found = collection.passages.texts.take(rows).to_pylist()
            return list(zip(queries, found, strict=True))

        spans = [(start, min(start + SHARD_PAIRS, len(row))) for start in range(0, len(row), SHARD_PAIRS)]
        parts = [Part(*span, partial(read, *span)) for span in spans]
        scores = np.full(passages.shape, -np.inf, np.float32)
        context.engine.load(len(parts))
        with context.progress("rerank", len(row), "pairs") as bar, context.meter.working():
            for done in context.engine.each(jobs.score, parts, bar):
                rows = slice(done.part.start, done.part.stop)
                scores[row[rows], column[rows]] = done.outputs
        return scores, len(row)
