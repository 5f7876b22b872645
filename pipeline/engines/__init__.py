"""Where do shards run? In this process (`local`), or on the workers of a Ray cluster (`ray`).

An engine does one job to each of many parts. A job is computed from what lies in the artifact store, and
what it makes of a part is one file in a folder that the caller gives: so results never pass through the
caller's memory, and a worker that dies leaves nothing that looks finished.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pipeline.config import EngineConfig, ModelSettings
from pipeline.core.errors import InputError
from pipeline.core.progress import Bar
from pipeline.encoders import Encoder, Model, Source
from pipeline.storage.store import Store

Part = tuple[int, int]
"""What a job is done to at once: rows [start, stop) of whatever the job is about."""


class Job(Protocol):
    """What is done to each part. It is sent with each, so it names files instead of holding arrays.

    A dataclass: what it reads are its fields that are an `Artifact`.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def do(self, encoder: Encoder, part: Part, path: Path, bar: Bar) -> Any:
        """Write the part's file; small facts about it.

        Args:
            encoder: The worker's own, loaded when first used.
            part: Which rows.
            path: The file to write.
            bar: Told of every row done.
        """
        ...


@dataclass(frozen=True)
class Piece:
    """What became of one part.

    Attributes:
        part: Which.
        path: The file that the job wrote.
        entry: The file's size and checksum.
        done: What the job told its bar of.
        facts: The job's own.
        node: Where it was done, as the engine names its machines.
    """

    part: Part
    path: Path
    entry: dict[str, Any]
    done: int
    facts: Any
    node: str


class Engine(Protocol):
    """Runs jobs.

    Attributes:
        kind: As the config names it.
        workers: How many parts are done at once.
    """

    kind: str
    workers: int

    def load(self, parts: int) -> None:
        """Have a worker with the model loaded, so that work alone can be timed.

        Args:
            parts: How many there will be to do.
        """
        ...

    def each(self, job: Job, parts: Sequence[Part], folder: Path, bar: Bar) -> Iterator[Piece]:
        """Do a job to each part; pieces come as they are done, each part's exactly once.

        Args:
            job: What to do.
            parts: What to do it to.
            folder: Where the pieces' files go; removing them is up to the caller.
            bar: Told of what is done, as the job tells it.
        """
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


def open_local(model: ModelSettings, source: Source, store: Store) -> Engine:
    """This process as an engine; arguments as of `open_engine`."""
    from pipeline.engines.local import LocalEngine

    return LocalEngine(model, source, store)


def open_engine(config: EngineConfig, model: ModelSettings, source: Source, store: Store) -> Engine:
    """The engine that a config asks for.

    Args:
        config: The engine section.
        model: The model section.
        source: What the model resolved to.
        store: Where workers keep what they prepare of a model.

    Raises:
        InputError: There is no such cluster, or it has less than is asked for.
    """
    if config.kind == "local":
        return open_local(model, source, store)
    from pipeline.engines.ray import RayEngine

    return RayEngine(config, model, source, store)


def check(config: EngineConfig, source: Source) -> None:
    """Refuse an engine that cannot start here, starting nothing.

    Raises:
        InputError: Ray is not installed, or does not give the model's device; or `engine.store` cannot be.
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
    if config.store is not None:
        from pipeline.engines.exchange import Exchange

        Exchange(config.store, "")
        if isinstance(source, Model) and source.precision == "int8":
            raise InputError(
                "model.precision: int8 with engine.store: each node would calibrate a model of its own",
                allowed="fp32, fp16, bf16; or a cache that every node sees",
                fix="set engine.store to null, or change model.precision",
            )
