"""A benchmark: the artifacts of one config, loaded or made.

No stage is known by name here: the plan says what each needs, how it is keyed and how it is made. One pass
from the last stage back loads what is in the cache and lists what is missing; a loop makes that, in order.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from pipeline.config import Config, DataSettings
from pipeline.core import installation, machine
from pipeline.core.display import Progress, counted, figure, silent
from pipeline.core.errors import InputError
from pipeline.core.records import Collection, Facts
from pipeline.core.result_records import ONLY_WHERE_MEASURED, StageRow
from pipeline.data.collection_files import CORPUS
from pipeline.data.loading import Identity, identify
from pipeline.encoders import openers
from pipeline.encoders.opener import Opener, TextOpener
from pipeline.engines.base import Engine
from pipeline.engines.engine import EngineFactory, check_engine
from pipeline.models.finding import find_model
from pipeline.retrievers.retriever import COLLECTION
from pipeline.retrievers.stage import Context
from pipeline.run import plan
from pipeline.run.plan import make_retriever
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
    # Hashes the files of a collection; gives the source of a section `model` or `rerank`. Each is done once.
    identify: Callable[[DataSettings], Identity] = field(default_factory=lambda: cache(identify), init=False)
    resolve: Callable[..., Any] = field(
        default_factory=lambda: cache(partial(openers.resolve, find=cache(find_model))), init=False
    )
    # Folders of the artifacts made here, which `fresh` does not make again.
    made: set[Path] = field(default_factory=set, init=False)
    stores: dict[Path, Store] = field(default_factory=dict, init=False)
    _engine: tuple[EngineFactory, Engine] | None = field(default=None, init=False)

    def engine(self, factory: EngineFactory | None, store: Store) -> Engine:
        """The engine of a factory; another one is closed first."""
        assert factory, "a stage whose work is not divided"
        if self._engine and self._engine[0] != factory:
            self.close_engine()
        if self._engine is None:
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
        for store in self.stores.values():
            store.close()


@dataclass(eq=False)
class Benchmark:
    """The stages of one config.

    What its data, models and this machine decide is known at once; nothing is parsed or computed for it.

    Args:
        config: The settings as they were given.
        session: What it shares with other benchmarks: those of one cache share its store.
        progress: Opens progress bars.
        cache: Where artifacts are kept, in place of the config's cache.

    Attributes:
        resolved_config: The settings, with the backend that `auto` takes in place of `auto`.
        stages: By role, in the order they are reported in, each after those that it needs.
        recipes: What shapes the artifact of each stage: its settings, and the keys of stages before it.
        seconds: What making stages took so far.

    Raises:
        InputError: The data or a model cannot be found, or cannot be used so.
    """

    config: Config
    session: Session
    progress: Progress = silent
    cache: InitVar[Store | None] = None
    seconds: float = field(default=0.0, init=False)
    _checked: bool = field(default=False, init=False)
    _confirmed: bool = field(default=False, init=False)
    _artifacts: dict[str, Artifact] = field(default_factory=dict, init=False)
    _made: set[str] = field(default_factory=set, init=False)
    _outdated: set[str] = field(default_factory=set, init=False)

    def __post_init__(self, cache: Store | None) -> None:
        config, session, root = self.config, self.session, Path(self.config.cache)
        self.store = cache or session.stores.setdefault(root, Store(root))
        identity, resolve = session.identify(config.data), partial(session.resolve, cache=root)
        collection = plan.collection_stage(config, identity)
        corpus = self.store.folder(collection.recipe({})).absolute() / CORPUS
        self.resolved_config = openers.settle(config, resolve)
        self.retriever = make_retriever(self.resolved_config, resolve, identity, corpus)
        scores = plan.evaluate_stage(config, self.retriever)
        self.stages = {COLLECTION: collection, **self.retriever.plan, plan.SCORES: scores}
        self.recipes: dict[str, Recipe] = {}
        keys: dict[str, str] = {}
        for role, stage in self.stages.items():
            self.recipes[role] = stage.recipe(keys)
            keys[role] = self.recipes[role].key

    def check(self) -> None:
        """Refuse, once, settings that do not fit the models or this machine, and links in the cache."""
        if not self._checked:
            for recipe in self.recipes.values():
                self.store.check(recipe)
            for source in self.retriever.sources:
                check_engine(self.config.engine, source)
            self.retriever.check()
        self._checked = True

    def check_collection(self, alone: bool = True) -> None:
        """Refuse settings that do not fit the collection, and vectors that this machine does not hold.

        Where others run too, a collection that cannot be read fails again when its turn comes. One alone
        opens its engine first: a missing cluster is found before anything is written.

        Raises:
            InputError: It says what would fit.
        """
        to_make = self.missing(self.retriever.ranking)
        engine = next(filter(None, (self.stages[name].engine for name in to_make)), None)
        if alone and engine:
            self.session.engine(engine, self.store)
        if not self.store.root.is_dir():
            log.info("new cache: %s", self.store.root.absolute())
        try:
            collection: Collection = self.opened(COLLECTION)
        except Exception:
            if alone:
                raise
            return
        for source in self.retriever.sources:
            if source.stored:
                source.match(collection)
        self.retriever.check_collection(collection)
        if lacking := self.obstacle(len(collection.passages), len(collection.queries), to_make):
            raise lacking

    def obstacle(self, passages: int, queries: int, roles: Container[str]) -> InputError | None:
        """What this machine lacks for the vectors and indexes of some roles; None if it holds them."""
        sizes = self.retriever.stored_sizes(passages, queries)
        sizes = {role: size for role, size in sizes.items() if role in roles}
        cache = Path(self.config.cache)
        existing = next(path for path in (cache, *cache.absolute().parents) if path.exists())
        memory = {role: size.memory for role, size in sizes.items()}
        disk = {role: size.disk for role, size in sizes.items()}
        free = shutil.disk_usage(existing).free
        if sum(disk.values()) > free:
            disk = {role: size - self.written(role) for role, size in disk.items()}
        for what, needs, needed, here, where in (
            ("memory", memory, max(memory.values(), default=0), machine.memory_bytes(), "this machine has"),
            ("disk", disk, sum(disk.values()), free, f"the disk of {cache} has free"),
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

    def run(self) -> Facts:
        """Make what is missing; the scores."""
        started = time.perf_counter()
        self.confirm()
        to_make = self.missing(self.retriever.ranking, plan.SCORES)
        computing = any(self.stages[name].engine for name in to_make)
        for source in self.retriever.sources:
            if not isinstance(source, Opener):
                continue
            model = source.model
            log.info("%s", model.describe())
            if isinstance(source, TextOpener):
                for doubt in filter(None, (model.guessed, model.hint)):
                    log.warning("model %s: %s", model.name, doubt)
            on_cpu = computing and model.device == "cpu"
            if on_cpu and (lacking := machine.emulated_precision(model.precision)):
                log.warning(
                    "model %s: %s is slower than fp32 on this processor, which lacks %s "
                    "(faster than fp32: %s)",
                    *(source.settings.label, model.precision, lacking),
                    ", ".join(machine.fast_precisions()) or "none",
                )
        work = f"computes {', '.join(to_make)}." if to_make else "everything is in the cache"
        log.info("%s: %s", self.config.name, work)
        self.ensure(self.retriever.ranking, plan.SCORES)
        scores: Facts = self.opened(plan.SCORES)
        self.seconds += time.perf_counter() - started
        return scores

    def confirm(self) -> None:
        """Check, once, that served models still return what is cached; keys cannot detect a change."""
        for source in () if self._confirmed else self.retriever.sources:
            if source.served:
                source.confirm(self.store, self.session.fresh)
        self._confirmed = True

    def engines_to_open(self) -> list[EngineFactory]:
        """The engine of each stage that has to be made, in order."""
        stages = (self.stages[name] for name in self.missing(self.retriever.ranking))
        return [stage.engine for stage in stages if stage.engine]

    def make_with(self, factory: EngineFactory) -> None:
        """Make the missing stages of one engine, which is then opened once for several benchmarks."""
        started = time.perf_counter()
        self.confirm()
        for name in self.missing(self.retriever.ranking):
            if self.stages[name].engine == factory:
                self.ensure(name)
        self.seconds += time.perf_counter() - started

    def missing(self, *targets: str) -> list[str]:
        """The stages that have to be made for some, in order; what they need and is there is loaded.

        So has what was made from other files than this run uses: their keys do not tell them apart.
        """
        session, needed, missing = self.session, set(targets), list[str]()
        for name, stage in reversed(self.stages.items()):
            if name not in needed or name in self._artifacts:
                continue
            recipe = self.recipes[name]
            is_old = session.fresh and self.store.folder(recipe) not in session.made
            artifact = None if is_old or name in self._outdated else self.store.load(recipe)
            if artifact:
                self._artifacts[name] = artifact
            else:
                missing.append(name)
                needed |= set(stage.needs)
        used = {artifact.key: artifact for artifact in self._artifacts.values()}
        outdated = {
            name: source
            for name, artifact in self._artifacts.items()
            for source, files in artifact.made.get("from_files", {}).items()
            if (now := used.get(artifact.made["from"][source])) and now.content != files
        }
        for name, source in outdated.items():
            log.warning("%s: made from another version of %s; recomputing it", name, source)
            del self._artifacts[name]
        self._outdated |= outdated.keys()
        return self.missing(*targets) if outdated else missing[::-1]

    def ensure(self, *targets: str) -> Artifact:
        """Load or make stages, with what they need; the artifact of the last.

        What another process has made meanwhile is loaded. After each stage, those that were made from what it
        replaces are missing, too.
        """
        session = self.session
        while missing := self.missing(*targets):
            name = missing[0]
            stage, recipe = self.stages[name], self.recipes[name]
            if stage.engine:
                self.check()
            with self.store.making(recipe, session.fresh or name in self._outdated) as draft:
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
        return self._artifacts[targets[-1]]

    def opened(self, name: str) -> Any:
        """The result of a stage, loaded or made, and opened for use."""
        artifact = self.ensure(name)
        try:
            return self.stages[name].open(artifact)
        except (EOFError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"{artifact.folder} is not a complete artifact of stage {name}: {error}",
                allowed="artifacts that a run wrote",
                fix="remove that folder, or run again with --fresh",
            ) from error

    @property
    def collection(self) -> Collection:
        """The passages, queries and judgments."""
        collection: Collection = self.opened(COLLECTION)
        return collection

    def stage_rows(self, used: bool = False) -> tuple[dict[str, Artifact], list[StageRow]]:
        """The artifacts that are there, by role, and what a result says of each stage, in order.

        One that no stage needed may be missing. `used` records that a run uses those that are there.
        """
        artifacts, rows = dict[str, Artifact](), list[StageRow]()
        unknown = dict.fromkeys(StageRow.model_fields.keys() - ONLY_WHERE_MEASURED)
        for role, recipe in self.recipes.items():
            artifact = self._artifacts.get(role) or self.store.find(recipe, used)
            made: Facts = artifact.made if artifact else {}
            measured = {name: made[name] for name in StageRow.model_fields if name in made}
            known = {
                "stage": role,
                "key": recipe.key,
                "reused": artifact is not None and role not in self._made,
                "bytes": sum(entry["bytes"] for entry in artifact.files.values()) if artifact else None,
                "made_at": made.get("at"),
            }
            rows.append(StageRow(**unknown | measured | known))
            if artifact:
                artifacts[role] = artifact
        return artifacts, rows
