"""The runner of a benchmark: its plan of stages, of which it makes those that the cache does not have.

The recipe of every stage is known before anything is computed. The runner looks for the artifact of each
stage that a result is written from. If one is missing, it first makes or opens what that stage needs; nothing
else is opened. It knows no stage by name: the plan says what each needs, and how it is keyed and made.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.core import machine
from pipeline.core.errors import InputError, UnsuitedError
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Collection
from pipeline.data.collection_files import CORPUS
from pipeline.engines import Engine
from pipeline.retrievers import shared
from pipeline.retrievers.retriever import Identities, Retriever, make_retriever
from pipeline.retrievers.stage import Beside, Context, OpensEngine, Plan, Stage
from pipeline.storage import hashing
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageOutcome:
    """What a run did about one stage.

    Attributes:
        stage: Its name in the plan.
        key: Of its recipe.
        artifact: Its result; None when it was not needed and does not exist.
        reused: Whether the artifact existed before.
    """

    stage: str
    key: str
    artifact: Artifact | None
    reused: bool


class OpenEngine:
    """The engine that is open: one at a time, so that a model has the machine for itself."""

    def __init__(self) -> None:
        self._open: tuple[OpensEngine, Engine] | None = None

    def of(self, opens: OpensEngine, store: Store) -> Engine:
        """The engine that is opened so; another one is closed first."""
        if self._open is None or self._open[0] != opens:
            self.close()
            self._open = opens, opens(store)
        return self._open[1]

    def close(self) -> None:
        """Stop the workers of the engine, if one is open."""
        opened, self._open = self._open, None
        if opened:
            opened[1].close()


class _Keys(dict[str, str]):
    """The key of each stage of a plan, computed when it is looked up."""

    def __init__(self, recipe: Callable[[str], Recipe]) -> None:
        super().__init__()
        self._recipe = recipe

    def __missing__(self, name: str) -> str:
        return self._recipe(name).key


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
        to_come: The benchmarks of the same call that have not begun (see `leave`), of whose stages one that
            runs may make parts.

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
    to_come: list[Benchmark] = field(default_factory=list, repr=False, compare=False)
    seconds_ahead: float = field(default=0.0, init=False)
    _recipes: dict[str, Recipe] = field(default_factory=dict, init=False)
    _outcomes: dict[str, StageOutcome] = field(default_factory=dict, init=False)
    _opened: dict[str, Any] = field(default_factory=dict, init=False)

    @cached_property
    def settled(self) -> Config:
        """The settings, with the backend that `auto` takes in place of `auto`."""
        return self.identities.settle(self.config, self.store)

    @cached_property
    def retriever(self) -> Retriever[Any]:
        """Makes the ranking; it hashes data and model files, and parses none."""
        identity = self.identities.collection(self.config.data)
        folder = self.store.folder(shared.collection_stage(self.config, identity).recipe({}))
        return make_retriever(self.settled, self.identities, identity, folder.absolute() / CORPUS)

    @cached_property
    def stages(self) -> Plan:
        """The stages, in the order they are reported in."""
        made = self.retriever
        return shared.whole_plan(self.config, made.identity, made.plan(), made.ranking, made.assessments())

    @property
    def reported(self) -> list[str]:
        """The stages that results list."""
        return [name for name, stage in self.stages.items() if stage.listed]

    def recipe(self, name: str) -> Recipe:
        """What shapes one stage's artifact."""
        if name not in self._recipes:
            self._recipes[name] = self.stages[name].recipe(_Keys(self.recipe))
        return self._recipes[name]

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
        recipe = self.recipe(name)
        fresh = self.fresh and recipe.key not in self.made_afresh
        return not fresh and self.store.find(recipe) is not None

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
        ranking = self.retriever.ranking
        return ranking in self._outcomes or (
            not self.fresh and self.store.find(self.recipe(ranking)) is not None
        )

    def leave(self) -> None:
        """Be no longer to come, as it begins or is left out."""
        self.to_come[:] = [each for each in self.to_come if each is not self]

    def run(self) -> list[StageOutcome]:
        """Make the missing artifacts, and return what was done about each reported stage, in order."""
        self.leave()
        self._settle_again()  # another benchmark may have found a backend unsuited since this one was checked
        try:
            return self._run()
        except UnsuitedError as error:
            if not self._settle_again():
                raise
            log.warning("auto takes another backend, because %s", error.found)
        return self.run()

    def _settle_again(self) -> bool:
        """Choose the backends of `auto` again; whether others are taken, so that the plan is a new one."""
        if "settled" not in self.__dict__:
            return False
        settled = self.identities.settle(self.config, self.store)
        if settled == self.settled:
            return False
        for name in ("retriever", "stages"):
            self.__dict__.pop(name, None)
        for kept in (self._recipes, self._outcomes, self._opened):
            kept.clear()
        self.settled = settled
        return True

    def _run(self) -> list[StageOutcome]:
        self.check()
        self.report_models()
        self.confirm()
        try:
            if not self.searched:
                self._connect()
                self.check_collection()
            if self.before_work:
                self.before_work(self)
            results = (self.retriever.ranking, shared.SCORES)
            for name in self._needed_for(results) if self.fresh else results:
                self.ensure(name)
        except BaseException:
            self.engines.close()
            raise
        if not self.keeps_engine:
            self.engines.close()
        return [self._outcomes.get(name) or self._unneeded(name) for name in self.reported]

    def confirm(self) -> None:
        """Have stages confirm the artifacts of earlier runs that only they can tell to be out of date."""
        for name, stage in self.stages.items():
            recipe = self.recipe(name)
            if stage.confirm and not self.fresh and recipe.key not in self.made_afresh:
                artifact = self.store.load(recipe)
                if artifact:
                    stage.confirm(artifact)

    def _connect(self) -> None:
        """Open the engine of the first stage to be made, so that a missing cluster is found before work."""
        for name in self._missing(self.retriever.ranking):
            if opens := self.stages[name].open_engine:
                self.engines.of(opens, self.store)
                return

    @property
    def engines_to_open(self) -> list[OpensEngine]:
        """The engines of the stages that have to be made, in order; none if artifacts are to be confirmed."""
        if any(stage.confirm for stage in self.stages.values()):
            return []
        stages = (self.stages[name] for name in self._missing(self.retriever.ranking))
        return list(dict.fromkeys(stage.open_engine for stage in stages if stage.open_engine))

    def make_with(self, opens: OpensEngine) -> None:
        """Make the missing stages of one engine, ahead of `run`, so that it is opened once for several."""
        started = time.perf_counter()
        for name in dict.fromkeys(self._missing(self.retriever.ranking)):
            if self.stages[name].open_engine == opens:
                self.ensure(name)
        self.seconds_ahead += time.perf_counter() - started

    def _missing(self, name: str) -> Iterator[str]:
        """A stage that has to be made, after those it needs that have to be made before it."""
        if name in self._outcomes:
            return
        if self.fresh or self.store.find(self.recipe(name)) is None:
            for needed in self.stages[name].needs:
                yield from self._missing(needed)
            yield name

    def report_models(self) -> None:
        """Log the settings of each model and where they come from, and warn of those that are guesses."""
        for model in self.retriever.models():
            log.info("%s", model.describe())
            if model.guesses():
                log.warning(
                    "model %s does not declare its %s: what is used is a guess; set it in the config",
                    model.name, ", ".join(model.guesses()),
                )  # fmt: skip

    def _needed_for(self, names: Iterable[str]) -> list[str]:
        """The named stages and all stages they need, directly or not, in the plan's order."""
        needed: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            needed.add(name)
            waiting.extend(self.stages[name].needs)
        return [name for name in self.stages if name in needed]

    def ensure(self, name: str) -> Artifact:
        """The artifact of a stage, reused or made; the stages it needs come first."""
        if name not in self._outcomes:
            recipe = self.recipe(name)
            fresh = self.fresh and recipe.key not in self.made_afresh
            artifact = None if fresh else self.store.load(recipe)
            reused = True
            if artifact and (other := self._changed_since(artifact)):
                log.warning("%s: made from another version of %s; recomputing it", name, other)
                artifact, fresh = None, True
            if artifact is None:
                for needed in self.stages[name].needs:
                    self.ensure(needed)
                artifact, reused = self.store.make(recipe, lambda draft: self._make(name, draft), fresh)
                self.made_afresh.add(recipe.key)
            self._outcomes[name] = StageOutcome(name, recipe.key, artifact, reused)
        artifact = self._outcomes[name].artifact
        if artifact is None:
            raise RuntimeError(f"stage {name} left no artifact")
        return artifact

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
        collection: Collection = self.opened(shared.COLLECTION)
        return collection

    def _changed_since(self, artifact: Artifact) -> str | None:
        """The stage, of those this run has used, whose files differ from those the artifact was made from."""
        made = artifact.manifest["made"]
        used = {outcome.key: outcome.artifact for outcome in self._outcomes.values()}
        for name, files in made.get("from_files", {}).items():
            now = used.get(made["from"][name])
            if now and files != _content(now):
                return str(name)
        return None

    def _unneeded(self, name: str) -> StageOutcome:
        recipe = self.recipe(name)
        self.store.mark_used(recipe)
        artifact = self.store.find(recipe)
        return StageOutcome(name, recipe.key, artifact, artifact is not None)

    def _make(self, name: str, draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run one stage, and return its facts and how it was made."""
        stage, meter = self.stages[name], machine.Meter()
        inputs = {needed: self.opened(needed) for needed in stage.needs}
        engine, alike = partial(self._engine_of, stage), partial(self._find_alike, self.recipe(name))
        beside = self._beside(name)
        context = Context(self.progress, meter, engine, alike, self.store, beside, self.fresh)
        facts = stage.make(inputs, draft, context)
        varying = [needed for needed in stage.needs if not self.stages[needed].exact_bytes]
        return facts, {
            **meter.figures(),
            "from": {needed: self.recipe(needed).key for needed in stage.needs},
            "from_files": {needed: _content(self.ensure(needed)) for needed in varying},
            "hardware": machine.hardware(),
            "threads": machine.threads(),
            "versions": machine.versions(),
        }

    def _beside(self, name: str) -> list[Beside]:
        """Stages with an equal `Stage.shared` that are still to be made, by this benchmark or one to come."""
        shared, own = self.stages[name].shared, self.recipe(name).key
        found: dict[str, Beside] = {}
        for benchmark in (self, *self.to_come) if shared else ():
            if benchmark.store is not self.store:
                continue
            for other in benchmark._missing(benchmark.retriever.ranking):
                stage, recipe = benchmark.stages[other], benchmark.recipe(other)
                if stage.shared == shared and recipe.key not in (own, *self.made_afresh):
                    begin = partial(self.store.begin, recipe, self.fresh)
                    found[recipe.key] = Beside(stage.shared, partial(self._find_alike, recipe), begin)
        return list(found.values())

    def _find_alike(self, recipe: Recipe, besides: str) -> list[Artifact]:
        return [] if self.fresh else self.store.find_alike(recipe, besides)

    def _engine_of(self, stage: Stage) -> Engine:
        if stage.open_engine is None:
            raise RuntimeError(f"stage {stage.name} has no engine")
        return self.engines.of(stage.open_engine, self.store)


def several(configs: Iterable[Config], progress: Progress = silent, fresh: bool = False) -> list[Benchmark]:
    """A benchmark of each config; those of one cache share its store, and each file is hashed once."""
    identities = Identities()
    stores: dict[Path, Store] = {}
    made_afresh: defaultdict[Path, set[str]] = defaultdict(set)
    engines = OpenEngine()
    to_come: list[Benchmark] = []
    for config in configs:
        root = Path(config.cache)
        store = stores.setdefault(root, Store(root))
        afresh = made_afresh[root]
        to_come.append(
            Benchmark(config, store, identities, progress, fresh, afresh, engines, to_come=to_come)
        )
    return list(to_come)


def _content(artifact: Artifact) -> str:
    """A hash of the content of an artifact's files."""
    return hashing.hash_json(artifact.manifest["files"])
