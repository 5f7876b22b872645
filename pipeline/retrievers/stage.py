"""A stage of a benchmark as one value: its name, what shapes its result, what it needs and how it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pipeline.core.display import Bar, Progress
from pipeline.core.machine import Meter
from pipeline.core.records import Facts as Facts
from pipeline.engines.base import Engine, Job, Part, PartResult
from pipeline.engines.engine import EngineFactory
from pipeline.storage.artifacts import Artifact, Draft, Recipe
from pipeline.storage.store import Store

Inputs = Mapping[str, Any]
"""By name the results of the stages that a stage needs, opened by their own `Stage.open`."""


@dataclass
class Context:
    """What a stage may use besides its inputs."""

    recipe: Recipe
    progress: Progress
    meter: Meter
    store: Store  # the cache, for what is kept beside the stages' results and outlives them
    # Gives the engine that runs parts of the work; it is opened when a stage of the run first uses it.
    open_engine: Callable[[], Engine]
    fresh: bool = False  # whether nothing stored is used

    def counted_parts(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        """The parts as the engine finishes them; the meter notes how many parts each machine did."""
        engine, nodes = self.open_engine(), Counter[str]()
        for result in engine.each(job, parts, bar):
            nodes[result.node] += 1
            self.meter.notes["engine"] = {
                "kind": engine.kind,
                "workers": engine.workers,
                "parts": dict(nodes),
            }
            yield result


class StoredSize(NamedTuple):
    """Bytes of a stage's vectors or index."""

    disk: int
    memory: int = 0  # held while it is searched
    smaller: str = ""  # which setting needs less memory; "" if none is known
    passage: float | None = None  # of each passage in an index; None of other stages


@dataclass(frozen=True)
class Stage:
    """One step of a benchmark."""

    name: str  # names the folder that its artifacts are kept in
    schema: int  # raised when the code starts to write other bytes for the same recipe
    needs: tuple[str, ...]  # roles, in the plan, of the stages whose results `make` reads
    # Roles of the stages whose keys are in its own key, by the name of the ingredient.
    made_of: Mapping[str, str]
    settings: Facts  # JSON of everything else that shapes the result
    # Writes the result's files into the draft; returns facts about them.
    make: Callable[[Inputs, Draft, Context], Facts]
    open: Callable[[Artifact], object]  # opens a finished artifact for the stages that need it
    # Whether the same key always gives the same files. If not (threads, a GPU or a batch size can change the
    # last bits of vectors), what was made from other files than today's is made again.
    exact_bytes: bool = False
    # Opens the engine that runs parts of the work; None where nothing is divided.
    engine: EngineFactory | None = None
    # What its time and its bytes are in proportion to. The time of `product` is so to passages times queries,
    # and its bytes to queries.
    grows_with: Literal["passages", "queries", "product"] = "passages"

    def with_prefix(self, prefix: str, shared: Collection[str]) -> Stage:
        """The same stage in a plan where the roles of its own plan begin with `prefix`, but the shared ones.

        Its recipe is the same, so its artifact is shared with benchmarks that run its own plan.
        """
        roles = {role: role if role in shared else prefix + role for role in self.needs}

        def make(inputs: Inputs, draft: Draft, context: Context) -> Facts:
            return self.make({role: inputs[name] for role, name in roles.items()}, draft, context)

        made_of = {name: role if role in shared else prefix + role for name, role in self.made_of.items()}
        return replace(self, needs=tuple(roles.values()), made_of=made_of, make=make)

    def recipe(self, keys: Mapping[str, str]) -> Recipe:
        """What shapes the stage's artifact; `keys` are those of the stages before it, by role."""
        ingredients = {name: keys[role] for name, role in self.made_of.items()}
        return Recipe(self.name, {"schema": self.schema, **ingredients, **self.settings})


Plan = dict[str, Stage]
"""A benchmark's stages by their role, each after those that it needs or is made of.

Stages of two roles may have one name, and so share artifacts, as those of two retrievers that are joined."""
