"""What must happen again when something changes? One config's stages, their keys, and what is reused.

A stage's recipe is known before anything is computed; its artifact is looked for, and only what is
missing is made (`stages`), with nothing upstream opened unless a missing stage needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipeline import data, encoders, engines, lexical, machine, stages
from pipeline.artifacts import Artifact, Draft, Recipe, Store
from pipeline.config import EXACT, STAGES, Config, EngineConfig, IndexConfig, SearchConfig, keyed_settings
from pipeline.data.storage import CORPUS
from pipeline.encoders import Corpus, Source
from pipeline.encoders.models import Role
from pipeline.engines import Engine
from pipeline.errors import InputError
from pipeline.metrics.names import Measure, parse_all
from pipeline.progress import Progress, silent
from pipeline.records import Collection

SCHEMAS = {"passages": 1, "queries": 1, "index": 1, "search": 2, "evaluate": 1}
"""Raised when a stage's code starts to give other bytes for the same recipe."""

_VECTORS = ("data", "passages", "queries")
EXACT_MEMORY_MB = 1024  # for the exact search that an approximate index is measured against

_NEEDS = {
    "data": (),
    "passages": ("data",),
    "queries": ("data",),
    "index": ("passages",),
    "search": ("data", "index", "queries"),
    "evaluate": ("data", "search"),
}


@dataclass(frozen=True)
class Stage:
    """What became of one stage.

    Attributes:
        stage: Its name.
        artifact: Its result; None when it was not needed and is not there.
        reused: Whether it was there already.
    """

    stage: str
    key: str
    artifact: Artifact | None
    reused: bool

    def row(self) -> dict[str, Any]:
        """The stage as `metrics.json` lists it; figures are of the run that made the artifact."""
        made = self.artifact.manifest["made"] if self.artifact else {}
        figures = {name: made.get(name) for name in ("seconds", "items", "items_per_second", "peak_rss_mb")}
        figures["bytes"] = self.artifact.bytes if self.artifact else None
        if "encoding" in made:
            figures["encoding"] = made["encoding"]
        return {"stage": self.stage, "key": self.key, "reused": self.reused, **figures}


