"""A benchmark: the artifacts of one config, loaded or made.

No stage is known by name here: the plan says what each needs, how it is keyed and how it is made. One pass
from the last stage back loads what is in the cache and lists what is missing; a loop makes that, in order.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Container
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from pipeline.config import Config
from pipeline.core import installation, machine
from pipeline.core.display import Progress, counted, figure, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts
from pipeline.core.result_records import ONLY_WHERE_MEASURED, StageRow
from pipeline.data.collection_files import CORPUS
from pipeline.encoders.opener import Opener, TextOpener
from pipeline.engines.base import Engine
from pipeline.engines.engine import EngineFactory, check_engine
from pipeline.retrievers.kinds import make_retriever
from pipeline.retrievers.retriever import COLLECTION, Identities
from pipeline.retrievers.stage import Context
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
    """

    fresh: bool = False
    # Hashes the files that configs name, each once.
    identities: Identities = field(default_factory=Identities, init=False)
    # Folders of the artifacts made here, which `fresh` does not make again.
    made: set[Path] = field(default_factory=set, init=False)
    _stores: dict[Path, Store] = field(default_factory=dict, init=False)
    _engine: tuple[EngineFactory, Engine] | None = field(default=None, init=False)

    def store(self, config: Config) -> Store:
        """The store of a config's cache."""
        root = Path(config.cache)
        self.identities.cache = self.identities.cache or root
        return self._stores.setdefault(root, Store(root))

    def benchmark(self, config: Config, progress: Progress = silent) -> Benchmark:
        """The benchmark of a config; those of one cache share its store."""
        return Benchmark(config, self.store(config), self, progress)

    def engine(self, factory: EngineFactory | None, store: Store) -> Engine:
        """The engine of a factory; another one is closed first."""
        assert factory, "a stage whose work is not divided"
        if self._engine is None or self._engine[0].key != factory.key:
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


def stage_row(stage: str, artifact: Artifact | None, key: str = "", reused: bool = False) -> StageRow:
    """What a result says of a stage, with what `pipeline.core.machine.Meter` measured.

    The artifact is None where it was not needed and does not exist.
    """
    made = artifact.made if artifact else {}
    of_all = StageRow.model_fields.keys() - ONLY_WHERE_MEASURED
    figures = {name: made.get(name) for name in StageRow.model_fields if name in made or name in of_all}
    size = sum(entry["bytes"] for entry in artifact.files.values()) if artifact else None
    known = {"stage": stage, "key": key, "reused": reused, "bytes": size, "made_at": made.get("at")}
    return StageRow(**{**figures, **known})


