"""benchmarco: how well does an embedding model retrieve, and can you trust the number?

from pipeline import load_config, run_benchmark, evaluate

result = run_benchmark(load_config("mine.yaml"))
result.metrics["ndcg@10"]

docs/api.md has the rest.
"""

import os

import lazy_loader

from pipeline.core import plugins as _plugins
from pipeline.studies.table import all_studies as _all_studies

for _name in ("HF_HUB_DISABLE_TELEMETRY", "DISABLE_TELEMETRY", "DO_NOT_TRACK"):
    os.environ.setdefault(_name, "1")  # nothing is sent anywhere but the downloads a config asks for

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # so that this import stays light

_plugins.SECTION_SOURCES.append(_all_studies)
