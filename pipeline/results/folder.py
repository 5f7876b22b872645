"""What does a finished benchmark leave for its user? The result folder `OUTPUT/NAME/`, written and read.

`metrics.json`, `per_query.csv`, `run.trec`, and last `manifest.json`: if it is there, so is the rest.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.storage import locks, whole_files
from pipeline.core import machine
from pipeline.storage.artifacts import MANIFEST, Artifact
from pipeline.runner import Benchmark, StageOutcome
from pipeline.core.display import Displayed, View, counted, interval, rounded
from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.core.records import Float64

FILES = ("metrics.json", "per_query.csv", "run.trec", MANIFEST)
ROUNDING = 1e-9  # a mean in metrics.json and that of the table per query may differ by so much

log = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Result(Displayed):
    """A finished benchmark.

    Attributes:
        folder: Where its files are.
        metrics: The content of `metrics.json`.
    """

    folder: Path
    metrics: dict[str, Any]

    @property
    def reused(self) -> list[str]:
        """The stages whose artifacts were there before."""
        return [stage["stage"] for stage in self.metrics["stages"] if stage["reused"]]

    def views(self) -> list[View]:
        """A measure a row."""
        queries = counted(self.metrics["queries"], "query", "queries")
        title = f"{self.metrics['name']}: {queries}, {counted(self.metrics['passages'], 'passage')}"
        rows = [
            (name, rounded(mean), interval(*self.metrics["intervals"][name]))
            for name, mean in self.metrics["metrics"].items()
        ]
        reused = f"reused: {', '.join(self.reused) or 'nothing'}"
        return [View(title, ("measure", "mean", "95% interval"), rows, [reused, f"in {self.folder}"])]


@dataclass(frozen=True)
class SavedResult:
    """A finished benchmark, as its folder tells it.

    Attributes:
        folder: Where it was read.
        metrics: The content of `metrics.json`.
        manifest: The content of `manifest.json`.
        query_ids: Every judged query, in the order of `per_query.csv`.
        measures: The columns of `per_query.csv`, in its order.
        values: float64 [queries, measures].
    """

    folder: Path
    metrics: dict[str, Any]
    manifest: dict[str, Any]
    query_ids: list[str]
    measures: list[str]
    values: Float64

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return str(self.metrics["name"])


def write_result(benchmark: Benchmark, stages: list[StageOutcome], folder: Path, seconds: float) -> Result:
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
    if "against_exact" in scored.facts:  # of an approximate index
        index = benchmark.config.index.model_dump() | {"parameters": benchmark.config.search.parameters}
        metrics |= {"index": index | search.facts["index"], "against_exact": scored.facts["against_exact"]}
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
    whole_files.write_whole(folder / "metrics.json", _json(metrics))
    for artifact, name in ((scored, "per_query.csv"), (search, "run.trec")):
        with whole_files.replacing(folder / name) as temporary:
            shutil.copyfile(artifact.path(name), temporary)
    whole_files.write_whole(folder / MANIFEST, _json(manifest))
    if lock:
        lock.release()
    return Result(folder, metrics)


def check_folder(folder: Path) -> None:
    """Refuse a result folder that cannot be written, before anything is computed for it.

    Raises:
        InputError: It is a link, which may lead anywhere, or a file is in the way, or it is protected, or its
            name is too long.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}"
    elif not there.is_dir():
        what = "is no folder" if there == folder else f"cannot be made: {there} is no folder"
    elif any(len(os.fsencode(part)) > os.pathconf(there, "PC_NAME_MAX") for part in folder.parts):
        what = "cannot be made: its name is too long"
    elif not os.access(there, os.W_OK):
        what = f"cannot be written: {there} is protected, or its disk read-only"
    else:
        return
    raise InputError(
        f"result folder {folder}: {what}",
        allowed="a folder that can be written, or a name that is free",
        fix="name another with --output DIR, or change the config's name",
    )


