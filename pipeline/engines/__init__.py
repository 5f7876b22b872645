"""Engines: where the parts of a stage's work are done, in this process (`local`) or on a Ray cluster (`ray`).

An engine runs one job on each of many parts. A job is a function of arrays: the caller reads its inputs and
gets its outputs, and alone reads and writes the cache. So a worker needs no access to the caller's disk, and
one that dies leaves nothing that looks finished.
"""

from __future__ import annotations

from pipeline.config import EngineConfig
from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.encoders.base import ModelSource
from pipeline.encoders.opener import Opener
from pipeline.engines.cluster import share_out
from pipeline.engines.engine import Done, Engine, Job, LocalEngine, Part, PartJob, ServerEngine
from pipeline.engines.worker import ShippedFiles
from pipeline.storage.hashing import hash_json
from pipeline.storage.store import Store

__all__ = [
    "Done", "Engine", "Job", "LocalEngine", "Part", "PartJob", "ServerEngine", "ShippedFiles", "check",
    "key_of", "open_with", "share_out",
]  # fmt: skip


def open_with(config: EngineConfig, source: ModelSource, store: Store) -> Engine:
    """The engine that a config names, whose workers load the model of `source` if it is a local one.

    What a backend converts is in `store`; errors are those of `pipeline.engines.ray.RayEngine`.
    """
    opener = source if isinstance(source, Opener) else None
    if config.kind == "local":
        return LocalEngine((lambda: opener.open(store)) if opener else None)
    from pipeline.engines.ray import RayEngine

    return RayEngine(config, opener, store)


def key_of(config: EngineConfig, source: ModelSource) -> str | None:
    """What benchmarks have in common that can share the engine of a source; None if none can."""
    loaded = source.shared_key()
    return hash_json({"engine": config.model_dump(mode="json"), "loaded": loaded}) if loaded else None


def check(config: EngineConfig, device: str, section: str = "model") -> None:
    """Refuse an engine that cannot start on this machine, without starting anything.

    `device` is what the model of a `section` of the config computes on.
    """
    if config.kind == "local":
        return
    require("ray", "ray", "engine.kind: ray")
    if device not in ("cpu", "cuda:0"):
        raise InputError(
            f"{section}.device: {device} with engine.kind: ray, which gives each worker a GPU of its own",
            allowed="auto, cpu, cuda",
            fix=f"set {section}.device to cuda",
        )
