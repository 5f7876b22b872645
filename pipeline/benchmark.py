"""What must happen again when something changes? One config's stages, their keys, and what is reused.

A stage's recipe is known before anything is computed; its artifact is looked for, and only what is
missing is made (`stages`), with nothing upstream opened unless a missing stage needs it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pipeline import data, encoders, machine, stages
from pipeline.artifacts import Artifact, Draft, Recipe, Store
from pipeline.config import STAGES, Config, keyed_settings
from pipeline.encoders import Encoder, Model, Precomputed
from pipeline.encoders.models import Role
from pipeline.errors import InputError
from pipeline.metrics.names import Measure, parse_all
from pipeline.progress import Progress, silent
from pipeline.records import Collection

SCHEMAS = {"passages": 1, "queries": 1, "index": 1, "search": 1, "evaluate": 1}
"""Raised when a stage's code starts to give other bytes for the same recipe."""

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
        return {"stage": self.stage, "key": self.key, "reused": self.reused, **figures}


@dataclass
class Benchmark:
    """One config's stages.

    Args:
        config: What to run.
        store: Where artifacts are.
        progress: Opens progress bars.
        fresh: Make every stage anew.
    """

    config: Config
    store: Store
    progress: Progress = silent
    fresh: bool = False
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
    def model(self) -> Model | Precomputed:
        """What `model.name` means here."""
        return encoders.resolve(self.config.model)

    @cached_property
    def sources(self) -> data.Identity:
        """What the collection is, by its files' bytes; nothing is parsed."""
        return data.identify(self.config.data)

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """Each stage's recipe, in order. Reads the bytes of data and model files, and parses nothing."""
        return {name: self.recipe(name) for name in STAGES}

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
                return {"passages": self.recipe("passages").key, **keyed_settings(config.index, name)}
            case "search":
                made_of = {"index": self.recipe("index").key, "queries": self.recipe("queries").key}
                return {**made_of, **keyed_settings(config.search, name)}
            case "evaluate":
                measures = [str(measure) for measure in self.measures]
                made_of = {"search": self.recipe("search").key}
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
        if self.store.find(recipes["index"]) is None:
            from pipeline.search import faiss_index

            faiss_index.check(self.config.index.factory)

    def run(self) -> list[Stage]:
        """Make what is missing of everything; what became of each stage, in order."""
        self.check()
        if self.fresh:
            for name in STAGES:
                self.ensure(name)
        for name in ("search", "evaluate"):  # what a result folder is written from
            self.ensure(name)
        return [self._ready.get(name) or self._unneeded(name) for name in STAGES]

    def ensure(self, name: str) -> Artifact:
        """The artifact of a stage, reused or made, and before it those it needs."""
        if name not in self._ready:
            recipe = self.recipe(name)
            artifact, reused = None if self.fresh else self.store.load(recipe), True
            if artifact is None:
                for needed in _NEEDS[name]:
                    self.ensure(needed)
                artifact, reused = self.store.make(recipe, lambda draft: self._make(name, draft), self.fresh)
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
        facts = stages.MAKERS[name](self, draft, meter)
        sources = {"from": {needed: self.recipe(needed).key for needed in _NEEDS[name]}}
        return facts, {
            **meter.figures(),
            **sources,
            "hardware": machine.hardware(),
            "versions": machine.versions(),
        }

    @cached_property
    def collection(self) -> Collection:
        """The data stage's result."""
        return data.open_collection(self.ensure("data"))

    @cached_property
    def encoder(self) -> Encoder:
        """The model, loaded once for passages and queries."""
        return encoders.open_encoder(self.config.model, self.model, self.store)
