"""The benchmark beside one with an approximate index that differs in one thing: it searches exactly."""

from __future__ import annotations

from pipeline.comparison.against_exact import compare_with_exact
from pipeline.config import FLAT, IndexConfig
from pipeline.config.model import RowSettings
from pipeline.core.records import Facts
from pipeline.metrics.names import parse_measures
from pipeline.metrics.statistics import draws_of
from pipeline.results.folder import read_values
from pipeline.retrievers.sections import AgainstExact
from pipeline.run.benchmark import Benchmark
from pipeline.run.plan import SCORES
from pipeline.storage.artifacts import Draft, Recipe

MEMORY_MB = 1024  # for the exact search
SCHEMA = 2


def losses(benchmark: Benchmark) -> Facts:
    """The section `against_exact` of `metrics.json`, by its key; empty where nothing is compared.

    Of a reranked ranking, it is that of the first stage. It is an artifact of its own, of the bytes of both
    scores and rankings, so that a run from the cache opens no ranking.
    """
    config = benchmark.resolved_config.first_stage
    index, search = config.index, config.search
    if not (search.against_exact and index.factory != FLAT and isinstance(config.model, RowSettings)):
        return {}
    changes = {"parameters": {}, "memory_mb": MEMORY_MB, "against_exact": False}
    flat = IndexConfig(factory=FLAT, metric=index.metric)
    exactly = config.model_copy(update={"index": flat, "search": search.model_copy(update=changes)})
    store, session, progress = benchmark.store, benchmark.session, benchmark.progress
    approximate = Benchmark(config, store, session, progress) if benchmark.config.rerank else benchmark
    other = Benchmark(exactly, store, session, progress)
    if store.folder(other.recipes["passages"]) in session.made:
        other.ensure("passages")  # an earlier exact search may be of other vectors
    scores = [each.ensure(SCORES) for each in (approximate, other)]

    def compare(draft: Draft) -> Facts:
        found, exact = (each.opened(each.retriever.ranking).passages for each in (approximate, other))
        (names, query_ids, values), (_, _, exact_values) = (read_values(each.folder) for each in scores)
        measures = parse_measures(names) if names else []  # no name where nothing is judged
        draws = draws_of(query_ids, scores[0].facts.get("clusters", ()))
        return compare_with_exact(found, exact, measures, values, exact_values, draws)

    sources = [[each.manifest["key"], each.content, each.manifest["made"]["from_files"]] for each in scores]
    recipe = Recipe(AgainstExact.key, {"schema": SCHEMA, "scores": sources})
    return {AgainstExact.key: (store.load(recipe) or store.make(recipe, compare)).facts}
