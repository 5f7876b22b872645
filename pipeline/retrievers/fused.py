"""The `fused` kind: the rankings of several other retrievers, joined into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from pipeline.config import FuseConfig, keyed_settings
from pipeline.core.order import descending_id_rank
from pipeline.core.records import Ranking
from pipeline.core.result_records import in_part
from pipeline.retrievers.composition import FusedRankings, FusionFacts
from pipeline.retrievers.costs import VectorsCost
from pipeline.retrievers.retriever import (
    COLLECTION,
    Evaluator,
    Retriever,
    open_ranking,
    save_ranking,
)
from pipeline.retrievers.stage import Context, Facts, Inputs, Plan, Stage, StoredSize
from pipeline.retrievers.truncation import Truncation
from pipeline.search import fusion
from pipeline.storage.artifacts import Artifact, Draft

FUSE = "fuse"
SCHEMAS = {FUSE: 1}


class FusionRetriever(Retriever[FuseConfig]):
    """Joins the rankings of its `parts`."""

    ranking = FUSE

    @override
    def __post_init__(self) -> None:
        self.assessed = tuple(
            in_part(number, part.ranking) for number, part in enumerate(self.parts, start=1)
        )
        super().__post_init__()

    @override
    def stages(self) -> Plan:
        plan: Plan = {}
        for number, part in enumerate(self.parts, start=1):
            prefix = in_part(number, "")
            for role, stage in part.plan.items():
                plan[prefix + role] = stage.with_prefix(prefix, shared=(COLLECTION,))
        settings = keyed_settings(self.config.search, FUSE) | keyed_settings(self.settings, FUSE)
        needs, made_of = (COLLECTION, *self.assessed), {role: role for role in self.assessed}
        plan[FUSE] = Stage(
            FUSE, SCHEMAS[FUSE], needs, made_of, settings, self._fuse, open_ranking, grows_with="queries"
        )
        return plan

    @override
    def assess(self, evaluator: Evaluator, rankings: Mapping[str, Ranking]) -> Facts:
        """The name and the measures of each part."""
        return {
            "of": [
                {"name": part.config.label, "metrics": evaluator.means(evaluator.score(rankings[role]))}
                for part, role in zip(self.parts, self.assessed, strict=True)
            ]
        }

    @override
    def report(self, artifacts: Mapping[str, Artifact], scores: Facts, stages: Sequence[Facts]) -> Facts:
        of = []
        for number, part in enumerate(scores[FusedRankings.key], start=1):
            prefix = in_part(number, "")
            rows = [
                {**row, "stage": row["stage"].removeprefix(prefix)}
                for row in stages
                if row["stage"].startswith(prefix)
            ]
            truncation = Truncation.reported(artifacts, self.config.data.chunks is not None, prefix)
            searched = artifacts.get(f"{prefix}search")
            vectors = searched.facts.get(VectorsCost.key) if searched else None
            forms = {VectorsCost.key: vectors} if vectors else {}
            of.append({**part, "stages": rows, **truncation, **forms})
        return {FusedRankings.key: of, FusionFacts.key: artifacts[self.ranking].facts[FusionFacts.key]}

    @override
    def stored_sizes(self, passages: int, queries: int) -> dict[str, StoredSize]:
        return {
            in_part(number, role): size
            for number, part in enumerate(self.parts, start=1)
            for role, size in part.stored_sizes(passages, queries).items()
        }

    def _fuse(self, inputs: Inputs, draft: Draft, context: Context) -> Facts:
        collection = inputs[COLLECTION]
        rankings = [inputs[role] for role in self.assessed]
        id_rank = descending_id_rank(collection.passages.ids)
        settings, top_k = self.settings, self.config.search.top_k
        method = fusion.Fusion(settings.method, settings.normalize, settings.k)
        weights = method.weights(settings.weights, len(rankings))
        with context.meter.working():
            ranking = fusion.fuse(rankings, method, weights, id_rank, top_k)
        context.meter.items = len(collection.queries)
        return {**save_ranking(draft, collection, ranking), "fusion": method.facts(weights)}
