"""benchmarco: how well does an embedding model retrieve, and can you trust the number?

from pipeline import load_config, run_benchmark, evaluate

result = run_benchmark(load_config("mine.yaml"))
result.metrics["metrics"]["ndcg@10"]

docs/api.md has the rest.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import (
        evaluate,
        evaluate_model,
        fuse,
        reproduce,
        run_benchmark,
        run_benchmarks,
        verify,
    )
    from pipeline.comparison.side_by_side import compare
    from pipeline.config.files import load_config, load_configs
    from pipeline.core.errors import InputError
    from pipeline.formats.given import write_collection
    from pipeline.metrics.names import register_measure

    __version__: str

__all__ = [
    "InputError",
    "__version__",
    "compare",
    "evaluate",
    "evaluate_model",
    "fuse",
    "load_config",
    "load_configs",
    "register_measure",
    "reproduce",
    "run_benchmark",
    "run_benchmarks",
    "verify",
    "write_collection",
]

_HOMES = {
    "InputError": "core.errors",
    "compare": "comparison.side_by_side",
    "evaluate": "api",
    "evaluate_model": "api",
    "fuse": "api",
    "load_config": "config.files",
    "load_configs": "config.files",
    "register_measure": "metrics.names",
    "reproduce": "api",
    "run_benchmark": "api",
    "run_benchmarks": "api",
    "verify": "api",
    "write_collection": "formats.given",
}

for _name in ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ.setdefault(_name, "1")  # nothing is sent anywhere but the downloads a config asks for


def __getattr__(name: str) -> Any:
    """Import what is public when it is first used: `import pipeline` stays light."""
    if name in _HOMES:
        return getattr(import_module(f"pipeline.{_HOMES[name]}"), name)
    if name == "__version__":
        return import_module("importlib.metadata").version("benchmarco")
    raise AttributeError(f"module 'pipeline' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What is public, for who completes names."""
    return sorted(__all__)
