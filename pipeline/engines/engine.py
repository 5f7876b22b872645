"""What an engine is: it runs a job, a function of arrays, on each of many parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.core.progress import Bar
from pipeline.encoders import Encoder


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


class Job(Protocol):
    """A computation on each part: a picklable value that holds settings, and the arrays all parts share."""

    def run(self, inputs: Any, encoder: Encoder | None, bar: Bar) -> Any:
        """Compute the outputs of one part.

        Args:
            inputs: What the part's `read` gave; arrays in it may be read-only.
            encoder: The worker's model; None before `Engine.load`.
            bar: Advanced as rows are done.
        """
        ...


@dataclass(frozen=True)
class Done:
    """A finished part.

    Attributes:
        part: The part.
        outputs: What the job returned.
        node: The machine that did it.
    """

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
        """Load the model on at least one worker, which comes before texts are encoded and is not timed.

        Args:
            parts: How many parts there will be: no more workers are started.
        """
        ...

    def each(self, job: Job, parts: Sequence[Part], bar: Bar) -> Iterator[Done]:
        """Run a job on each part; every part is yielded once, in any order.

        Args:
            job: The job.
            parts: The parts.
            bar: Advanced as the job advances its own.
        """
        ...

    def close(self) -> None:
        """Stop the workers."""
        ...
