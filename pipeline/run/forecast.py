"""What a run would do: what is cached, what must be fetched and computed, and how long that takes.

Nothing is computed, and nothing is fetched but small files that list what a repository holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.core import hub
from pipeline.core.display import counted, figure
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.data.sources import open_source
from pipeline.retrievers.costs import Workload
from pipeline.run import plan
from pipeline.run.benchmark import Benchmark
from pipeline.run.estimate import QUERIES, CostEstimate, estimate, measured_rate, twin_on_sample


@dataclass(frozen=True)
class Todo:
    """Items of one unit that a run must compute, at most; those of several stages together.

    Attributes:
        count: None if it is not known before the collection is read.
        per_second: The rate of the slowest of the stages here; None if one has not been made here.
    """

    count: int | None = 0
    per_second: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long it takes; None if that is not known."""
        if self.count == 0:
            return 0.0
        return self.count / self.per_second if self.count and self.per_second else None

    def said(self, verb: str, unit: str) -> list[str]:
        """A sentence without its full stop; none where there is nothing to do."""
        if self.count == 0:
            return []
        if self.count is None:
            return [f"To be {verb}: not known before the collection is read"]
        if self.seconds is None or self.per_second is None:
            return [f"To be {verb}: {counted(self.count, unit)}"]
        speed = f"{figure(self.per_second, 'rate')} {unit}s/s"
        return [
            f"To be {verb}: {counted(self.count, unit)}, in about {figure(self.seconds, 'time')} at {speed}"
        ]


@dataclass(frozen=True)
class Forecast:
    """What the run of one benchmark would do.

    Attributes:
        stages: Each reported stage's `stage`, `key` and `exists`; empty where keys cannot be known yet.
        fetch: By repository and path, the bytes of the files that must be fetched.
        unknown: Why what must be fetched cannot be listed; "" if it can.
        passages: How many the collection has; None if that is not known before it is read.
        encode: Passages, or chunks of them, to be encoded.
        pairs: Pairs of a query and a passage to be scored by rerankers.
        models: Each model's `name`, `backend` and `precision`, and whether that was left to `auto`.
        settings: The models' settings, as in a manifest.
        estimate: Time, memory and disk of what is to be made; None where the number of passages is not known.
    """

    name: str
    stages: Sequence[Facts]
    fetch: dict[tuple[str, str], int] = field(default_factory=dict)
    unknown: str = ""
    passages: int | None = None
    encode: Todo = Todo()
    pairs: Todo = Todo()
    models: Sequence[Facts] = ()
    settings: Sequence[Facts] = ()
    queries: int | None = None
    estimate: CostEstimate | None = None

    @property
    def repositories(self) -> list[str]:
        """The repositories that files must be fetched from."""
        return list(dict.fromkeys(repository for repository, _ in self.fetch))

    def document(self) -> Facts:
        """The forecast as JSON."""
        return {
            "name": self.name,
            "stages": list(self.stages),
            "fetch": {
                "files": len(self.fetch),
                "bytes": sum(self.fetch.values()),
                "repositories": self.repositories,
                "unknown": self.unknown or None,
            },
            "passages": self.passages,
            "queries": self.queries,
            "encode": self.encode.count,
            "items_per_second": self.encode.per_second,
            "seconds": self.encode.seconds,
            "pairs": self.pairs.count,
            "pairs_per_second": self.pairs.per_second,
            "models": list(self.models),
            "settings": list(self.settings),
            "estimate": self.estimate.document() if self.estimate else None,
        }

    def work(self) -> list[str]:
        """What takes long, a sentence each without its full stop."""
        return [*self.encode.said("encoded", "passage"), *self.pairs.said("reranked", "pair")]


def forecast_each(
    benchmarks: Iterable[tuple[Benchmark, int | None]], tokens: float | None = None, probing: bool = False
) -> list[Forecast]:
    """Forecasts of benchmarks that run one after the other; what several share is counted for the first.

    A hub that cannot be reached is asked once for all.

    Args:
        benchmarks: Each with the number of passages that a suite states, or None.
        tokens: Mean of a passage; None takes what was measured.
        probing: Whether models that were not measured here are run for a few seconds.
    """
    fetched: set[tuple[str, str]] = set()
    planned: set[str] = set()
    with hub.probe_hub_once():
        return [
            _forecast(benchmark, stated, fetched, planned, tokens, probing)
            for benchmark, stated in benchmarks
        ]


def work_ahead(benchmark: Benchmark) -> list[str]:
    """What a benchmark is about to compute, a sentence each, once its collection has been read."""
    encode, pairs = _todo(benchmark, None, set())
    return Forecast("", [], encode=encode, pairs=pairs).work()


