"""The making of a plan's artifacts: those that the cache has are reused, the others are made in order.

The recipe of every stage is known before anything is computed, and so is whether its artifact exists. One
that is asked for is loaded; if it is missing, what its stage needs is first made or opened, and nothing else
is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.json_record import StageRow
from pipeline.core.progress import Progress
from pipeline.engines import Engine
from pipeline.retrievers.stage import Context, OpensEngine, Plan, Stage
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

    @property
    def row(self) -> StageRow:
        """What a result says of the stage; what there is no figure of is left unset."""
        made = self.artifact.manifest["made"] if self.artifact else {}
        copied = ("seconds", "items", "items_per_second", "peak_rss_mb", "hardware", "threads")
        figures = {name: made.get(name) for name in copied}
        figures["bytes"] = self.artifact.bytes if self.artifact else None
        figures["made_at"] = made.get("at")
        measured = ("encoding", "found", "pairs")
        figures |= {name: made[name] for name in measured if name in made}
        return StageRow(stage=self.stage, key=self.key, reused=self.reused, **figures)


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Keys(dict[str, str]):
    """The key of each stage of a plan, computed when it is looked up."""

    def __init__(self, recipe: Callable[[str], Recipe]) -> None:
        super().__init__()
        self._recipe = recipe

    def __missing__(self, name: str) -> str:
        return self._recipe(name).key


@dataclass
class Making:
    """The artifacts of one plan, found or made.

    Args:
        stages: The plan.
        ranking: The name of the stage that makes the ranking.
        store: Where artifacts are kept.
        progress: Opens progress bars.
        fresh: Make every stage again.
        made_afresh: Keys of the artifacts made in this process, which `fresh` does not make again.
        engines: Holds the engine that is open.
        results: By stage what was opened for use; the benchmark empties it.
    """

    stages: Plan
    ranking: str
    store: Store
    progress: Progress
    fresh: bool
    made_afresh: set[str]
    engines: OpenEngine
    results: dict[str, Any]
    _recipes: dict[str, Recipe] = field(default_factory=dict, init=False)
    _outcomes: dict[str, StageOutcome] = field(default_factory=dict, init=False)

    def recipe(self, name: str) -> Recipe:
        """What shapes one stage's artifact."""
        if name not in self._recipes:
            self._recipes[name] = self.stages[name].recipe(_Keys(self.recipe))
        return self._recipes[name]

    def has(self, name: str) -> bool:
        """Whether a stage's artifact exists, and may be used."""
        return not self._afresh(name) and self.store.find(self.recipe(name)) is not None

    def _afresh(self, name: str) -> bool:
        """Whether a stage is to be made although its artifact may exist."""
        return self.fresh and self.recipe(name).key not in self.made_afresh

    @property
    def searched(self) -> bool:
        """Whether the ranking exists, and may be used."""
        return self.ranking in self._outcomes or (
            not self.fresh and self.store.find(self.recipe(self.ranking)) is not None
        )

    def missing(self) -> list[str]:
        """The stages that have to be made for the ranking, each after those that it needs."""
        return list(dict.fromkeys(self._missing(self.ranking)))

    def _missing(self, name: str) -> Iterator[str]:
        if name in self._outcomes:
            return
        if self.fresh or self.store.find(self.recipe(name)) is None:
            for needed in self.stages[name].needs:
                yield from self._missing(needed)
            yield name

    def needed_for(self, names: Iterable[str]) -> list[str]:
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
            recipe, fresh = self.recipe(name), self._afresh(name)
            artifact = None if fresh else self.store.load(recipe)
            reused = True
            if artifact and (other := self._changed_since(artifact)):
                log.warning("%s: made from another version of %s; recomputing it", name, other)
                artifact, fresh = None, True
            if artifact is None:
                for needed in self.stages[name].needs:
                    self.ensure(needed)
                artifact, reused = self.store.make(recipe, partial(self._make, name), fresh)
                self.made_afresh.add(recipe.key)
            self._outcomes[name] = StageOutcome(name, recipe.key, artifact, reused)
        artifact = self._outcomes[name].artifact
        if artifact is None:
            raise RuntimeError(f"stage {name} left no artifact")
        return artifact

    def opened(self, name: str) -> Any:
        """The result of a stage, opened for use; it is made if it is missing."""
        if name not in self.results:
            artifact = self.ensure(name)
            try:
                self.results[name] = self.stages[name].open(artifact)
            except (EOFError, LookupError, RuntimeError, TypeError, ValueError) as error:
                raise InputError(
                    f"{artifact.folder} is not a complete artifact of stage {name}: {error}",
                    allowed="artifacts that a run wrote",
                    fix="remove that folder, or run again with --fresh",
                ) from error
        return self.results[name]

    def outcome(self, name: str) -> StageOutcome:
        """What was done about a stage; the artifact of one that was not needed counts as used."""
        if name in self._outcomes:
            return self._outcomes[name]
        recipe = self.recipe(name)
        self.store.mark_used(recipe)
        artifact = self.store.find(recipe)
        return StageOutcome(name, recipe.key, artifact, artifact is not None)

    def _changed_since(self, artifact: Artifact) -> str | None:
        """The stage, of those this run has used, whose files differ from those the artifact was made from."""
        made = artifact.manifest["made"]
        used = {outcome.key: outcome.artifact for outcome in self._outcomes.values()}
        for name, files in made.get("from_files", {}).items():
            now = used.get(made["from"][name])
            if now and files != _content(now):
                return str(name)
        return None

    def _make(self, name: str, draft: Draft) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run one stage, and return its facts and how it was made."""
        stage, meter = self.stages[name], machine.Meter()
        inputs = {needed: self.opened(needed) for needed in stage.needs}
        engine, alike = partial(self._engine_of, stage), partial(self._find_alike, self.recipe(name))
        context = Context(self.progress, meter, engine, alike, self.store, self.fresh)
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

    def _find_alike(self, recipe: Recipe, besides: str) -> list[Artifact]:
        return [] if self.fresh else self.store.find_alike(recipe, besides)

    def _engine_of(self, stage: Stage) -> Engine:
        if stage.open_engine is None:
            raise RuntimeError(f"stage {stage.name} has no engine")
        return self.engines.of(stage.open_engine, self.store)


def _content(artifact: Artifact) -> str:
    """A hash of the content of an artifact's files."""
    return hashing.hash_json(artifact.manifest["files"])
