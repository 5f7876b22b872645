"""What does a finished benchmark leave for its user? The result folder `OUTPUT/NAME/`.

`metrics.json`, `per_query.csv`, `run.trec`, and last `manifest.json`: if it is there, so is the rest.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import disk, locks, machine
from pipeline.artifacts import MANIFEST, Artifact
from pipeline.benchmark import Benchmark, Stage
from pipeline.errors import InputError

log = logging.getLogger(__name__)


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
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = locks.hold(folder, wait=False)
    if lock is None:
        log.warning("waiting: another run is writing %s", folder)
        lock = locks.hold(folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    disk.write_whole(folder / "metrics.json", _json(metrics))
    _copy(scored.path("per_query.csv"), folder / "per_query.csv")
    _copy(search.path("run.trec"), folder / "run.trec")
    disk.write_whole(folder / MANIFEST, _json(manifest))
    if lock:
        lock.release()
    return Result(folder, metrics)


def check_folder(folder: Path) -> None:
    """Refuse a result folder that cannot be written, before anything is computed for it.

    Raises:
        InputError: It is a link, which may lead anywhere, or a file is in the way, or it is protected.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}"
    elif not there.is_dir():
        what = "is no folder" if there == folder else f"cannot be made: {there} is no folder"
    elif not os.access(there, os.W_OK):
        what = f"cannot be written: {there} is protected, or its disk read-only"
    else:
        return
    raise InputError(
        f"result folder {folder}: {what}",
        allowed="a folder that can be written, or a name that is free",
        fix="name another with --output DIR, or change the config's name",
    )


def _artifact(stage: Stage) -> Artifact:
    if stage.artifact is None:
        raise RuntimeError(f"stage {stage.stage} left no artifact")
    return stage.artifact


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(target.name + disk.TEMPORARY)
    try:
        temporary.unlink(missing_ok=True)  # never written through: it may be a link to somewhere else
        with disk.refusals_named(temporary):
            shutil.copyfile(source, temporary)
            disk.put_in_place(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
