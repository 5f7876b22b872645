"""benchmarco: how well does an embedding model retrieve, and can you trust the number?

from pipeline import load_config, run_benchmark, evaluate

result = run_benchmark(load_config("configs/quickstart.yaml"))
result.metrics["metrics"]["ndcg@10"]
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import evaluate, run_benchmark
    from pipeline.config import load_config

__all__ = ["evaluate", "load_config", "run_benchmark"]

for _name in ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ.setdefault(_name, "1")  # nothing is sent anywhere but the downloads a config asks for


def __getattr__(name: str) -> Any:
    """Import the public functions when they are first used: `import pipeline` stays light."""
    if name == "load_config":
        from pipeline.config import load_config

        return load_config
    if name in __all__:
        from pipeline import api

        return getattr(api, name)
    raise AttributeError(f"module 'pipeline' has no attribute '{name}'")
