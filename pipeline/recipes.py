"""What shapes each stage? One config's recipes, which are known before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Self

from pipeline import data, encoders
from pipeline.config import EXACT, STAGES, Config, EngineConfig, IndexConfig, SearchConfig, keyed_settings
from pipeline.core.errors import InputError
from pipeline.data.storage import CORPUS
from pipeline.encoders import CalibrationCorpus, Source
from pipeline.metrics.names import Measure, parse_all
from pipeline.models.files import find_model
from pipeline.models.model import Role
from pipeline.storage.artifacts import Recipe
from pipeline.storage.store import Store

SCHEMAS = {"passages": 4, "queries": 4, "index": 1, "search": 3, "evaluate": 1}
"""Raised when a stage's code starts to give other bytes for the same recipe."""

VECTORS = ("data", "passages", "queries")
EXACT_MEMORY_MB = 1024  # for the exact search that an approximate index is measured against

NEEDS = {
    "data": (),
    "passages": ("data",),
    "queries": ("data",),
    "index": ("passages",),
    "search": ("data", "index", "queries"),
    "evaluate": ("data", "search"),
}
"""What each stage is made of."""


class Hashed:
    """What configs name, looked up and hashed once for all plans that share this."""

    def __init__(self) -> None:
        self.collection = cache(data.identify)
        self.model = cache(partial(encoders.resolve, find=cache(find_model)))


@dataclass
class Plan:
    """What one config's stages are made of.

    Args:
        config: What to run.
        store: Where artifacts are.
        hashed: Shared with other plans of this process.
    """

    config: Config
    store: Store
    hashed: Hashed = field(default_factory=Hashed)
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
        """What `model.name` means here; int8 is calibrated on the passages of this benchmark."""
        found = self.hashed.model(self.config.model)
        if not isinstance(found, encoders.Model):
            return found
        where = self.store.folder(self.recipe("data")).absolute() / CORPUS
        return replace(found, corpus=CalibrationCorpus(self.sources.passages, where))

    @cached_property
    def sources(self) -> data.Identity:
        """What the collection is, by its files' bytes; nothing is parsed."""
        return self.hashed.collection(self.config.data)

    @cached_property
    def recipes(self) -> dict[str, Recipe]:
        """Each stage's recipe, in order. Reads the bytes of data and model files, and parses nothing."""
        return {name: self.recipe(name) for name in STAGES}

    @cached_property
    def exact(self) -> Self | None:
        """The same with exact search, which an approximate index is measured against, if it is."""
        config = self.config
        if config.index.factory == EXACT or not config.search.against_exact:
            return None
        index = IndexConfig(factory=EXACT, metric=config.index.metric)
        search = SearchConfig(
            top_k=config.search.top_k, batch_size=config.search.batch_size, memory_mb=EXACT_MEMORY_MB
        )
        changes = {"index": index, "search": search, "engine": EngineConfig()}
        recipes = {name: self.recipe(name) for name in VECTORS}
        return replace(self, config=config.model_copy(update=changes), _recipes=recipes)

    @property
    def spread(self) -> bool:
        """Whether an engine of many workers searches the stored vectors, exactly, and no index."""
        config = self.config
        exact = config.index.factory == EXACT and config.model.backend != "bm25"
        return exact and config.engine.kind != "local"

    def needs(self, name: str) -> tuple[str, ...]:
        """The stages that one is made of: exact search within a limit takes the vectors, and no index."""
        if name == "search" and (self.spread or self.config.search.memory_mb is not None):
            return VECTORS
        return NEEDS[name]

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
                model = {"model": self.model.recipe(role), **encoders.kept_keys(config.model, self.model)}
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
