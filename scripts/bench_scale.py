#!/usr/bin/env python
"""Encoding by several processes, or on Ray, against the same work in one process.

    .venv/bin/python scripts/bench_scale.py --passages 4000 --rounds 3
    .venv/bin/python scripts/bench_scale.py --engines local,processes --backend native --passages 3000
    .venv/bin/python scripts/bench_scale.py --devices cuda:0 cuda:0,cuda:0 --backend flag --precision fp16 \
        --model FOLDER --data FOLDER --passages 131072 --shard-rows 4096

Every round runs the same benchmark with each engine in turn, from the converted model and the data on. A run
may use as many processors as it has workers, so that one worker stands against `local` on one processor, and
two workers, each with a thread, against `local` with two threads. Rates are of the stage's work alone; the
wall time holds all else, above all Ray's start. Medians over the rounds, and the range of the rates.

With `--devices`, each setup is a process for each of these devices; all of them have all processors, and
`x 1 worker` is beside the first setup. The digest is of run.trec: it must be the same in all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

assert sys.platform == "linux", "processors are shared out as Linux does it"

ROOT = Path(__file__).resolve().parent.parent
SLICE = ROOT.parent / "shared" / "data" / "msmarco-dl19"
KEPT = ("data", "openvino", "native")  # of the cache: what is not measured


@dataclass(frozen=True)
class Setup:
    """An engine, `local`, `processes` or `ray`, how many processors and workers it gets, and its devices."""

    engine: str
    processors: int
    devices: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in the table."""
        return ", ".join(self.devices) or f"{self.engine}, {self.processors} CPU"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="all-minilm-l6-v2", help="alias or folder")
    parser.add_argument("--passages", type=int, default=4000, help="kept of the collection")
    parser.add_argument("--queries", type=int, default=10, help="kept: all their judged passages are too")
    parser.add_argument("--shard-rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="local,ray", help="of local, processes and ray, with commas")
    parser.add_argument("--devices", nargs="+", help="setups of devices with commas, in place of --engines")
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--precision", help="default: that of the backend")
    parser.add_argument(
        "--data", type=Path, help="a collection in BEIR's layout; default: DL 2019, or the sample"
    )
    arguments = parser.parse_args()
    there = len(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= there]
    setups = [Setup(engine, count) for count in counts for engine in arguments.engines.split(",")]
    if arguments.devices:
        setups = [Setup("local", there, tuple(devices.split(","))) for devices in arguments.devices]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_config(folder / "c.yaml", arguments)
        run(folder, setups[0] if arguments.devices else Setup("local", there))
        rounds = [{setup: run(folder, setup) for setup in setups} for _ in range(arguments.rounds)]
    report(rounds)


def write_config(path: Path, arguments: argparse.Namespace) -> None:
    path_of_data = (arguments.data or SLICE).resolve()
    data = {"source": "beir", "path": str(path_of_data)} if path_of_data.is_dir() else {"source": "sample"}
    config = {
        "name": "scale",
        "data": {**data, "corpus": arguments.passages, "queries": arguments.queries},
        "model": {
            "backend": arguments.backend,
            "name": arguments.model,
            **({"precision": arguments.precision} if arguments.precision else {}),
            "shard_rows": arguments.shard_rows,
        },
        "search": {"top_k": 100},
        "evaluate": {"measures": ["ndcg@10"]},
    }
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML


def run(folder: Path, setup: Setup) -> dict[str, Any]:
    """One run in a process of its own, which leaves nothing but what the next may keep."""
    command = [sys.executable, "-m", "pipeline", "run", "c.yaml"]
    if setup.devices:
        command += ["--set", f"engine.devices=[{', '.join(setup.devices)}]"]
    elif setup.engine != "local":
        command += ["--set", f"engine.workers={setup.processors}"]
    if setup.engine == "ray":
        command += ["--set", "engine.kind=ray"]
    processors = sorted(os.sched_getaffinity(0))[: setup.processors]
    subprocess.run(
        command,
        check=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, processors),
    )
    for stage in (folder / "indexes").iterdir():
        if stage.name not in KEPT:
            shutil.rmtree(stage)
    result = folder / "results" / "scale"
    metrics = json.loads((result / "metrics.json").read_text(encoding="utf-8"))
    stages = {stage["stage"]: stage for stage in metrics["stages"]}
    return {
        "ndcg@10": metrics["metrics"]["ndcg@10"],
        "passages": metrics["passages"],
        "digest": hashlib.sha256((result / "run.trec").read_bytes()).hexdigest()[:12],
        "encode": stages["passages"]["items_per_second"],
        "search": stages["search"]["items_per_second"],
        "wall": json.loads((result / "manifest.json").read_text(encoding="utf-8"))["wall_seconds"],
    }


def _beside(setup: Setup) -> tuple[Setup, Setup]:
    """The setups that one is compared with: one process with its processors, and one worker of its engine."""
    return Setup("local", setup.processors), Setup(setup.engine, 1)


def report(rounds: list[dict[Setup, dict[str, Any]]]) -> None:
    any_run = next(iter(rounds[0].values()))
    print(f"{any_run['passages']:,} passages, {len(rounds)} rounds")
    columns = ("passages/s", "range", "x local", "x 1 worker", "queries/s", "wall s", "ndcg@10", "digest")
    print(f"{'engine':<24}" + "".join(f"{column:>14}" for column in columns))
    first = next(iter(rounds[0]))
    for setup in rounds[0]:
        rates = [measured[setup]["encode"] for measured in rounds]
        beside, alone = (
            statistics.median(measured[setup]["encode"] / measured[other]["encode"] for measured in rounds)
            for other in ((first, first) if first.devices else _beside(setup))
        )
        search, wall, quality = (
            statistics.median(measured[setup][name] for measured in rounds)
            for name in ("search", "wall", "ndcg@10")
        )
        spread = f"{min(rates):.0f} to {max(rates):.0f}"
        print(
            f"{setup.title:<24}{statistics.median(rates):>14.1f}"
            f"{spread:>14}{beside:>14.2f}{alone:>14.2f}{search:>14.0f}{wall:>14.1f}{quality:>14.4f}"
            f"{' '.join(sorted({measured[setup]['digest'] for measured in rounds})):>14}"
        )


if __name__ == "__main__":
    main()
