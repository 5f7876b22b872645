"""What does a finished benchmark leave for its user? The result folder `OUTPUT/NAME/`.

`metrics.json`, `per_query.csv`, `run.trec`, and last `manifest.json`: if it is there, so is the rest.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import machine
from pipeline.artifacts import MANIFEST, Artifact, write_whole
from pipeline.benchmark import Benchmark, Stage


@dataclass(frozen=True)
class Result:
    """A finished benchmark.

    Attributes:
        folder: Where its files are.
        metrics: The content of `metrics.json`.
    """

    folder: Path
    metrics: dict[str, Any]


def write_result(benchmark: Benchmark, stages: list[Stage], folder: Path, seconds: float) -> Result:
    """Write the result folder, over an earlier one of the same name.

    Args:
        benchmark: What was run.
        stages: What became of its stages.
        folder: Made if it is not there.
        seconds: Wall time of the run.
    """
    by_name = {stage.stage: stage for stage in stages}
    search, scored = _artifact(by_name["search"]), _artifact(by_name["evaluate"])
    metrics = {
        "name": benchmark.config.name,
        **{key: scored.facts[key] for key in ("queries", "passages", "metrics", "intervals")},
        "stages": [stage.row() for stage in stages],
    }
    manifest = {
        "config": benchmark.config.model_dump(mode="json"),
        "recipes": {name: {"key": r.key, **r.plain} for name, r in benchmark.recipes.items()},
        "versions": machine.versions(),
        "hardware": machine.hardware(),
        "wall_seconds": round(seconds, 3),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    write_whole(folder / "metrics.json", _json(metrics))
    _copy(scored.path("per_query.csv"), folder / "per_query.csv")
    _copy(search.path("run.trec"), folder / "run.trec")
    write_whole(folder / MANIFEST, _json(manifest))
    return Result(folder, metrics)


def _artifact(stage: Stage) -> Artifact:
    if stage.artifact is None:
        raise RuntimeError(f"stage {stage.stage} left no artifact")
    return stage.artifact


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(target.name + ".tmp")
    shutil.copyfile(source, temporary)
    os.replace(temporary, target)
