"""What a run would do: what is cached, what must be fetched, and what the rest takes.

Nothing is computed, and nothing is fetched but small files that list what a repository holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.config import Config
from pipeline.core import hub
from pipeline.core.errors import InputError
from pipeline.core.records import Facts
from pipeline.encoders.opener import TextOpener
from pipeline.retrievers.retriever import COLLECTION
from pipeline.run import estimate
from pipeline.run.benchmark import Benchmark, Session
from pipeline.run.estimate import QUERIES, RunEstimate
from pipeline.run.writing import describe_models


@dataclass(frozen=True)
class Forecast:
    """What the run of one benchmark would do."""

    name: str
    # Each reported stage's `stage`, `key` and `exists`; empty where keys cannot be known yet.
    stages: Sequence[Facts]
    # By repository and path, the bytes of the files that must be fetched.
    fetch: dict[tuple[str, str], int] = field(default_factory=dict)
    unknown: str = ""  # why what must be fetched cannot be listed; "" if it can
    passages: int | None = None  # how many the collection has; None if that is not known before it is read
    queries: int | None = None
    # Each model's `name`, `backend` and `precision`, and whether that was left to `auto`.
    models: Sequence[Facts] = ()
    settings: Sequence[Facts] = ()  # the models' settings, as in a manifest
    # Time, memory and disk of what is to be made; None where the number of passages is not known.
    estimate: RunEstimate | None = None

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
            "models": list(self.models),
            "settings": list(self.settings),
            "estimate": self.estimate.document() if self.estimate else None,
        }


def forecast_each(
    configs: Iterable[tuple[Config, int | None]],
    session: Session,
    passages: int | None = None,
    probing: bool = False,
) -> list[Forecast]:
    """Forecasts of configs that run one after the other.

    A file that several must fetch is counted for the first, and a hub that cannot be reached is asked once.

    Args:
        configs: Each with the number of passages that a suite states, or None.
        session: What they share.
        passages: What all stages take for so many passages is estimated, and not what is left to do for the
            collection.
        probing: Whether each is run on a sample first.
    """
    fetched: set[tuple[str, str]] = set()
    forecasts = []
    with hub.probe_hub_once():
        for config, stated in configs:
            if probing:
                estimate.probe(config, session)
            if passages:
                queries = config.data.queries or QUERIES
                whole = _estimate_unseen(config, session, passages, queries)
                forecasts.append(
                    Forecast(config.name, [], passages=passages, queries=queries, estimate=whole)
                )
            else:
                forecasts.append(_forecast(config, session, stated, fetched))
    return forecasts


def _estimate_unseen(config: Config, session: Session, passages: int, queries: int) -> RunEstimate:
    """What all stages take, of a collection that need not be there: the keys are those of a sample."""
    small = estimate.on_sample(config, session)
    return estimate.estimate(small, passages, queries, estimate.roles_of_run(small))


def _forecast(
    config: Config, session: Session, stated: int | None, fetched: set[tuple[str, str]]
) -> Forecast:
    """The forecast of one; `fetched` holds what those before it fetch, and is added to."""
    name, corpus = config.name, config.data.corpus
    passages = min(corpus, stated) if isinstance(corpus, int) and stated is not None else stated
    try:
        benchmark = Benchmark(config, session)
        models, settings = describe_models(benchmark)
    except hub.NotHereError as error:
        whole, queries = None, config.data.queries
        if passages is not None:
            with contextlib.suppress(InputError):  # the model is not here either
                whole = _estimate_unseen(config, session, passages, queries or QUERIES)
        return Forecast(name, [], {}, str(error), passages, queries, estimate=whole)
    found = {role: benchmark.store.find(recipe) for role, recipe in benchmark.recipes.items()}
    stages = [
        {"stage": role, "key": benchmark.recipes[role].key, "exists": artifact is not None}
        for role, artifact in found.items()
    ]
    read = found[COLLECTION]
    passages = int(read.facts["passages"]) if read else passages
    queries = int(read.facts["queries"]) if read else None
    if all(found.values()) or found[benchmark.retriever.ranking]:
        return Forecast(name, stages, {}, "", passages, queries, models, settings)
    lacking, unknown = _lacking(benchmark, read is None and benchmark.retriever.identity.on_hub)
    fetch = {file: size for file, size in lacking.items() if file not in fetched}
    fetched |= fetch.keys()
    whole = None
    if passages is not None:
        to_make = [role for role in estimate.roles_of_run(benchmark) if not found[role]]
        whole = estimate.estimate(benchmark, passages, queries or config.data.queries or QUERIES, to_make)
    return Forecast(name, stages, fetch, unknown, passages, queries, models, settings, whole)


def _lacking(benchmark: Benchmark, reads_hub: bool) -> tuple[dict[tuple[str, str], int], str]:
    """The files of models, and of data if it `reads_hub`, that are not here; and why some cannot be named."""
    probes: list[Callable[[], object]] = [
        source.model.files.folder
        for source in benchmark.retriever.sources
        if isinstance(source, TextOpener) and source.model.files.repo
    ]
    if reads_hub:
        source = benchmark.retriever.identity.source
        probes += [lambda: source.size, lambda: next(iter(source.queries()), None), source.judgments]
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