@dataclass
class Benchmark:
    """The stages of one config.

    What its data, models and this machine decide is known at once; nothing is parsed or computed for it.

    Args:
        config: The settings as they were given.
        store: Where artifacts are kept.
        session: What it shares with other benchmarks.
        progress: Opens progress bars.

    Attributes:
        resolved_config: The settings, with the backend that `auto` takes in place of `auto`.
        stages: By role, in the order they are reported in, each after those that it needs.
        recipes: What shapes the artifact of each stage: its settings, and the keys of stages before it.
        seconds: What making stages took so far.

    Raises:
        InputError: The data or a model cannot be found, or cannot be used so.
    """

    config: Config
    store: Store
    session: Session = field(default_factory=Session)
    progress: Progress = silent
    seconds: float = field(default=0.0, init=False)
    _checked: bool = field(default=False, init=False)
    _confirmed: bool = field(default=False, init=False)
    _opened: Facts = field(default_factory=dict, init=False)
    _artifacts: dict[str, Artifact] = field(default_factory=dict, init=False)
    _made: set[str] = field(default_factory=set, init=False)
    _outdated: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        config, identities = self.config, self.session.identities
        identity = identities.collection(config.data)
        collection = plan.collection_stage(config, identity)
        corpus = self.store.folder(collection.recipe({})).absolute() / CORPUS
        self.resolved_config = identities.settle(config)
        self.retriever = make_retriever(self.resolved_config, identities, identity, corpus)
        scores = plan.evaluate_stage(config, self.retriever)
        self.stages = {COLLECTION: collection, **self.retriever.plan, plan.SCORES: scores}
        self.recipes: dict[str, Recipe] = {}
        keys: dict[str, str] = {}
        for role, stage in self.stages.items():
            self.recipes[role] = stage.recipe(keys)
            keys[role] = self.recipes[role].key

    def describe_models(self) -> tuple[list[Facts], list[Facts]]:
        """What runs each model, whether that was left to `auto`, and what had to be guessed of it.

        And of each model for texts its settings, their sources, and how its rows were compared.
        """
        used, settings = [], []
        for source in self.retriever.sources:
            if not isinstance(source, Opener):
                continue
            section, model = source.settings, source.model
            facts = {"name": section.label, "backend": section.backend, "precision": model.precision}
            used.append({**facts, "auto": section.source_of("backend") == "auto"})
            if isinstance(source, TextOpener):
                if model.guessed:
                    used[-1]["guessed"] = model.guessed
                decided = {name: value._asdict() for name, value in model.decided.items()}
                settings.append({"name": model.name, "settings": decided})
                if source.conversion and (compared := source.comparison(self.store)):
                    settings[-1]["comparison"] = compared
        return used, settings

    def has(self, name: str) -> bool:
        """Whether a stage's artifact exists, and may be used; its bytes are not read."""
        return not self._must_recompute(name) and self.store.find(self.recipes[name]) is not None

    def _must_recompute(self, name: str) -> bool:
        """Whether a stage is made although its artifact may exist."""
        fresh = self.session.fresh and self.store.folder(self.recipes[name]) not in self.session.made
        return fresh or name in self._outdated

    def check(self) -> None:
        """Refuse, once, settings that do not fit the models or this machine, and links in the cache."""
        if not self._checked:
            for recipe in self.recipes.values():
                self.store.check(recipe)
            for source in self.retriever.sources:
                check_engine(self.config.engine, source)
            self.retriever.check()
        self._checked = True

    def confirm(self) -> None:
        """Check, once, that served models still return what is cached; keys cannot detect a change."""
        for source in () if self._confirmed else self.retriever.sources:
            if source.served:
                source.confirm(self.store, self.session.fresh)
        self._confirmed = True

    def obstacle(self, passages: int, queries: int, roles: Container[str]) -> InputError | None:
        """What this machine lacks for the vectors and indexes of some roles; None if it holds them."""
        sizes = self.retriever.stored_sizes(passages, queries)
        sizes = {role: size for role, size in sizes.items() if role in roles}
        cache = Path(self.config.cache)
        existing = next(path for path in (cache, *cache.absolute().parents) if path.exists())
        memory = {role: size.memory for role, size in sizes.items()}
        disk = {role: size.disk - self.written(role) for role, size in sizes.items()}
        total, free = sum(disk.values()), shutil.disk_usage(existing).free
        for what, needs, needed, here, where in (
            ("memory", memory, max(memory.values(), default=0), machine.memory_bytes(), "this machine has"),
            ("disk", disk, total, free, f"the disk of {cache} has free"),
        ):
            if needed <= here:
                continue
            largest = max(needs, key=lambda role: needs[role])
            fixes = [sizes[largest].smaller, "another disk by --set cache=DIR" if what == "disk" else ""]
            return InputError(
                f"{self.config.name}: the vectors and the index of {counted(passages, 'passage')} take "
                f"{figure(needed, 'bytes')} of {what}, most in stage {largest}, and {where} "
                f"{figure(here, 'bytes')}",
                allowed=f"about {int(passages * here / needed):,} passages with these settings",
                fix=f"take {', or '.join([*filter(None, fixes), 'fewer passages by data.corpus'])}",
            )
        return None

    def written(self, role: str) -> int:
        """The bytes that an interrupted run has written of a stage."""
        folder = self.store.folder(self.recipes[role])
        return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0

    def missing(self, *targets: str) -> list[str]:
        """The stages that have to be made for some, in order; what they need and is there is loaded."""
        needed, missing = set(targets), []
        for name, stage in reversed(self.stages.items()):
            if name not in needed or name in self._artifacts:
                continue
            if not self._must_recompute(name) and (artifact := self.store.load(self.recipes[name])):
                self._artifacts[name] = artifact
            else:
                missing.append(name)
                needed |= set(stage.needs)
        return self.missing(*targets) if self._drop_outdated() else missing[::-1]

    def engines_to_open(self) -> list[EngineFactory]:
        """The engines of the stages that have to be made, in order."""
        stages = (self.stages[name] for name in self.missing(self.retriever.ranking))
        return list({stage.engine.key: stage.engine for stage in stages if stage.engine}.values())

    def make_with(self, factory: EngineFactory) -> None:
        """Make the missing stages of one engine, ahead of `run`, so that it is opened once for several."""
        started = time.perf_counter()
        self.confirm()
        for name in self.missing(self.retriever.ranking):
            if (engine := self.stages[name].engine) and engine.key == factory.key:
                self.ensure(name)
        self.seconds += time.perf_counter() - started

    def run(self) -> tuple[dict[str, Artifact], list[StageRow]]:
        """Make the missing artifacts; those of the reported stages, and a row of each stage, in order.

        A stage that was not needed may have no artifact.
        """
        try:
            self.ensure(self.retriever.ranking, plan.SCORES)
        finally:
            self._opened.clear()
        artifacts, rows = {}, []
        for name, recipe in self.recipes.items():
            # An artifact that no stage needed counts as used, too.
            artifact = self._artifacts.get(name) or self.store.find(recipe, used=True)
            if artifact:
                artifacts[name] = artifact
            reused = artifact is not None and name not in self._made
            rows.append(stage_row(name, artifact, recipe.key, reused))
        return artifacts, rows

    def ensure(self, *targets: str) -> Artifact:
        """Load or make stages, with what they need; the artifact of the last."""
        while missing := self.missing(*targets):
            for name in missing:
                self._make(name)
                if self._drop_outdated():  # others were made from what this one replaced
                    break
        return self._artifacts[targets[-1]]

    def opened(self, name: str) -> Any:
        """The result of a stage, loaded or made, and opened for use."""
        artifact = self.ensure(name)
        if name not in self._opened:
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

    def _make(self, name: str) -> None:
        """Make a stage whose needs are there, unless another process has made it meanwhile."""
        stage, recipe, session = self.stages[name], self.recipes[name], self.session
        if stage.engine:
            self.check()
        with self.store.making(recipe, self._must_recompute(name)) as draft:
            if draft.artifact is None:
                self._made.add(name)
                meter = machine.Meter()
                open_engine = partial(session.engine, stage.engine, self.store)
                context = Context(recipe, self.progress, meter, self.store, open_engine, session.fresh)
                inputs = {needed: self.opened(needed) for needed in stage.needs}
                draft.facts = stage.make(inputs, draft, context)
                varying = [needed for needed in stage.needs if not self.stages[needed].exact_bytes]
                draft.made |= meter.figures() | {
                    "from": {needed: self.recipes[needed].key for needed in stage.needs},
                    "from_files": {needed: self._artifacts[needed].content for needed in varying},
                    "hardware": machine.hardware(),
                    "threads": machine.threads(),
                    "versions": installation.versions(),
                }
        assert draft.artifact is not None
        session.made.add(self.store.folder(recipe))
        self._outdated.discard(name)
        self._artifacts[name] = draft.artifact

    def _drop_outdated(self) -> bool:
        """Forget artifacts that were made from other files than this run uses; whether there were any."""
        used = {self.recipes[name].key: artifact for name, artifact in self._artifacts.items()}
        outdated = {}
        for name, artifact in self._artifacts.items():
            origin = artifact.made
            for needed, files in origin.get("from_files", {}).items():
                now = used.get(origin["from"][needed])
                if now and files != now.content:
                    outdated[name] = needed
        for name, needed in outdated.items():
            log.warning("%s: made from another version of %s; recomputing it", name, needed)
            del self._artifacts[name]
            self._opened.pop(name, None)
        self._outdated |= outdated.keys()
        return bool(outdated)
