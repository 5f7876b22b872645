"""What a run would do: what is cached, what must be fetched and encoded, and how long that takes.

Nothing is computed, and nothing is fetched but small files that say what a repository holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.config import SOURCES, Config
from pipeline.core import hub, machine
from pipeline.core.errors import InputError
from pipeline.core.records import Chunks, Collection, Texts
from pipeline.data.sources import open_source
from pipeline.results.workload import Forecast, Rate, models_used
from pipeline.retrievers.ranking import COLLECTION
from pipeline.retrievers.rows import find_known_rows
from pipeline.run import plan
from pipeline.run.benchmark import Benchmark
from pipeline.storage import text_table
from pipeline.storage.artifacts import Recipe

ENCODED = "passages"  # the stage, of every kind of retriever that has one, that encodes the passages
TEXTS = "texts"  # its ingredient that says which
RERANKED, FIRST = "rerank", "first_stage"  # the stage that scores pairs, and its ingredient that says which


def forecast_each(benchmarks: Iterable[tuple[Benchmark, int | None]]) -> list[Forecast]:
    """Forecasts of benchmarks that run one after the other; what several share is counted for the first.

    A hub that cannot be reached is asked once for all.

    Args:
        benchmarks: Each with the number of passages that a suite states, or None.
    """
    fetched: set[tuple[str, str]] = set()
    encoded: set[str] = set()
    with hub.asked_once():
        return [_forecast(benchmark, stated, fetched, encoded) for benchmark, stated in benchmarks]


def _forecast(
    benchmark: Benchmark, stated: int | None, fetched: set[tuple[str, str]], encoded: set[str]
) -> Forecast:
    """The forecast of one; `fetched` and `encoded` hold what those before it do, and are added to."""
    config, name = benchmark.config, benchmark.config.name
    passages = _within(config.data.passages_kept, stated)
    models: list[dict[str, Any]] = []
    try:
        identity = benchmark.identities.collection(config.data)
        collection = plan.collection_stage(config, identity).recipe({})
        stages = benchmark.plan()
        models = models_used(benchmark)
    except hub.NotHereError as error:
        encode, pace = _encoding_unseen(benchmark, passages)
        return Forecast(name, [], {}, str(error), passages, encode, pace, None if _reranks(config) else 0)
    if all(stage["exists"] for stage in stages) or benchmark.searched:
        known = _read_passages(benchmark, collection) or passages
        return Forecast(name, stages, passages=known, encode=0, models=models)
    lacking, unknown = _lacking(_probes(benchmark, collection, identity.passages["corpus"]))
    fetch = {file: size for file, size in lacking.items() if file not in fetched}
    fetched |= fetch.keys()
    read = _read_passages(benchmark, collection)
    passages = passages if read is None else read
    encode, pace = _encoding(benchmark, passages, encoded)
    pairs, pair_rate = _scoring(benchmark, collection)
    return Forecast(name, stages, fetch, unknown, passages, encode, pace, pairs, pair_rate, models)


def work_ahead(benchmark: Benchmark) -> Forecast:
    """The forecast of a benchmark that is about to run, whose collection has been read; asks no hub."""
    identity = benchmark.identities.collection(benchmark.config.data)
    collection = plan.collection_stage(benchmark.config, identity).recipe({})
    stages, models = benchmark.plan(), models_used(benchmark)
    passages = _read_passages(benchmark, collection)
    if benchmark.searched:
        return Forecast(benchmark.config.name, stages, passages=passages, encode=0, models=models)
    encode, pace = _encoding(benchmark, passages, set())
    pairs, pair_rate = _scoring(benchmark, collection)
    return Forecast(
        benchmark.config.name, stages, {}, "", passages, encode, pace, pairs, pair_rate, models
    )  # fmt: skip


def _within(limit: int | None, stated: int | None) -> int | None:
    return stated if limit is None or stated is None else min(limit, stated)


def _read_passages(benchmark: Benchmark, collection: Recipe) -> int | None:
    """The passages of a collection that has been read."""
    artifact = benchmark.store.find(collection)
    return int(artifact.facts["passages"]) if artifact else None


def _probes(benchmark: Benchmark, collection: Recipe, corpus: dict[str, Any]) -> list[Callable[[], object]]:
    """Functions that open the files which the run would need and that may be on the hub."""
    probes: list[Callable[[], object]] = [
        model.files.folder for model in benchmark.retriever.models() if model.files.repo
    ]
    if "dataset" in corpus and benchmark.store.find(collection) is None:
        source = open_source(benchmark.config.data)
        probes += [source.size, lambda: next(iter(source.queries()), None), source.judgments]
    return probes


def _lacking(probes: Iterable[Callable[[], object]]) -> tuple[dict[tuple[str, str], int], str]:
    """The files that are not on this machine, and why they cannot be named."""
    files: dict[tuple[str, str], int] = {}
    with hub.only_looking():
        for probe in probes:
            try:
                probe()
            except hub.NotHereError as error:
                files |= error.files
                if not error.files:
                    return files, str(error)
            except InputError as error:
                return files, str(error)
    return files, ""


def _encoding(
    benchmark: Benchmark, passages: int | None, encoded: set[str]
) -> tuple[int | None, Rate | None]:
    """How many passages or chunks all parts of the retriever must encode, and the rate of the slowest."""
    total, rates = 0, []
    if not benchmark.retriever.models():
        return 0, None  # vectors from files, or none
    for role, stage in benchmark.stages.items():
        recipe = benchmark.recipe(role) if stage.name == ENCODED else None
        if recipe is None or not {TEXTS, "model"} <= recipe.plain.keys():
            continue
        if recipe.key in encoded or benchmark.has(role):
            continue
        encoded.add(recipe.key)
        texts = _texts(benchmark, stage.needs[0])
        if texts is None and (passages is None or stage.needs[0] != COLLECTION):
            return None, None  # how many chunks there are is not known before passages are cut
        rates.append(_rate(benchmark, recipe, TEXTS))
        total += _unknown_texts(benchmark, recipe, texts) if texts else passages or 0
    return total, _slowest(rates)


def _slowest(rates: Sequence[Rate | None]) -> Rate | None:
    """The slowest of some rates; None if one of them is not known."""
    known = [each for each in rates if each]
    return min(known, key=lambda each: each.per_second) if known and len(known) == len(rates) else None


def _scoring(benchmark: Benchmark, collection: Recipe) -> tuple[int | None, Rate | None]:
    """How many pairs all rerankers must score at most, and the rate of the slowest."""
    read = benchmark.store.find(collection)
    total, rates = 0, []
    for role, stage in benchmark.stages.items():
        if stage.name != RERANKED or benchmark.has(role):
            continue
        if read is None:
            return None, None
        recipe = benchmark.recipe(role)
        total += int(read.facts["queries"]) * min(recipe.plain["depth"], benchmark.config.search.top_k)
        rates.append(_rate(benchmark, recipe, FIRST))
    return total, _slowest(rates)


def _reranks(config: Config) -> bool:
    """Whether a config has a reranker anywhere."""
    return any(each.rerank for each in (config, *config.parts))


def _encoding_unseen(benchmark: Benchmark, passages: int | None) -> tuple[int | None, Rate | None]:
    """As `_encoding`, of a collection whose keys cannot be known: the rate is that on the built-in sample."""
    sample = benchmark.config.model_copy(update={"data": SOURCES.make(source="sample")})
    twin = Benchmark(sample, benchmark.store, benchmark.identities)
    try:
        if not twin.retriever.models():
            return 0, None
        recipes = [twin.recipe(role) for role, stage in twin.stages.items() if stage.name == ENCODED]
    except InputError:
        return passages, None  # the model is not here either
    return passages, _rate(twin, recipes[0], TEXTS) if len(recipes) == 1 else None


def _rate(benchmark: Benchmark, recipe: Recipe, besides: str) -> Rate | None:
    """The rate of the largest artifact made here in the same way, `besides` aside."""
    here, found = machine.hardware(), []
    itself = benchmark.store.find(recipe)
    for artifact in (*([itself] if itself else []), *benchmark.store.find_alike(recipe, besides)):
        made = artifact.manifest["made"]
        if made.get("hardware") == here and made.get("items_per_second"):
            found.append(Rate(made["items_per_second"], made["items"] - made.get("found", 0)))
    return max(found, key=lambda rate: rate.passages, default=None)


def _texts(benchmark: Benchmark, role: str) -> Texts | None:
    """The passages of a collection that has been read, or their chunks if they have been cut."""
    artifact = benchmark.store.find(benchmark.recipe(role))
    if artifact is None:
        return None
    opened: Collection | Chunks = benchmark.stages[role].open(artifact)
    return opened.texts if isinstance(opened, Chunks) else opened.passages


def _unknown_texts(benchmark: Benchmark, recipe: Recipe, texts: Texts) -> int:
    """How many of some texts are in no artifact of the same model."""
    alike = [] if benchmark.fresh else benchmark.store.find_alike(recipe, TEXTS)
    if not alike:
        return len(texts)
    hashes = text_table.hash_texts(texts.texts)
    return int(find_known_rows(alike, hashes, np.ones(len(texts), np.bool_)).new.sum())
