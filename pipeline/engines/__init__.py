"""Engines: where the parts of a stage's work are done, in this process (`local`) or on a Ray cluster (`ray`).

An engine runs one job on each of many parts. A job is a function of arrays: the caller reads its inputs and
gets its outputs, and alone reads and writes the cache. So a worker needs no access to the caller's disk, and
one that dies leaves nothing that looks finished.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pipeline import encoders
from pipeline.config import EncoderSettings, EngineConfig, ModelSettings
from pipeline.core.errors import InputError
from pipeline.core.extras import require
from pipeline.encoders import Model, Precomputed, Source
from pipeline.encoders.pairs import Reranker, ServedReranker
from pipeline.engines.engine import Done, Engine, Job, Part
from pipeline.engines.local import LocalEngine
from pipeline.engines.server import ServerEngine
from pipeline.models.ready import Ready
from pipeline.storage.store import Store

__all__ = [
    "Done", "Engine", "Job", "LocalEngine", "Part", "ServerEngine", "check", "open_engine", "open_with",
]  # fmt: skip


def open_engine(config: EngineConfig, model: ModelSettings, source: Source, store: Store) -> Engine:
    """The engine that a config names, whose workers encode with a model if it is run; see `open_with`."""
    if isinstance(source, Model) and isinstance(model, EncoderSettings):
        return open_with(config, partial(encoders.ready, model, source), source.device, store)
    return open_with(config, None, "cpu", store)


def open_with(
    config: EngineConfig, ready: Callable[[Store], Ready] | None, device: str, store: Store
) -> Engine:
    """The engine that a config names; arguments and errors as of `pipeline.engines.ray.RayEngine`."""
    if config.kind == "local":
        return LocalEngine((lambda: ready(store).load()) if ready else None)
    from pipeline.engines.ray import RayEngine

    return RayEngine(config, ready, device, store)


def check(config: EngineConfig, source: Source | Reranker | ServedReranker, section: str = "model") -> None:
    """Refuse an engine that cannot start on this machine, without starting anything.

    `source` is what the `section` of the config names.
    """
    if config.kind == "local":
        return
    require("ray", "ray", "engine.kind: ray")
    device = "cpu" if isinstance(source, Precomputed) else source.device
    if device not in ("cpu", "cuda:0"):
        raise InputError(
            f"{section}.device: {device} with engine.kind: ray, which gives each worker a GPU of its own",
            allowed="auto, cpu, cuda",
            fix=f"set {section}.device to cuda",
        )