def read_result(folder: Path | str) -> SavedResult:
    """Read a result folder.

    Raises:
        InputError: It is none, is not finished, or its files do not belong together.
    """
    folder = Path(folder)
    absent = [name for name in FILES if not (folder / name).is_file()]
    if len(absent) == len(FILES):
        raise _no_result(folder)
    if absent:
        raise _spoilt(folder, f"is not finished: it has no {' and no '.join(absent)}")
    parsed = {name: whole_files.read_json_object(folder / name) for name in ("metrics.json", MANIFEST)}
    metrics, manifest = parsed["metrics.json"], parsed[MANIFEST]
    if metrics is None or manifest is None:
        raise _spoilt(folder, f"is damaged: {next(n for n, v in parsed.items() if v is None)} is not JSON")
    try:
        query_ids, measures, values = _read_table(folder / "per_query.csv")
        result = SavedResult(folder, metrics, manifest, query_ids, measures, values)
        problem = _disagreement(result)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise _spoilt(folder, f"is damaged: {type(error).__name__} {error}") from None
    if problem:
        raise _spoilt(folder, f"is damaged: {problem}")
    return result


def _read_table(path: Path) -> tuple[list[str], list[str], Float64]:
    """The query ids, the measures and float64 [queries, measures] of a `per_query.csv`.

    Raises:
        ValueError: It is no such table.
    """
    import numpy as np

    with open(path, encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    if not rows or any(len(row) != len(header) for row in rows):
        raise ValueError("per_query.csv is cut short")
    values = np.array([row[1:] for row in rows], dtype=np.float64)
    return [row[0] for row in rows], header[1:], values


def _disagreement(result: SavedResult) -> str:
    """How the files of a result contradict each other; "" where they do not."""
    means = dict(zip(result.measures, result.values.mean(axis=0).tolist(), strict=True))
    written, stages = result.metrics["metrics"], result.metrics["stages"]
    counts = len(result.query_ids), len(set(result.query_ids)), result.metrics["queries"]
    if len(set(counts)) > 1:
        return f"metrics.json counts {counts[2]} queries, per_query.csv has {counts[1]} in {counts[0]} rows"
    told = (result.name, result.metrics["passages"], result.manifest["recipes"])
    if not isinstance(told[1], int):
        return "metrics.json counts no passages"
    if not all(told) or not all(row["stage"] for row in stages):
        return "metrics.json or manifest.json is empty"
    for section in ("config", "recipes", "versions", "hardware"):
        if not isinstance(result.manifest.get(section, {}), dict):
            return f"'{section}' in manifest.json is no object"
    if not all(isinstance(row["stage"], str) for row in stages):
        return "metrics.json has a stage without a name"
    if means.keys() != written.keys():
        return "metrics.json and per_query.csv have other measures"
    wrong = [name for name, mean in means.items() if not abs(mean - written[name]) <= ROUNDING]
    return f"the mean of {wrong[0]} is not that of per_query.csv" if wrong else ""


def _no_result(folder: Path) -> InputError:
    """What to say of a folder that holds no result."""
    inside = sorted(path.parent.name for path in folder.glob("*/metrics.json"))
    there = "no result folder" if folder.is_dir() else "no folder" if folder.exists() else "not there"
    return InputError(
        f"{folder} is {there}",
        allowed="a folder that benchmarco run wrote, such as results/quickstart",
        fix=f"name those in it: {', '.join(inside)}" if inside else "check the path",
    )


def _spoilt(folder: Path, what: str) -> InputError:
    return InputError(
        f"result folder {folder} {what}",
        allowed=f"a whole one: {', '.join(FILES)}",
        fix="run its config again; what is in the cache is not computed anew",
    )


def _artifact(stage: StageOutcome) -> Artifact:
    if stage.artifact is None:
        raise RuntimeError(f"stage {stage.stage} left no artifact")
    return stage.artifact


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