@dataclass
class Benchmark:
    """One config's stages.

    Args:
        config: What to run.
        store: Where artifacts are.
        progress: Opens progress bars.
        fresh: Make every stage anew.
        made_afresh: Keys of what was made in this process, which `fresh` does not make once more.
    """

    config: Config
    store: Store
    progress: Progress = silent
    fresh: bool = False
    made_afresh: set[str] = field(default_factory=set)
    _ready: dict[str, Stage] = field(default_factory=dict)
    _recipes: dict[str, Recipe] = field(default_factory=dict)

    @cached_property
    def measures(self) -> list[Measure]:
        """The parsed measures; refuses cutoffs that `search.top_k` cannot fill."""
        measures = parse_all(self.config.evaluate.measures)
        for measure in measures:
            if measure.cutoff and measure.cutoff > self.config.search.top_k:
                raise InputError(
                    f"evaluate.measures: {measure} looks at {measure.cutoff} ranks, "
                    f"search.top_k keeps {self.config.search.top_k}",
                    allowed=f"cutoffs up to {self.config.search.top_k}",
                    fix="raise search.top_k or lower the cutoff",
                )
        return measures

    @cached_property
    def model(self) -> Source:
        """What `model.name` means here."""
        where = self.store.folder(self.recipe("data")).absolute() / CORPUS
        corpus = Corpus(self.sources.passages, where)
        return encoders.resolve(self.config.model, corpus)

    @cached_property
    def sources(self) -> data.Identity:
        """What the collection is, by its files' bytes; nothing is parsed."""
        return data.identify(self.config.data)

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """Each stage's recipe, in order. Reads the bytes of data and model files, and parses nothing."""
        return {name: self.recipe(name) for name in STAGES}

    @cached_property
    def exact(self) -> Benchmark | None:
        """The same benchmark with exact search, which an approximate index is measured against, if it is."""
        config = self.config
        if config.index.factory == EXACT or not config.search.against_exact:
            return None
        index = IndexConfig(factory=EXACT, metric=config.index.metric)
        search = SearchConfig(
            top_k=config.search.top_k, batch_size=config.search.batch_size, memory_mb=EXACT_MEMORY_MB
        )
        changes = {"index": index, "search": search, "engine": EngineConfig()}
        benchmark = Benchmark(
            config.model_copy(update=changes), self.store, self.progress, self.fresh, self.made_afresh
        )
        benchmark.sources, benchmark.model = self.sources, self.model
        benchmark._recipes.update((name, self.recipe(name)) for name in _VECTORS)
        return benchmark

    def ensure_exact(self) -> Artifact | None:
        """The search stage of `exact`, reused or made."""
        if self.exact is None:
            return None
        self.exact._ready.update((name, self._ready[name]) for name in _VECTORS if name in self._ready)
        return self.exact.ensure("search")

    @property
    def spread(self) -> bool:
        """Whether an engine of many workers searches the stored vectors, exactly, and no index."""
        config = self.config
        exact = config.index.factory == EXACT and config.model.backend != "bm25"
        return exact and config.engine.kind != "local"

    def needs(self, name: str) -> tuple[str, ...]:
        """The stages that one is made of: exact search within a limit takes the vectors, and no index."""
        if name == "search" and (self.spread or self.config.search.memory_mb is not None):
            return _VECTORS
        return _NEEDS[name]

    def recipe(self, name: str) -> Recipe:
        """What shapes one stage: schema, settings, and the keys and identities of what it is made of."""
        if name not in self._recipes:
            self._recipes[name] = Recipe(name, {"schema": SCHEMAS.get(name, 0), **self._ingredients(name)})
        return self._recipes[name]

    def _ingredients(self, name: str) -> dict[str, Any]:
        config, sources = self.config, self.sources
        match name:
            case "data":
                return {"passages": sources.passages, "queries": sources.queries, "qrels": sources.qrels}
            case "passages" | "queries":
                role: Role = "passages" if name == "passages" else "queries"
                texts = sources.passages if name == "passages" else sources.queries
                model = {"model": self.model.recipe(role), **encoders.prepared(config.model, self.model)}
                model |= keyed_settings(config.model, name)
                return {"texts": texts, **model}
            case "index":
                own = keyed_settings(config.model, name) if config.model.backend == "bm25" else {}
                return {"passages": self.recipe("passages").key, **own, **keyed_settings(config.index, name)}
            case "search":
                made_of = {"index": self.recipe("index").key, "queries": self.recipe("queries").key}
                measured = {"measured": True} if self.exact else {}
                return {**made_of, **measured, **keyed_settings(config.search, name)}
            case "evaluate":
                measures = [str(measure) for measure in self.measures]
                made_of = {"search": self.recipe("search").key}
                if self.exact:
                    made_of["exact"] = self.exact.recipe("search").key
                settings = keyed_settings(config.evaluate, name)
                return {**made_of, "qrels": sources.qrels, "measures": measures, **settings}
        raise ValueError(f"no stage '{name}'")

    def plan(self) -> list[dict[str, Any]]:
        """Each stage's name, key and whether its artifact is there, in order."""
        return [
            {"stage": name, "key": recipe.key, "exists": self.store.find(recipe) is not None}
            for name, recipe in self.recipes.items()
        ]

    def check(self) -> None:
        """Refuse what can be known to be wrong before anything is made.

        Raises:
            InputError: In the config, the data's files or the model's.
        """
        recipes = self.recipes
        engines.check(self.config.engine, self.model)
        if self.store.find(recipes["search"]) is None:
            from pipeline.search import faiss_index, gpu

            index, search = self.config.index, self.config.search
            if search.memory_mb is not None and index.factory != EXACT:
                raise InputError(
                    f"search.memory_mb: {search.memory_mb}, and index.factory is '{index.factory}', "
                    "which is searched whole",
                    allowed=f"a limit for exact search, index.factory: {EXACT}",
                    fix="set search.memory_mb to null, or change index.factory",
                )
            faiss_index.check(index.factory, index.metric, search.parameters)
            gpu.choose(search.device, gpu.count())

    def run(self) -> list[Stage]:
        """Make what is missing of everything; what became of each stage, in order."""
        self.check()
        try:
            if self.fresh or self.store.find(self.recipe("search")) is None:
                _ = self.engine  # refused now, if there is no such cluster, and not after the data is read
            if self.fresh:
                for name in STAGES:
                    if name != "index" or name in self.needs("search"):
                        self.ensure(name)
            for name in ("search", "evaluate"):  # what a result folder is written from
                self.ensure(name)
        finally:
            if "engine" in vars(self):
                self.engine.close()
        return [self._ready.get(name) or self._unneeded(name) for name in STAGES]

    def ensure(self, name: str) -> Artifact:
        """The artifact of a stage, reused or made, and before it those it needs."""
        if name not in self._ready:
            recipe = self.recipe(name)
            fresh = self.fresh and recipe.key not in self.made_afresh
            artifact, reused = None if fresh else self.store.load(recipe), True
            if artifact is None:
                for needed in self.needs(name):
                    self.ensure(needed)
                artifact, reused = self.store.make(recipe, lambda draft: self._make(name, draft), fresh)
                self.made_afresh.add(recipe.key)
            self._ready[name] = Stage(name, recipe.key, artifact, reused)
        artifact = self._ready[name].artifact
        if artifact is None:
            raise RuntimeError(f"stage {name} left no artifact")
        return artifact

    def _unneeded(self, name: str) -> Stage:
        recipe = self.recipe(name)
        self.store.mark_used(recipe)
        return Stage(name, recipe.key, self.store.find(recipe), True)

    def _make(self, name: str, draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run one stage; its facts, and how it was made."""
        meter = machine.Meter()
        own = lexical.MAKERS if self.config.model.backend == "bm25" else {}
        facts = own.get(name, stages.MAKERS[name])(self, draft, meter)
        sources = {"from": {needed: self.recipe(needed).key for needed in self.needs(name)}}
        return facts, {
            **meter.figures(),
            **sources,
            "hardware": machine.hardware(),
            "versions": machine.versions(),
        }

    @cached_property
    def collection(self) -> Collection:
        """The data stage's result.

        Raises:
            InputError: It has fewer passages than the index is to have shards.
        """
        collection, shards = data.open_collection(self.ensure("data")), self.config.index.shards
        if shards > len(collection.passages):
            raise InputError(
                f"index.shards: {shards:,}, and the collection has {len(collection.passages):,} passages",
                allowed=f"1 to {len(collection.passages):,}",
                fix="lower it",
            )
        return collection

    @cached_property
    def engine(self) -> Engine:
        """Where shards run; opened for the first stage that needs it, closed at the end of `run`."""
        return engines.open_engine(self.config.engine, self.config.model, self.model, self.store)

    @cached_property
    def here(self) -> Engine:
        """This process, for work that no engine divides."""
        return engines.open_local(self.config.model, self.model, self.store)

    @property
    def encoding(self) -> Engine:
        """Where texts are encoded; vectors that are there only have to be read."""
        return self.here if isinstance(self.model, encoders.Precomputed) else self.engine