def _forecast(
    benchmark: Benchmark,
    stated: int | None,
    fetched: set[tuple[str, str]],
    planned: set[str],
    tokens: float | None,
    probing: bool,
) -> Forecast:
    """The forecast of one; `fetched` and `planned` hold what those before it do, and are added to."""
    config, name = benchmark.config, benchmark.config.name
    limit = config.data.passages_kept
    passages = stated if limit is None or stated is None else min(limit, stated)
    models: list[Facts] = []
    settings: list[Facts] = []
    try:
        identity = benchmark.session.identities.collection(config.data)
        collection = plan.collection_stage(config, identity).recipe({})
        stages = benchmark.plan()
        models, settings = benchmark.models_used, benchmark.model_settings
    except hub.NotHereError as error:
        todo, whole = _todo_unseen(benchmark, passages), None
        if passages is not None:
            workload = Workload(passages, config.data.queries or QUERIES, tokens)
            with contextlib.suppress(InputError):  # the model is not here either
                whole = estimate(twin_on_sample(benchmark), workload, probing)
        return Forecast(name, [], {}, str(error), passages, *todo, estimate=whole)
    read = benchmark.store.find(collection)
    passages = int(read.facts["passages"]) if read else passages
    queries = int(read.facts["queries"]) if read else None
    if all(stage["exists"] for stage in stages) or benchmark.searched:
        return Forecast(name, stages, passages=passages, models=models, settings=settings, queries=queries)
    lacking, unknown = _lacking(_probes(benchmark, read is None and identity.on_hub))
    fetch = {file: size for file, size in lacking.items() if file not in fetched}
    fetched |= fetch.keys()
    whole = None
    if passages is not None:
        workload = Workload(passages, queries or config.data.queries or QUERIES, tokens)
        whole = estimate(benchmark, workload, probing, missing_only=True)
    todo = _todo(benchmark, passages, planned)
    return Forecast(
        name, stages, fetch, unknown, passages, *todo, models, settings, queries=queries, estimate=whole
    )


def _probes(benchmark: Benchmark, reads_hub: bool) -> list[Callable[[], object]]:
    """Functions that open the files which the run would need and that may be on the hub."""
    probes: list[Callable[[], object]] = [
        model.files.folder for model in benchmark.retriever.models() if model.files.repo
    ]
    if reads_hub:
        source = open_source(benchmark.config.data)
        probes += [source.size, lambda: next(iter(source.queries()), None), source.judgments]
    return probes


def _lacking(probes: Iterable[Callable[[], object]]) -> tuple[dict[tuple[str, str], int], str]:
    """The files that are not on this machine, and why they cannot be named."""
    files: dict[tuple[str, str], int] = {}
    with hub.no_downloads():
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


def _todo(benchmark: Benchmark, passages: int | None, planned: set[str]) -> tuple[Todo, Todo]:
    """What the missing stages compute, as `encode` and `pairs` of a `Forecast`.

    `passages` are counted if the collection has not been read; `planned` are the keys of stages that
    benchmarks before it make, to which its own are added.
    """
    todo = {"encode": Todo(), "pairs": Todo()}
    if benchmark.searched:
        return Todo(), Todo()

    def opened(role: str) -> object:
        artifact = benchmark.store.find(benchmark.all_recipes[role])
        return benchmark.stages[role].open(artifact) if artifact else None

    for role, stage in benchmark.stages.items():
        recipe, work = benchmark.all_recipes[role], stage.work
        if work is None or recipe.key in planned or benchmark.has(role):
            continue
        planned.add(recipe.key)
        alike = benchmark.store.find_alike(recipe, work.which)
        count = work.count(opened, [] if benchmark.session.fresh else alike)
        if count is None and work.of_passages:
            count = passages
        before, rate = todo[work.what], measured_rate(benchmark.store, recipe, alike)
        speed = rate.per_second if rate else None
        whole = None if count is None or before.count is None else before.count + count
        if before.count:  # several stages: the slowest counts, and nothing is known if one is not
            speed = min(speed, before.per_second) if speed and before.per_second else None
        todo[work.what] = Todo(whole, speed)
    return todo["encode"], todo["pairs"]


def _todo_unseen(benchmark: Benchmark, passages: int | None) -> tuple[Todo, Todo]:
    """As `_todo`, of a collection whose keys cannot be known: rates are those on the built-in sample."""
    twin = twin_on_sample(benchmark)
    todo = {"encode": Todo(), "pairs": Todo()}
    try:
        works = [(twin.all_recipes[role], stage.work) for role, stage in twin.stages.items() if stage.work]
    except InputError:
        return Todo(passages), Todo(None)  # the model is not here either
    for recipe, work in works:
        rate = measured_rate(twin.store, recipe, twin.store.find_alike(recipe, work.which))
        todo[work.what] = Todo(passages if work.of_passages else None, rate.per_second if rate else None)
    return todo["encode"], todo["pairs"]
