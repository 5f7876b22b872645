"""Interface of engines, which run a job, a function of arrays, on each of many parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.core.progress import Bar

Job = Callable[[Any, Any, Bar], Any]
"""Computes the outputs of one part from its inputs, in which arrays may be read-only.

A job is also given the worker's model, an `Encoder` or a `Scorer`, None before `Engine.load`, and a bar to
advance as rows are done. It can be pickled, and holds the settings and the arrays that all parts share.
"""


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows that a job is run on at once.

    Attributes:
        start: The first row.
        stop: The row after the last.
        read: Gives the job's inputs. It is called in this process, when a worker will soon be free.
    """

    start: int
    stop: int
    read: Callable[[], Any]


@dataclass(frozen=True)
class Done:
    """A finished part, what the job returned, and the name of the machine that ran it."""

    part: Part
    outputs: Any
    node: str


class Engine(Protocol):
    """Runs jobs.

    Attributes:
        kind: The engine's name in the config.
        workers: How many parts are done at once.
    """

    kind: str
    workers: int

    def load(self, parts: int) -> None:
        """Load the model on at least one worker, and at most one for each of `parts` parts.

        It comes before texts are encoded, so that loading is not timed.
        """
        ...

    def start(self, parts: int) -> None:
        """Start workers, at most one for each of `parts` parts, and wait for the first; without the model.

        It comes before other jobs, so that the start of processes is not timed.
        """
        ...

    def each(self, job: Job, parts: Iterable[Part], bar: Bar) -> Iterator[Done]:
        """Run a job on each part, and advance `bar`; every part is yielded once, in any order.

        Parts are taken from `parts` when workers will soon be free: their size may follow the speed so far.
        """
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...
