"""What must happen again when something changes? One config's stages, their keys, and what is reused.

A stage's recipe is known before anything is computed; its artifact is looked for, and only what is
missing is made (`stages`), with nothing upstream opened unless a missing stage needs it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline import data, encoders, engines, lexical, stages
from pipeline.config import STAGES, Config
from pipeline.core import machine
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress, silent
from pipeline.core.records import Collection
from pipeline.engines import Engine
from pipeline.recipes import VECTORS, Hashed, Plan
from pipeline.storage import hashing
from pipeline.storage.artifacts import Artifact, Draft
from pipeline.storage.store import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """What became of one stage.

    Attributes:
        stage: Its name.
        key: Of its recipe: its artifact's folder, if there is one.
        artifact: Its result; None when it was not needed and is not there.
        reused: Whether the artifact was there already.
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


@dataclass(kw_only=True)
class Benchmark(Plan):
    """One config's stages, and the making of them.

    Args:
        progress: Opens progress bars.
        fresh: Make every stage anew.
        made_afresh: Keys of what was made in this process, which `fresh` does not make once more.
    """

    progress: Progress = silent
    fresh: bool = False
    made_afresh: set[str] = field(default_factory=set)
    _ready: dict[str, Stage] = field(default_factory=dict, init=False)

    def ensure_exact(self) -> Artifact | None:
        """The search stage of `exact`, reused or made."""
        if self.exact is None:
            return None
        self.exact._ready.update((name, self._ready[name]) for name in VECTORS if name in self._ready)
        return self.exact.ensure("search")

    def check(self) -> None:
        """Refuse what can be known to be wrong before anything is made.

        Raises:
            InputError: In the config, the data's files or the model's.
        """
        recipes = self.recipes
        engines.check(self.config.engine, self.model)
        if self.fresh or self.store.find(recipes["search"]) is None:
            from pipeline.search import faiss_index, gpu

            index, search = self.config.index, self.config.search
            dimension = self.model.dimension if isinstance(self.model, encoders.Model) else None
            faiss_index.check_index(index.factory, index.metric, search.parameters, dimension)
            gpu.choose_gpu(search.device, gpu.count_gpus())

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
            if artifact and (other := self._changed_since(artifact)):
                log.warning("%s: made from another %s than there is now; making it again", name, other)
                artifact, fresh = None, True
            if artifact is None:
                for needed in self.needs(name):
                    self.ensure(needed)
                if name == "evaluate":
                    self.ensure_exact()
                artifact, reused = self.store.make(recipe, lambda draft: self._make(name, draft), fresh)
                self.made_afresh.add(recipe.key)
            self._ready[name] = Stage(name, recipe.key, artifact, reused)
        artifact = self._ready[name].artifact
        if artifact is None:
            raise RuntimeError(f"stage {name} left no artifact")
        return artifact

    def _changed_since(self, artifact: Artifact) -> str | None:
        """The stage, of those this run has opened, whose files are others than the artifact was made from.

        One recipe need not give the same bytes again: threads, a GPU or a batch size can change last bits.
        Of data it gives the same texts.
        """
        made_from = artifact.manifest["made"].get("from_files", {})
        for name, files in made_from.items():
            if name in self._ready and files != _content(self.ensure(name)):
                return str(name)
        return None

    def _unneeded(self, name: str) -> Stage:
        recipe = self.recipe(name)
        self.store.mark_used(recipe)
        artifact = self.store.find(recipe)
        return Stage(name, recipe.key, artifact, artifact is not None)

    def _make(self, name: str, draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run one stage; its facts, and how it was made."""
        meter = machine.Meter()
        own = lexical.MAKERS if self.config.model.backend == "bm25" else {}
        facts = own.get(name, stages.MAKERS[name])(self, draft, meter)
        needs = self.needs(name)
        return facts, {
            **meter.figures(),
            "from": {needed: self.recipe(needed).key for needed in needs},
            "from_files": {needed: _content(self.ensure(needed)) for needed in needs if needed != "data"},
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
        passages = len(collection.passages)
        if shards > passages:
            raise InputError(
                f"index.shards: {shards:,}, and the collection has {counted(passages, 'passage')}",
                allowed=f"1 to {passages:,}",
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


def several(configs: Iterable[Config], progress: Progress = silent, fresh: bool = False) -> list[Benchmark]:
    """A benchmark of each config: what two of them name is hashed once, and a cache has one store."""
    hashed = Hashed()
    stores: dict[Path, Store] = {}
    made_afresh: defaultdict[Path, set[str]] = defaultdict(set)
    benchmarks = []
    for config in configs:
        root = Path(config.cache)
        store = stores.setdefault(root, Store(root))
        benchmarks.append(
            Benchmark(config, store, hashed, progress=progress, fresh=fresh, made_afresh=made_afresh[root])
        )
    return benchmarks


def _content(artifact: Artifact) -> str:
    """SHA-256 of what its files are."""
    return hashing.hash_json(artifact.manifest["files"])
