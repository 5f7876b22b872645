"""What an approximate index loses: the benchmark beside it that searches exactly, and their comparison."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

import numpy as np

from pipeline.config import FLAT, IndexConfig
from pipeline.config.model import RowSettings
from pipeline.core.records import Facts, Float64, Int64
from pipeline.metrics.definitions import Measure, parse_measures
from pipeline.metrics.paired import changes
from pipeline.metrics.presentation import read_per_query
from pipeline.metrics.statistics import draws_of
from pipeline.retrievers.sections import AgainstExact
from pipeline.run.benchmark import Benchmark
from pipeline.run.plan import SCORES
from pipeline.storage.artifacts import Draft, Recipe
from pipeline.storage.whole_files import PER_QUERY

MEMORY_MB = 1024  # for the exact search
SCHEMA = 2


def losses(benchmark: Benchmark) -> Facts:
    """The section `against_exact` of `metrics.json`, by its key; empty if `search.against_exact` is off.

    Of a reranked ranking, it is that of the first stage. It is an artifact of its own, of the bytes of both
    scores and rankings, so that a run from the cache opens no ranking.
    """
    config = benchmark.resolved_config.model_copy(update={"rerank": None})
    index, search = config.index, config.search
    if not (search.against_exact and isinstance(config.model, RowSettings)):
        return {}
    started = time.perf_counter()
    without = {"parameters": {}, "memory_mb": MEMORY_MB, "against_exact": False}
    flat = IndexConfig(factory=FLAT, metric=index.metric)
    exactly = config.model_copy(update={"index": flat, "search": search.model_copy(update=without)})
    store, session, progress = benchmark.store, benchmark.session, benchmark.progress
    approximate = Benchmark(config, session, progress, store) if benchmark.config.rerank else benchmark
    other = Benchmark(exactly, session, progress, store)
    if store.folder(other.recipes["passages"]) in session.made:
        other.ensure("passages")  # an earlier exact search may be of other vectors
    scores = [each.ensure(SCORES) for each in (approximate, other)]

    def compare(draft: Draft) -> Facts:
        found, exact = (each.opened(each.retriever.ranking).passages for each in (approximate, other))
        files = (each.folder / PER_QUERY for each in scores)
        (query_ids, names, values), (_, _, exact_values) = map(read_per_query, files)
        measures = parse_measures(names) if names else []  # no name where nothing is judged
        draws = draws_of(query_ids, scores[0].facts.get("clusters", ()))
        return compare_with_exact(found, exact, measures, values, exact_values, draws)

    sources = [[each.key, each.content, each.made["from_files"]] for each in scores]
    recipe = Recipe(AgainstExact.key, {"schema": SCHEMA, "scores": sources})
    facts = (store.load(recipe) or store.make(recipe, compare)).facts
    benchmark.seconds += time.perf_counter() - started
    return {AgainstExact.key: facts}


def overlap(approximate: Int64, exact: Int64, cutoff: int) -> float:
    """The share of the exact top `cutoff` hits that are among the top `cutoff` found; mean over queries.

    Both rankings are int64 [queries, k], rows of passages, -1 for padding.
    """
    approximate, exact = approximate[:, :cutoff], exact[:, :cutoff]
    # query * width + passage: one number for each pair of a query and a passage
    width = int(max(approximate.max(initial=0), exact.max(initial=0))) + 1
    offset = np.arange(len(exact))[:, None] * width
    exact_pairs, approximate_pairs = (offset + exact)[exact >= 0], (offset + approximate)[approximate >= 0]
    shared = np.intersect1d(exact_pairs, approximate_pairs, assume_unique=True) // width
    n_exact = np.maximum((exact >= 0).sum(axis=1), 1)
    return float((np.bincount(shared, minlength=len(exact)) / n_exact).mean())


def compare_with_exact(
    found: Int64,
    exact: Int64,
    measures: Sequence[Measure],
    values: Float64,
    exact_values: Float64,
    draws: Sequence[Hashable],
) -> Facts:
    """The section `against_exact` of `metrics.json`.

    `found` and `exact` are rankings as in `overlap`, `values` and `exact_values` the measures of each,
    float64 [queries, measures]. Queries of which `draws` are equal count as one in intervals.

    Returns:
        `overlap` at each cutoff of the measures and at the ranking's depth; `change` from exact search, as of
        `pipeline.metrics.paired.changes`.
    """
    cutoffs = sorted({measure.cutoff for measure in measures if measure.cutoff} | {exact.shape[1]})
    overlaps = {str(cutoff): overlap(found, exact, cutoff) for cutoff in cutoffs}
    return {"overlap": overlaps, "change": changes(measures, exact_values, values, draws)}
