"""A stage of a benchmark as one value: its name, what shapes its result, what it needs and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.core.machine import Meter
from pipeline.core.progress import Progress
from pipeline.engines import Engine
from pipeline.storage.artifacts import Artifact, Draft, Recipe

Keys = Mapping[str, str]
"""The key of each stage of a plan, by its name there; computed when it is looked up."""


Inputs = Mapping[str, Any]
"""What the stages that a stage needs have left, opened by their own `Stage.open`; by name."""
Facts = dict[str, Any]
"""JSON that an artifact's manifest records about its content."""


@dataclass
class Context:
    """What a stage may use while it makes its result, besides its inputs.

    Attributes:
        progress: Opens progress bars.
        meter: Measures the stage; it is told what counts as work and how many items there were.
        open_engine: Gives the engine of the run.
    """

    progress: Progress
    meter: Meter
    open_engine: Callable[[], Engine]

    @property
    def engine(self) -> Engine:
        """Where the parts of the stage's work are done; opened by the first stage of a run that asks."""
        return self.open_engine()


@dataclass(frozen=True)
class Stage:
    """One step of a benchmark.

    A stage never asks for another stage's result: the runner hands `make` all that `needs` names. So a stage
    can be understood, tested and keyed by itself.

    Attributes:
        name: Names the folder that its artifacts are kept in.
        schema: Raised when the code starts to write other bytes for the same ingredients.
        needs: Names, in the plan, of the stages whose results `make` reads.
        ingredients: JSON of all that shapes the result: settings, and keys of other stages.
        make: Writes the result's files into the draft; returns facts about them.
        open: Opens a finished artifact for the stages that need it.
        exact_bytes: Whether files may be relied on to hold the same content whenever the key is the same.
            If not (threads, a GPU or a batch size can change the last bits of vectors), an artifact that was
            made from other files than there are now is made again.
    """

    name: str
    schema: int
    needs: tuple[str, ...]
    ingredients: Callable[[Keys], dict[str, Any]]
    make: Callable[[Inputs, Draft, Context], Facts]
    open: Callable[[Artifact], Any]
    exact_bytes: bool = False

    def recipe(self, keys: Keys) -> Recipe:
        """What shapes the stage's artifact, from the keys of the plan's other stages."""
        return Recipe(self.name, {"schema": self.schema, **self.ingredients(keys)})


Plan = dict[str, Stage]
"""A benchmark's stages by their role, in the order they are reported in.

Stages of two roles may have one name, and so share artifacts: the search of an index, and the exact search
that it is compared with."""
