"""A benchmark: from a config to the artifacts of its plan.

Wrong settings are refused before anything is computed. No stage is known by name here: the plan says what
each needs, how it is keyed and how it is made. The recipe of every stage is known before anything is
computed, and so is whether its artifact exists. One that is asked for is loaded; if it is missing, what its
stage needs is first made or opened, and nothing else is.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from typing_extensions import override

from pipeline.config import Config
from pipeline.core import machine
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts
from pipeline.core.result_records import ONLY_WHERE_MEASURED, StageRow
from pipeline.data.collection_files import CORPUS
from pipeline.engines import Engine
from pipeline.registry import make_retriever
from pipeline.retrievers.retriever import COLLECTION, Identities, Retriever
from pipeline.retrievers.stage import Context, EngineFactory, Plan, Stage, with_needs
from pipeline.run import plan
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Session(AbstractContextManager["Session"]):
    """What the benchmarks of one call share: stores, hashes of files, and the engine that is open.

    One engine is open at a time, so that a model has the machine for itself. The end of the `with` block
    stops it, and lets other processes remove the artifacts.

    Args:
        fresh: Make every stage again, once.

    Attributes:
        identities: Hashes the files that configs name, each once.
        made: Folders of the artifacts made here, which `fresh` does not make again.
    """

    fresh: bool = False
    identities: Identities = field(default_factory=Identities, init=False)
    made: set[Path] = field(default_factory=set, init=False)
    _stores: dict[Path, Store] = field(default_factory=dict, init=False)
    _engine: tuple[EngineFactory, Engine] | None = field(default=None, init=False)

    def benchmark(self, config: Config, progress: Progress = silent) -> Benchmark:
        """The benchmark of a config; those of one cache share its store."""
        root = Path(config.cache)
        self.identities.cache = self.identities.cache or root
        return Benchmark(config, self._stores.setdefault(root, Store(root)), self, progress)

    def engine(self, factory: EngineFactory, store: Store) -> Engine:
        """The engine of a factory; another one is closed first."""
        if self._engine is None or self._engine[0] != factory:
            self.close_engine()
            self._engine = factory, factory(store)
        return self._engine[1]

    def close_engine(self) -> None:
        """Stop the workers of the engine, if one is open."""
        if self._engine:
            self._engine[1].close()
        self._engine = None

    @override
    def __exit__(self, *_: object) -> None:
        self.close_engine()
        for store in self._stores.values():
            store.close()


@dataclass(frozen=True)
class StageOutcome:
    """What a run did about one stage: its artifact is None where it was not needed and does not exist."""

    stage: str
    key: str
    artifact: Artifact | None
    reused: bool

    @property
    def row(self) -> StageRow:
        """What a result says of the stage, with what `pipeline.core.machine.Meter` measured."""
        made = self.artifact.manifest["made"] if self.artifact else {}
        of_all = StageRow.model_fields.keys() - ONLY_WHERE_MEASURED
        figures = {name: made.get(name) for name in StageRow.model_fields if name in made or name in of_all}
        size, at = self.artifact.bytes if self.artifact else None, made.get("at")
        known = {"stage": self.stage, "key": self.key, "reused": self.reused, "bytes": size, "made_at": at}
        return StageRow(**{**figures, **known})


@dataclass
class Benchmark:
    """The stages of one config.

    Args:
        config: The settings as they were given; `resolved_config` has the backends that are used.
        store: Where artifacts are kept.
        session: What it shares with other benchmarks.
        progress: Opens progress bars.

    Attributes:
        seconds: What making stages took so far.
    """

    config: Config
    store: Store
    session: Session = field(default_factory=Session)
    progress: Progress = silent
    seconds: float = field(default=0.0, init=False)
    _checked: bool = field(default=False, init=False)
    _confirmed: bool = field(default=False, init=False)
    _opened: Facts = field(default_factory=dict, init=False)
    _outcomes: dict[str, StageOutcome] = field(default_factory=dict, init=False)

    @cached_property
    def resolved_config(self) -> Config:
        """The settings, with the backend that `auto` takes in place of `auto`."""
        return self.session.identities.settle(self.config)

    @cached_property
    def retriever(self) -> Retriever:
        """Makes the ranking; it hashes data and model files, and parses none."""
        identities = self.session.identities
        identity = identities.collection(self.config.data)
        folder = self.store.folder(plan.collection_stage(self.config, identity).recipe({}))
        return make_retriever(self.resolved_config, identities, identity, folder.absolute() / CORPUS)

    @cached_property
    def stages(self) -> Plan:
        """The stages, in the order they are reported in."""
        retriever = self.retriever
        return {
            COLLECTION: plan.collection_stage(self.config, retriever.identity),
            **retriever.plan(),
            plan.SCORES: plan.evaluate_stage(self.config, retriever),
        }

    @property
    def models_used(self) -> list[Facts]:
        """What runs each model, whether that was left to `auto`, and what had to be guessed of it."""
        used = []
        for section in self.resolved_config.models:
            model = self.session.identities.resolve(section).model
            guessed = getattr(model, "guessed", "")
            used.append(
                {
                    "name": section.label,
                    "backend": section.backend,
                    "precision": model.precision,
                    "auto": section.taken_by_auto,
                    **({"guessed": guessed} if guessed else {}),
                }
            )
        return used

    @property
    def model_settings(self) -> list[Facts]:
        """The settings of each model that runs here, by name: their value, and where it comes from."""
        return [
            {"name": model.name, "settings": {name: used._asdict() for name, used in model.decided.items()}}
            for model in self.retriever.models()
        ]

    @cached_property
    def all_recipes(self) -> dict[str, Recipe]:
        """What shapes the artifact of each stage: its settings, and the keys of stages before it."""
        keys: dict[str, str] = {}
        recipes = {}
        for name, stage in self.stages.items():
            recipes[name] = stage.recipe(keys)
            keys[name] = recipes[name].key
        return recipes

    @property
    def recipes(self) -> dict[str, Recipe]:
        """The recipe of each stage that results list, in order."""
        return {name: self.all_recipes[name] for name, stage in self.stages.items() if stage.listed}

    def plan(self) -> list[Facts]:
        """Each reported stage's name, key and whether its artifact exists, in order."""
        return [
            {"stage": name, "key": recipe.key, "exists": self.store.find(recipe) is not None}
            for name, recipe in self.recipes.items()
        ]

    def has(self, name: str) -> bool:
        """Whether a stage's artifact exists, and may be used."""
        return not self._must_recompute(name) and self.store.find(self.all_recipes[name]) is not None

    def _must_recompute(self, name: str) -> bool:
        """Whether a stage is made although its artifact may exist."""
        return self.session.fresh and self.store.folder(self.all_recipes[name]) not in self.session.made

    @property
    def searched(self) -> bool:
        """Whether the ranking exists, and may be used."""
        return self.has(self.retriever.ranking)

    def missing(self) -> list[str]:
        """The stages that have to be made for the ranking, each after those that it needs."""
        lacks = cache(lambda name: not self.has(name))
        return [name for name in with_needs(self.stages, [self.retriever.ranking], lacks) if lacks(name)]

    def check(self, making: bool = False) -> None:
        """Refuse wrong settings, data and models, as far as they can be seen; checked once for a benchmark.

        Where the ranking is in the cache nothing is checked, unless with `making`: something is to be made.
        """
        if not self._checked and (making or not self.searched):
            for recipe in self.recipes.values():
                self.store.check(recipe)
            self.retriever.check()
            self._checked = True

    def confirm(self) -> None:
        """Check, once, that served models still return what is cached."""
        if not self._confirmed:
            self.retriever.confirm(self.store, self.session.fresh)
        self._confirmed = True

    @property
    def engines_to_open(self) -> list[EngineFactory]:
        """The engines of the stages that have to be made, in order."""
        stages = (self.stages[name] for name in self.missing())
        return list(dict.fromkeys(stage.engine() for stage in stages if stage.engine))

    def make_with(self, factory: EngineFactory) -> None:
        """Make the missing stages of one engine, ahead of `run`, so that it is opened once for several."""
        started = time.perf_counter()
        self.confirm()
        for name in self.missing():
            engine = self.stages[name].engine
            if engine and engine() == factory:
                self.ensure(name)
        self.seconds += time.perf_counter() - started

    def run(self) -> list[StageOutcome]:
        """Make the missing artifacts, and return what was done about each reported stage, in order."""
        results = [self.retriever.ranking, plan.SCORES]
        try:
            for name in with_needs(self.stages, results, lambda _: self.session.fresh):
                self.ensure(name)
        finally:
            self._opened.clear()
        outcomes = []
        for name, recipe in self.recipes.items():
            if outcome := self._outcomes.get(name):
                outcomes.append(outcome)
                continue
            artifact = self.store.find(recipe)
            self.store.mark_used(recipe)  # it was not needed: its artifact counts as used
            outcomes.append(StageOutcome(name, recipe.key, artifact, artifact is not None))
        return outcomes

    def ensure(self, name: str) -> Artifact:
        """The artifact of a stage, reused or made; the stages it needs come first."""
        if name not in self._outcomes:
            recipe, recompute = self.all_recipes[name], self._must_recompute(name)
            artifact = None if recompute else self.store.load(recipe)
            reused = True
            if artifact and (other := self._changed_since(artifact)):
                log.warning("%s: made from another version of %s; recomputing it", name, other)
                artifact, recompute = None, True
            if artifact is None:
                artifact, reused = self._make(name, recompute)
                self.session.made.add(self.store.folder(recipe))
            self._outcomes[name] = StageOutcome(name, recipe.key, artifact, reused)
        artifact = self._outcomes[name].artifact
        if artifact is None:
            raise RuntimeError(f"stage {name} left no artifact")
        return artifact

    def _make(self, name: str, recompute: bool) -> tuple[Artifact | None, bool]:
        """Make the artifact of a stage; whether another process has made it meanwhile."""
        stage, recipe = self.stages[name], self.all_recipes[name]
        if stage.engine:  # the ranking may be damaged, or another one be missing that it is compared with
            self.check(making=True)
        for needed in stage.needs:
            self.ensure(needed)
        with self.store.making(recipe, recompute) as draft:
            reused = draft.artifact is not None
            if not reused:
                session, meter = self.session, machine.Meter()
                context = Context(
                    recipe, self.progress, meter, self.store, session.engine, stage.engine, session.fresh
                )
                inputs = {needed: self.opened(needed) for needed in stage.needs}
                draft.facts = stage.make(inputs, draft, context)
                draft.made |= meter.figures() | self._origin(stage)
        return draft.artifact, reused

    def _origin(self, stage: Stage) -> Facts:
        """What a stage's result was made from, and on which machine."""
        varying = [needed for needed in stage.needs if not self.stages[needed].exact_bytes]
        return {
            "from": {needed: self.all_recipes[needed].key for needed in stage.needs},
            "from_files": {needed: self.ensure(needed).content for needed in varying},
            "hardware": machine.hardware(),
            "threads": machine.threads(),
            "versions": machine.versions(),
        }

    def _changed_since(self, artifact: Artifact) -> str | None:
        """The stage, of those this run has used, whose files differ from those the artifact was made from."""
        origin = artifact.manifest["made"]
        used = {outcome.key: outcome.artifact for outcome in self._outcomes.values()}
        for name, files in origin.get("from_files", {}).items():
            now = used.get(origin["from"][name])
            if now and files != now.content:
                return str(name)
        return None

    def opened(self, name: str) -> Any:
        """The result of a stage, opened for use; it is made if it is missing."""
        if name not in self._opened:
            artifact = self.ensure(name)
            try:
                self._opened[name] = self.stages[name].open(artifact)
            except (EOFError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise InputError(
                    f"{artifact.folder} is not a complete artifact of stage {name}: {error}",
                    allowed="artifacts that a run wrote",
                    fix="remove that folder, or run again with --fresh",
                ) from error
        return self._opened[name]

    @property
    def collection(self) -> Collection:
        """The passages, queries and judgments."""
        collection: Collection = self.opened(COLLECTION)
        return collection
