"""Engines: where the parts of a stage's work are done, in this process (`local`) or on a Ray cluster (`ray`).

An engine runs one job on each of many parts. A job is a function of arrays: its inputs are read by the
caller, and what it returns goes back to the caller, who alone reads and writes the cache. So a worker needs
nothing of the caller's disk, and one that dies leaves nothing that looks finished.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pipeline.config import EngineConfig, ModelConfig
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.encoders import Encoder, Lexical, Model, Source
from pipeline.storage.store import Store


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


def open_local(model: ModelConfig, source: Source, store: Store) -> Engine:
    """This process as an engine; arguments as of `open_engine`."""
    from pipeline.engines.local import LocalEngine

    return LocalEngine(model, source, store)


def open_engine(config: EngineConfig, model: ModelConfig, source: Source, store: Store) -> Engine:
    """The engine that a config names.

    Args:
        config: The engine section.
        model: The model section.
        source: What the model section resolved to.
        store: Where a backend keeps what it prepares of a model.

    Raises:
        InputError: There is no such cluster, or it has fewer processors than the config wants.
    """
    if config.kind == "local" or isinstance(source, Lexical):  # words are cut and searched in one process
        return open_local(model, source, store)
    from pipeline.engines.ray import RayEngine

    return RayEngine(config, model, source, store)


def check(config: EngineConfig, source: Source) -> None:
    """Refuse an engine that cannot start on this machine, without starting anything.

    Raises:
        InputError: Ray is not installed, or does not offer the model's device.
    """
    if config.kind == "local":
        return
    if importlib.util.find_spec("ray") is None:
        raise InputError(
            "engine.kind: ray, which is not installed here",
            allowed="local, or ray where the extra 'ray' is installed",
            fix="run scripts/setup ray, or pip install 'benchmarco[ray]'",
        )
    device = source.device if isinstance(source, Model) else "cpu"
    if device not in ("cpu", "cuda:0"):
        raise InputError(
            f"model.device: {device} with engine.kind: ray, which gives each worker a GPU of its own",
            allowed="auto, cpu, cuda",
            fix="set model.device to cuda",
        )
