"""Engines: where the parts of a stage's work are done, in this process (`local`) or on a Ray cluster (`ray`).

An engine runs one job on each of many parts. A job is a function of arrays: the caller reads its inputs and
gets its outputs, and alone reads and writes the cache. So a worker needs no access to the caller's disk, and
one that dies leaves nothing that looks finished.
"""

from __future__ import annotations

import importlib.util
from functools import partial

from pipeline import encoders
from pipeline.config import EncoderSettings, EngineConfig, ModelSettings
from pipeline.core.errors import InputError
from pipeline.encoders import Model, Source
from pipeline.engines.engine import Done, Engine, Job, Part
from pipeline.engines.local import LocalEngine
from pipeline.storage.store import Store

__all__ = ["Done", "Engine", "Job", "LocalEngine", "Part", "check", "open_engine"]


def open_engine(config: EngineConfig, model: ModelSettings, source: Source, store: Store) -> Engine:
    """The engine that a config names; arguments and errors as of `pipeline.engines.ray.RayEngine`."""
    if config.kind == "local":
        if isinstance(source, Model) and isinstance(model, EncoderSettings):
            return LocalEngine(partial(encoders.open_encoder, model, source, store))
        return LocalEngine()
    from pipeline.engines.ray import RayEngine

    return RayEngine(config, model, source, store)


def check(config: EngineConfig, source: Source) -> None:
    """Refuse an engine that cannot start on this machine, without starting anything."""
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
