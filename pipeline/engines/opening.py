"""Which engine a config asks for, and whether it can start here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.config import EngineConfig
from pipeline.core import machine
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.encoders.base import ModelSource
from pipeline.encoders.opener import Opener
from pipeline.engines.engine import Engine, LocalEngine, ServerEngine
from pipeline.storage.store import Store


def open_with(config: EngineConfig | None, source: ModelSource | None, store: Store) -> Engine:
    """The engine that a config names, whose workers load the model of `source` if it is a local one.

    Without a source no model is loaded; without a config the server of `source` is asked. What a backend
    converts is in `store`.

    Raises:
        InputError: As of `pipeline.engines.ray.RayEngine`.
    """
    if source is None:
        return LocalEngine()
    if config is None:
        return ServerEngine(source.connect)
    opener = source if isinstance(source, Opener) else None
    if config.kind == "ray":
        from pipeline.engines.ray import RayEngine

        return RayEngine(config, opener, store)
    if opener is None:
        return LocalEngine()
    devices = devices_of(config, opener)
    if len(devices) == 1:
        placed = replace(opener, model=replace(opener.model, device=devices[0]))
        return LocalEngine(lambda: placed.open(store))
    from pipeline.engines.processes import ProcessEngine

    return ProcessEngine(devices, opener, store)


def devices_of(config: EngineConfig, opener: Opener) -> list[str]:
    """What each process of the engine `local` computes on, such as `cuda:0` and `cuda:1`, or `cpu` twice."""
    if config.devices:
        return config.devices
    if not opener.device.startswith("cuda"):
        return [opener.device] * (config.workers or 1)
    if str(opener.settings.device).startswith("cuda:"):  # one GPU is named: no other may be used
        return [opener.device]
    return [f"cuda:{number}" for number in range(config.workers or len(machine.gpus()) or 1)]


def check(config: EngineConfig, source: ModelSource, section: str = "model") -> None:
    """Refuse an engine that cannot start on this machine, without starting anything.

    `section` is that of the config which names the source. The config refuses what fits no machine.
    """
    device = source.device
    if config.kind == "ray":
        require("ray", "ray", "engine.kind: ray")
        return
    if not isinstance(source, Opener) or not (config.workers or config.devices):
        return
    setting = f"engine.workers: {config.workers}" if config.workers else f"engine.devices: {config.devices}"
    kinds = {name.partition(":")[0] for name in config.devices or [device]}
    if kinds != {device.partition(":")[0]}:
        raise InputError(
            f"{setting}, and {section}.device is {device}",
            allowed="the same kind of device for both",
            fix=f"set {section}.device to {kinds.pop()}",
        )
    check_gpus(setting, devices_of(config, source), f"{section}.device")


def check_gpus(setting: str, devices: Sequence[str], device: str) -> None:
    """Refuse GPUs, such as `cuda:1`, that this machine does not have, without importing torch.

    `setting` asks for them, and `device` is the setting that could name the CPU.
    """
    numbers = [int(name.partition(":")[2] or 0) for name in devices if name.startswith("cuda")]
    if numbers and max(numbers) >= (count := len(machine.gpus())):
        raise InputError(
            f"{setting}, and this machine has {counted(count, 'GPU')}",
            allowed=", ".join(f"cuda:{number}" for number in range(count)) or "cpu",
            fix="name GPUs that it has" if count else f"set {device} to cpu",
        )
