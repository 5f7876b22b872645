"""Jobs, which are functions of arrays, and what runs a job on each of many parts: an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pipeline.core.display import Bar

Content: TypeAlias = Any
"""A job's inputs or outputs, or the model that it uses: of whatever type the job has."""
Job = Callable[[Iterator[Content], Content, Bar], Iterator[Content]]
"""Computes the outputs of parts from their inputs, in their order; arrays of the inputs may be read-only.

A job is also given the worker's model, an `Encoder` or a `Scorer`, None before `Engine.load`, and a bar to
advance as rows are done. It can be pickled, and holds the settings and the arrays that all parts share.
"""


@dataclass(frozen=True)
class PartJob:
    """A job that computes each part by itself, without a model."""

    function: Callable[[Content, Bar], Content]

    def __call__(self, inputs: Iterator[Content], model: Content, bar: Bar) -> Iterator[Content]:
        """The outputs of each part; see `Job`."""
        return (self.function(each, bar) for each in inputs)


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows that a job is run on at once."""

    start: int
    stop: int
    # Gives the job's inputs. It is called in this process, when a worker will soon be free.
    read: Callable[[], Content]


@dataclass(frozen=True)
class PartResult:
    """A finished part, what the job returned, and the name of the machine that ran it."""

    part: Part
    outputs: Content
    node: str


class Engine(Protocol):
    """Runs jobs."""

    kind: str  # the engine's name in the config
    workers: int  # how many parts are done at once

    def load(self, parts: int) -> None:
        """Load the model on at least one worker, and at most one for each of `parts` parts.

        It comes before texts are encoded, so that loading is not timed.
        """

    def start(self, parts: int) -> None:
        """Start workers, at most one for each of `parts` parts, and wait for the first; without the model.

        It comes before other jobs, so that the start of processes is not timed.
        """

    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[PartResult]:
        """Run a job on each part, and advance `bar`; every part is yielded once, in any order.

        Parts are taken from `parts` when workers will soon be free: their size may follow the speed so far.
        """

    def close(self) -> None:
        """Stop the workers."""
