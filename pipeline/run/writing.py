"""The writing of a result folder, whole and by one run at a time."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.results.folder import FILES, METRICS, PER_QUERY, RUN, Result, read_record
from pipeline.results.records import Manifest
from pipeline.run.forecast import models_used
from pipeline.storage import locks, whole_files
from pipeline.storage.artifacts import MANIFEST

if TYPE_CHECKING:
    from pipeline.run.benchmark import Benchmark
    from pipeline.run.making import StageOutcome

SCORES = "evaluate"  # the stage whose key covers all that shaped a result

log = logging.getLogger(__name__)


def write_result(
    folder: Path, benchmark: Benchmark, outcomes: Sequence[StageOutcome], seconds: float
) -> Result:
    """Write the result folder; an earlier one whose scores were shaped otherwise is kept beside it.

    Args:
        folder: Made if it does not exist.
        benchmark: What was run.
        outcomes: What was done about each stage, in order; the ranking and `evaluate` have artifacts.
        seconds: Wall time of the run.
    """
    from pipeline.run.plan import REPORTED  # heavy, and not needed to read results

    artifacts = {outcome.stage: outcome.artifact for outcome in outcomes if outcome.artifact}
    ranking, evaluate = artifacts[benchmark.retriever.ranking], artifacts["evaluate"]
    scores = benchmark.opened(SCORES)
    settings = benchmark.settled.model_dump(mode="json")
    rows = [outcome.row.model_dump(mode="json", exclude_unset=True) for outcome in outcomes]
    metrics = {
        "name": benchmark.config.name,
        **{key: scores[key] for key in REPORTED},
        "models": models_used(benchmark),
        "stages": [row for row in rows if "/" not in row["stage"]],
    }
    metrics |= {key: value for key, value in scores.items() if key not in REPORTED}
    metrics |= benchmark.retriever.report(artifacts, scores, rows)
    recipes = benchmark.recipes.items()
    manifest = {
        "config": settings,
        "recipes": {name: {"key": recipe.key, **recipe.plain} for name, recipe in recipes},
        "models": [
            {"name": model.name, "settings": {name: used._asdict() for name, used in model.decided.items()}}
            for model in benchmark.retriever.models()
        ],
        "versions": machine.versions(),
        "hardware": machine.hardware(),
        "wall_seconds": round(seconds, 3),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    check_folder(folder)
    _write_files(folder, metrics, manifest, [evaluate.path(PER_QUERY), ranking.path(RUN)])
    return Result(folder, metrics)


def _write_files(
    folder: Path,
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
    copied: Sequence[Path],
) -> None:
    """Write the files, the manifest last, while no other run writes to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = locks.hold(folder, wait=False)
    if lock is None:
        log.warning("waiting: another run is writing %s", folder)
        lock = locks.hold(folder)
    _keep_other(folder, manifest["recipes"])
    (folder / MANIFEST).unlink(missing_ok=True)
    whole_files.write_whole(folder / METRICS, _json(metrics))
    for source in copied:
        with whole_files.replacing(folder / source.name) as temporary:
            shutil.copyfile(source, temporary)
    whole_files.write_whole(folder / MANIFEST, _json(manifest))
    if lock:
        lock.release()


def _keep_other(folder: Path, recipes: Mapping[str, Any]) -> None:
    """Keep a finished result that other settings or data led to: as `NAME~1`, or the next free number.

    Its files get a second name there before the new ones take their places, so none is ever absent.
    """
    try:
        found = read_record(folder, MANIFEST, Manifest).recipes
    except (InputError, OSError):
        return
    if found.get(SCORES, {}).get("key") == recipes[SCORES]["key"]:
        return
    kept = next(path for n in count(1) if not (path := folder.with_name(f"{folder.name}~{n}")).exists())
    kept.mkdir()
    for name in FILES:  # the manifest last: with it, the folder is complete
        if (folder / name).is_file():
            try:
                os.link(folder / name, kept / name)
            except OSError:  # a file system without links
                shutil.copy2(folder / name, kept / name)
    log.warning("%s held a result of other settings or data; that one is now %s", folder, kept)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def check_folder(folder: Path) -> None:
    """Refuse a result folder that cannot be written, before anything is computed for it.

    Raises:
        InputError: It is a link, which may lead anywhere, or a file is in the way, or it is protected, or its
            name is too long.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}"
    elif not existing.is_dir():
        what = "is not a folder" if existing == folder else f"cannot be made: {existing} is not a folder"
    elif any(len(os.fsencode(part)) > os.pathconf(existing, "PC_NAME_MAX") for part in folder.parts):
        what = "cannot be made: its name is too long"
    elif not os.access(existing, os.W_OK):
        what = f"cannot be written: {existing} is protected, or its disk read-only"
    else:
        return
    raise InputError(
        f"result folder {folder}: {what}",
        allowed="a folder that can be written, or a name that is free",
        fix="name another with --output DIR, or change the config's name",
    )
