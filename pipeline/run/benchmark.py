"""A benchmark: from a config to the artifacts of its plan.

Wrong settings are refused before anything is computed. No stage is known by name here: the plan says what
each needs, how it is keyed and how it is made.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pipeline.config import Config
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Collection
from pipeline.data.collection_files import CORPUS
from pipeline.registry import make_retriever
from pipeline.retrievers.ranking import COLLECTION
from pipeline.retrievers.retriever import Identities, Retriever
from pipeline.retrievers.stage import OpensEngine, Plan
from pipeline.run import plan
from pipeline.run.making import Making, OpenEngine, StageOutcome
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)


@dataclass
class Benchmark:
    """The stages of one config.

    Args:
        config: The settings as they were given; `settled` has the backends that are used.
        store: Where artifacts are kept.
        identities: Hashes the files that configs name, once for all benchmarks that share it.
        progress: Opens progress bars.
        fresh: Make every stage again.
        made_afresh: Keys of the artifacts made in this process, which `fresh` does not make again.
        engines: Holds the engine that is open; those that share it can take over each other's.
        keeps_engine: Whether the engine stays open after the run, for the benchmark that comes next.
        before_work: Called by `run` when the collection has been read, before anything else is computed.

    Attributes:
        seconds_ahead: What stages took that were made before `run`, by `make_with`.
    """

    config: Config
    store: Store
    identities: Identities = field(default_factory=Identities)
    progress: Progress = silent
    fresh: bool = False
    made_afresh: set[str] = field(default_factory=set)
    engines: OpenEngine = field(default_factory=lambda: OpenEngine())
    keeps_engine: bool = False
    before_work: Callable[[Benchmark], None] | None = None
    seconds_ahead: float = field(default=0.0, init=False)
    _confirmed: bool = field(default=False, init=False)
    _results: dict[str, Any] = field(default_factory=dict, init=False)

    @cached_property
    def settled(self) -> Config:
        """The settings, with the backend that `auto` takes in place of `auto`."""
        return self.identities.settle(self.config)

    @cached_property
    def retriever(self) -> Retriever[Any]:
        """Makes the ranking; it hashes data and model files, and parses none."""
        identity = self.identities.collection(self.config.data)
        folder = self.store.folder(plan.collection_stage(self.config, identity).recipe({}))
        return make_retriever(self.settled, self.identities, identity, folder.absolute() / CORPUS)

    @cached_property
    def stages(self) -> Plan:
        """The stages, in the order they are reported in."""
        made = self.retriever
        return plan.whole_plan(self.config, made.identity, made.plan(), made.ranking, made.assessments())

    @cached_property
    def making(self) -> Making:
        """Finds or makes the artifacts of the stages."""
        return Making(
            self.stages, self.retriever.ranking, self.store, self.progress, self.fresh, self.made_afresh,
            self.engines, self._results,
        )  # fmt: skip

    def show_by(self, progress: Progress) -> None:
        """Open progress bars by another function from now on."""
        self.making.progress = progress

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Let go of what the run opened; of the engine too, unless the next benchmark uses it."""
        self._results.clear()
        if kind or not self.keeps_engine:
            self.engines.close()

    @property
    def reported(self) -> list[str]:
        """The stages that results list."""
        return [name for name, stage in self.stages.items() if stage.listed]

    def recipe(self, name: str) -> Recipe:
        """What shapes one stage's artifact."""
        return self.making.recipe(name)

    @property
    def recipes(self) -> dict[str, Recipe]:
        """The recipe of each reported stage, in order."""
        return {name: self.recipe(name) for name in self.reported}

    def plan(self) -> list[dict[str, Any]]:
        """Each reported stage's name, key and whether its artifact exists, in order."""
        return [
            {"stage": name, "key": recipe.key, "exists": self.store.find(recipe) is not None}
            for name, recipe in self.recipes.items()
        ]

    def has(self, name: str) -> bool:
        """Whether a stage's artifact exists, and may be used."""
        return self.making.has(name)

    def check(self) -> None:
        """Refuse wrong settings, data and models, as far as they can be seen before anything is computed."""
        for recipe in self.recipes.values():
            self.store.check(recipe)
        self.retriever.check(self.searched)

    def check_collection(self) -> None:
        """Read the collection if it is to be searched, and refuse settings that do not fit its size."""
        if not self.searched:
            self.retriever.check_collection(self.collection)

    @property
    def searched(self) -> bool:
        """Whether the ranking exists, and may be used."""
        return self.making.searched

    def run(self) -> list[StageOutcome]:
        """Make the missing artifacts, and return what was done about each reported stage, in order.

        It is called in a `with` statement of the benchmark, which closes the engine.
        """
        self.check()
        self.report_models()
        self.confirm()
        if not self.searched:
            self._connect()
            self.retriever.check_collection(self.making.opened(COLLECTION))
        if self.before_work:
            self.before_work(self)
        results = (self.retriever.ranking, plan.SCORES)
        for name in self.making.needed_for(results) if self.fresh else results:
            self.ensure(name)
        return [self.making.outcome(name) for name in self.reported]

    def _connect(self) -> None:
        """Open the engine of the first stage to be made, so that a missing cluster is found before work."""
        for name in self.making.missing():
            if opens := self.stages[name].open_engine:
                self.engines.of(opens, self.store)
                return

    @property
    def engines_to_open(self) -> list[OpensEngine]:
        """The engines of the stages that have to be made, in order."""
        stages = (self.stages[name] for name in self.making.missing())
        return list(dict.fromkeys(stage.open_engine for stage in stages if stage.open_engine))

    def make_with(self, opens: OpensEngine) -> None:
        """Make the missing stages of one engine, ahead of `run`, so that it is opened once for several."""
        started = time.perf_counter()
        self.confirm()
        for name in self.making.missing():
            if self.stages[name].open_engine == opens:
                self.ensure(name)
        self.seconds_ahead += time.perf_counter() - started

    def confirm(self) -> None:
        """Refuse, once, stored results of models that answer otherwise now."""
        if not self._confirmed:
            self.retriever.confirm(self.store, self.fresh)
        self._confirmed = True

    def report_models(self) -> None:
        """Log the settings of each model and where they come from, and warn of those that are guesses."""
        for model in self.retriever.models():
            log.info("%s", model.describe())
            if model.guesses():
                log.warning(
                    "model %s does not declare its %s: what is used is a guess; set it in the config",
                    model.name, ", ".join(model.guesses()),
                )  # fmt: skip

    def ensure(self, name: str) -> Artifact:
        """The artifact of a stage, reused or made; the stages it needs come first."""
        return self.making.ensure(name)

    def opened(self, name: str) -> Any:
        """The result of a stage, opened for use; it is made if it is missing."""
        return self.making.opened(name)

    @property
    def collection(self) -> Collection:
        """The passages, queries and judgments."""
        collection: Collection = self.opened(COLLECTION)
        return collection


def several(configs: Iterable[Config], progress: Progress = silent, fresh: bool = False) -> list[Benchmark]:
    """A benchmark of each config; those of one cache share its store, and each file is hashed once."""
    identities = Identities()
    stores: dict[Path, Store] = {}
    made_afresh: defaultdict[Path, set[str]] = defaultdict(set)
    engines = OpenEngine()
    return [
        Benchmark(
            config,
            stores.setdefault(Path(config.cache), Store(Path(config.cache))),
            identities,
            progress,
            fresh,
            made_afresh[Path(config.cache)],
            engines,
        )
        for config in configs
    ]
