"""A benchmark: from a config to the artifacts of its plan.

Wrong settings are refused before anything is computed. No stage is known by name here: the plan says what
each needs, how it is keyed and how it is made. The recipe of every stage is known before anything is
computed, and so is whether its artifact exists. One that is asked for is loaded; if it is missing, what its
stage needs is first made or opened, and nothing else is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pipeline.config import Config
from pipeline.core import machine
from pipeline.core.display import Progress, silent
from pipeline.core.errors import InputError
from pipeline.core.json_record import StageRow
from pipeline.core.records import Collection, Facts
from pipeline.data.collection_files import CORPUS
from pipeline.engines import Engine
from pipeline.registry import make_retriever
from pipeline.retrievers.retriever import COLLECTION, Identities, Retriever
from pipeline.retrievers.stage import Context, OpensEngine, Plan, Stage
from pipeline.run import plan
from pipeline.storage import hashing
from pipeline.storage.artifacts import Artifact, Recipe
from pipeline.storage.store import Store

log = logging.getLogger(__name__)


class Session:
    """What the benchmarks of one call share: stores, hashes of files, and the engine that is open.

    One engine is open at a time, so that a model has the machine for itself. The end of the `with` block
    stops it, and lets other processes remove the artifacts.

    Args:
        fresh: Make every stage again, once.

    Attributes:
        identities: Hashes the files that configs name, each once.
        made: Folders of the artifacts made here, which `fresh` does not make again.
    """

    def __init__(self, fresh: bool = False) -> None:
        self.fresh = fresh
        self.identities = Identities()
        self.made: set[Path] = set()
        self._stores: dict[Path, Store] = {}
        self._engine: tuple[OpensEngine, Engine] | None = None

    def benchmark(self, config: Config, progress: Progress = silent) -> Benchmark:
        """The benchmark of a config; those of one cache share its store."""
        root = Path(config.cache)
        return Benchmark(config, self._stores.setdefault(root, Store(root)), self, progress)

    def engine(self, opens: OpensEngine, store: Store) -> Engine:
        """The engine that is opened so; another one is closed first."""
        if self._engine is None or self._engine[0] != opens:
            self.close_engine()
            self._engine = opens, opens(store)
        return self._engine[1]

    def close_engine(self) -> None:
        """Stop the workers of the engine, if one is open."""
        opened, self._engine = self._engine, None
        if opened:
            opened[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_engine()
        for store in self._stores.values():
            store.close()


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

    @property
    def row(self) -> StageRow:
        """What a result says of the stage; what there is no figure of is left unset."""
        made = self.artifact.manifest["made"] if self.artifact else {}
        copied = (
            "seconds", "working_seconds", "items", "items_per_second", "peak_rss_mb", "hardware", "threads",
        )  # fmt: skip
        figures = {name: made.get(name) for name in copied}
        figures["bytes"] = self.artifact.bytes if self.artifact else None
        figures["made_at"] = made.get("at")
        measured = ("encoding", "found", "pairs", "preparing_seconds")
        figures |= {name: made[name] for name in measured if name in made}
        return StageRow(stage=self.stage, key=self.key, reused=self.reused, **figures)


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
    _confirmed: bool = field(default=False, init=False)
    _opened: Facts = field(default_factory=dict, init=False)
    _recipes: dict[str, Recipe] = field(default_factory=dict, init=False)
    _outcomes: dict[str, StageOutcome] = field(default_factory=dict, init=False)

    @cached_property
    def settled(self) -> Config:
        """The settings, with the backend that `auto` takes in place of `auto`."""
        return self.session.identities.settle(self.config)

    @cached_property
    def retriever(self) -> Retriever:
        """Makes the ranking; it hashes data and model files, and parses none."""
        identities = self.session.identities
        identity = identities.collection(self.config.data)
        folder = self.store.folder(plan.collection_stage(self.config, identity).recipe({}))
        return make_retriever(self.settled, identities, identity, folder.absolute() / CORPUS)

    @cached_property
    def stages(self) -> Plan:
        """The stages, in the order they are reported in."""
        made = self.retriever
        return plan.whole_plan(self.config, made.identity, made.plan(), made.ranking, made.assessments())

    @property
    def models_used(self) -> list[Facts]:
        """What runs each model, whether that was left to `auto`, and what had to be guessed of it."""
        used = []
        for section in self.settled.models:
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

    def plan(self) -> list[Facts]:
        """Each reported stage's name, key and whether its artifact exists, in order."""
        return [
            {"stage": name, "key": recipe.key, "exists": self.store.find(recipe) is not None}
            for name, recipe in self.recipes.items()
        ]

    def has(self, name: str) -> bool:
        """Whether a stage's artifact exists, and may be used."""
        return not self._afresh(name) and self.store.find(self.recipe(name)) is not None

    def _afresh(self, name: str) -> bool:
        """Whether a stage is to be made although its artifact may exist."""
        return self.session.fresh and self.store.folder(self.recipe(name)) not in self.session.made

    @property
    def searched(self) -> bool:
        """Whether the ranking exists, and may be used."""
        name = self.retriever.ranking
        return name in self._outcomes or (
            not self.session.fresh and self.store.find(self.recipe(name)) is not None
        )

    def missing(self) -> list[str]:
        """The stages that have to be made for the ranking, each after those that it needs."""
        return list(dict.fromkeys(self._missing(self.retriever.ranking)))

    def _missing(self, name: str) -> Iterator[str]:
        if name in self._outcomes:
            return
        if self.session.fresh or self.store.find(self.recipe(name)) is None:
            for needed in self.stages[name].needs:
                yield from self._missing(needed)
            yield name

    def check(self) -> None:
        """Refuse wrong settings, data and models, as far as they can be seen before anything is computed."""
        for recipe in self.recipes.values():
            self.store.check(recipe)
        self.retriever.check(self.searched)

    def check_collection(self) -> None:
        """Read the collection if it is to be searched, and refuse settings that do not fit its size."""
        if not self.searched:
            self.retriever.check_collection(self.collection)

    def confirm(self) -> None:
        """Refuse, once, stored results of models that answer otherwise now."""
        if not self._confirmed:
            self.retriever.confirm(self.store, self.session.fresh)
        self._confirmed = True

    def report_models(self) -> None:
        """Log the settings of each model and where they come from, and warn of those that are guesses."""
        for model in self.retriever.models():
            log.info("%s", model.describe())
            if model.guessed:
                log.warning("model %s: %s", model.name, model.guessed)

    @property
    def engines_to_open(self) -> list[OpensEngine]:
        """The engines of the stages that have to be made, in order."""
        stages = (self.stages[name] for name in self.missing())
        return list(dict.fromkeys(stage.open_engine for stage in stages if stage.open_engine))

    def connect(self) -> None:
        """Open the engine of the first stage to be made, so that a missing cluster is found before work."""
        for opens in self.engines_to_open[:1]:
            self.session.engine(opens, self.store)

    def make_with(self, opens: OpensEngine) -> None:
        """Make the missing stages of one engine, ahead of `run`, so that it is opened once for several."""
        started = time.perf_counter()
        self.confirm()
        for name in self.missing():
            if self.stages[name].open_engine == opens:
                self.ensure(name)
        self.seconds += time.perf_counter() - started

    def run(self) -> list[StageOutcome]:
        """Make the missing artifacts, and return what was done about each reported stage, in order."""
        results = {self.retriever.ranking, plan.SCORES}
        for name, stage in reversed(self.stages.items()):
            if self.session.fresh and name in results:
                results |= set(stage.needs)
        try:
            for name in [name for name in self.stages if name in results]:
                self.ensure(name)
        finally:
            self._opened.clear()
        return [self._outcome(name) for name in self.reported]

    def _outcome(self, name: str) -> StageOutcome:
        """What was done about a stage; the artifact of one that was not needed counts as used."""
        if name in self._outcomes:
            return self._outcomes[name]
        recipe = self.recipe(name)
        self.store.mark_used(recipe)
        artifact = self.store.find(recipe)
        return StageOutcome(name, recipe.key, artifact, artifact is not None)

    def ensure(self, name: str) -> Artifact:
        """The artifact of a stage, reused or made; the stages it needs come first."""
        if name in self._outcomes:
            return self._made(name)
        recipe, stage, fresh = self.recipe(name), self.stages[name], self._afresh(name)
        artifact = None if fresh else self.store.load(recipe)
        reused = True
        if artifact and (other := self._changed_since(artifact)):
            log.warning("%s: made from another version of %s; recomputing it", name, other)
            artifact, fresh = None, True
        if artifact is None:
            for needed in stage.needs:
                self.ensure(needed)
            with self.store.making(recipe, fresh) as draft:
                reused = draft.artifact is not None  # another process has made it meanwhile
                if not reused:
                    context = self._context(stage, recipe)
                    draft.facts = stage.make(
                        {each: self.opened(each) for each in stage.needs}, draft, context
                    )
                    draft.made |= context.meter.figures() | self._origin(stage)
            artifact = draft.artifact
            self.session.made.add(self.store.folder(recipe))
        self._outcomes[name] = StageOutcome(name, recipe.key, artifact, reused)
        return self._made(name)

    def _made(self, name: str) -> Artifact:
        artifact = self._outcomes[name].artifact
        if artifact is None:
            raise RuntimeError(f"stage {name} left no artifact")
        return artifact

    def _context(self, stage: Stage, recipe: Recipe) -> Context:
        """What a stage may use besides its inputs."""
        session = self.session

        def engine() -> Engine:
            if stage.open_engine is None:
                raise RuntimeError(f"stage {stage.name} has no engine")
            return session.engine(stage.open_engine, self.store)

        def find_alike(besides: str) -> list[Artifact]:
            return [] if session.fresh else self.store.find_alike(recipe, besides)

        return Context(self.progress, machine.Meter(), engine, find_alike, self.store, session.fresh)

    def _origin(self, stage: Stage) -> Facts:
        """What a stage's result was made from, and on which machine."""
        varying = [needed for needed in stage.needs if not self.stages[needed].exact_bytes]
        return {
            "from": {needed: self.recipe(needed).key for needed in stage.needs},
            "from_files": {needed: _content(self.ensure(needed)) for needed in varying},
            "hardware": machine.hardware(),
            "threads": machine.threads(),
            "versions": machine.versions(),
        }

    def _changed_since(self, artifact: Artifact) -> str | None:
        """The stage, of those this run has used, whose files differ from those the artifact was made from."""
        made = artifact.manifest["made"]
        used = {outcome.key: outcome.artifact for outcome in self._outcomes.values()}
        for name, files in made.get("from_files", {}).items():
            now = used.get(made["from"][name])
            if now and files != _content(now):
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


def _content(artifact: Artifact) -> str:
    """A hash of the content of an artifact's files."""
    return hashing.hash_json(artifact.manifest["files"])
