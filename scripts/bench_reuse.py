#!/usr/bin/env python
"""The time of a run that finds everything in the cache.

    .venv/bin/python scripts/bench_reuse.py

Prints the wall time of a second run of a benchmark as a multiple of the wall time of
`python -c "import numpy, faiss, pydantic, yaml"`, each the median of several, in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = [sys.executable, "-c", "import numpy, faiss, pydantic, yaml"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "quickstart.yaml")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = [sys.executable, "-m", "pipeline", "run", str(arguments.config.resolve())]
        run += ["--set", f"cache={folder}/indexes", "--output", f"{folder}/results"]
        timed(run)
        pairs = [(timed(run), timed(IMPORTS)) for _ in range(arguments.rounds)]
    second, imports = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"second run {second:.3f} s, imports {imports:.3f} s: {ratio:.2f} times")


def timed(command: list[str]) -> float:
    started = time.perf_counter()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=ROOT)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
