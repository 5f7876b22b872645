"""The result folder `OUTPUT/NAME/` of a finished benchmark, written and read.

It holds `metrics.json`, `per_query.csv`, `run.trec` and `manifest.json`, which is written last: a folder that
has one is complete.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from pipeline.core import machine
from pipeline.core.errors import InputError
from pipeline.core.table import Displayed, Table
from pipeline.results.records import Manifest, Metrics, Record, StageRow
from pipeline.results.tables import result_table
from pipeline.storage import locks, whole_files
from pipeline.storage.artifacts import MANIFEST

if TYPE_CHECKING:
    from pipeline.core.records import Float64
    from pipeline.runner import Benchmark, StageOutcome

SCORES = "evaluate"  # the stage whose key covers all that shaped a result
METRICS, PER_QUERY, RUN = "metrics.json", "per_query.csv", "run.trec"
FILES = (METRICS, PER_QUERY, RUN, MANIFEST)
ASSESSMENTS = ("short_rankings", "against_exact", "first_stage", "reranking", "of")
"""Sections that not all results have."""
ROUNDING = 1e-9  # a mean in metrics.json and that of the table per query may differ by so much

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, repr=False)
class Result(Displayed):
    """A finished benchmark.

    Attributes:
        folder: Where its files are.
        metrics: The content of `metrics.json`, as plain JSON.
    """

    folder: Path
    metrics: dict[str, Any]

    @cached_property
    def record(self) -> Metrics:
        """The content of `metrics.json`, typed."""
        return Metrics.model_validate(self.metrics)

    @property
    def reused(self) -> list[str]:
        """The stages whose artifacts were in the cache."""
        return [row.stage for row in self.record.all_stages if row.reused]

    def tables(self) -> list[Table]:
        """The measures."""
        notes = [f"reused: {', '.join(self.reused) or 'nothing'}", f"in {self.folder}"]
        table = result_table(self.record)
        return [replace(table, notes=[*table.notes, *notes])]


@dataclass(frozen=True)
class SavedResult:
    """A finished benchmark, read from its folder.

    Attributes:
        folder: Where it was read.
        record: The content of `metrics.json`.
        manifest: The content of `manifest.json`.
        query_ids: Every judged query, in the order of `per_query.csv`.
        measures: The columns of `per_query.csv`, in its order.
        values: float64 [queries, measures].
    """

    folder: Path
    record: Metrics
    manifest: Manifest
    query_ids: list[str]
    measures: list[str]
    values: Float64


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
    from pipeline.retrievers.shared import REPORTED  # heavy, and not needed to read results

    artifacts = {outcome.stage: outcome.artifact for outcome in outcomes if outcome.artifact}
    ranking, evaluate = artifacts[benchmark.retriever.ranking], artifacts["evaluate"]
    scores = benchmark.opened(SCORES)
    settings = benchmark.config.model_dump(mode="json")
    metrics = {
        "name": benchmark.config.name,
        **{key: scores[key] for key in REPORTED},
        "stages": _stage_rows(outcomes, ""),
    }
    for key in ASSESSMENTS:
        if key in scores:
            metrics[key] = scores[key]
    if "search" in artifacts and "vectors" in artifacts["search"].facts:
        metrics["vectors"] = artifacts["search"].facts["vectors"]
    if "against_exact" in scores:
        given = {**settings["index"], "parameters": settings["search"]["parameters"]}
        metrics["index"] = {**given, **artifacts["search"].facts.get("index", {})}
    ranked = artifacts[benchmark.retriever.ranking].facts
    if "sparsity" in ranked:
        metrics["sparsity"] = ranked["sparsity"]
    if "reranking" in scores:
        metrics["reranking"] = {**scores["reranking"], **_speed_of_reranking(outcomes)}
    if "fuse" in artifacts:
        metrics["fusion"] = artifacts["fuse"].facts["fusion"]
    for number, part in enumerate(metrics.get("of", []), start=1):
        part["stages"] = _stage_rows(outcomes, f"{number}/")
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
    }
    check_folder(folder)
    _write_files(folder, metrics, manifest, [evaluate.path(PER_QUERY), ranking.path(RUN)])
    return Result(folder, metrics)


def _speed_of_reranking(outcomes: Sequence[StageOutcome]) -> dict[str, Any]:
    """Pairs a second, and seconds a query of as many pairs as the result has; None where none was scored."""
    outcome = next(each for each in outcomes if each.stage == "rerank")
    row, facts = StageRow.of(outcome), outcome.artifact.facts if outcome.artifact else {}
    rate, pairs = row.items_per_second, facts.get("pairs")
    seconds = pairs / facts["queries"] / rate if rate and pairs else None
    return {"pairs": pairs, "pairs_per_second": rate, "seconds_per_query": seconds}


def _stage_rows(outcomes: Sequence[StageOutcome], prefix: str) -> list[dict[str, Any]]:
    """The rows of the stages whose roles begin with a prefix, without it; "" are those of no part."""
    rows = []
    for outcome in outcomes:
        part, _, stage = outcome.stage.rpartition("/")
        if part == prefix.removesuffix("/"):
            row = StageRow.of(replace(outcome, stage=stage))
            rows.append(row.model_dump(mode="json", exclude_unset=True))
    return rows


def _write_files(
    folder: Path, metrics: Mapping[str, Any], manifest: Mapping[str, Any], copied: Sequence[Path]
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
        found = _read_record(folder, MANIFEST, Manifest).recipes
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
    log.warning("%s held a result of other settings or data; it is kept as %s", folder, kept)


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


def read_result(folder: Path | str) -> SavedResult:
    """Read a result folder.

    Raises:
        InputError: It is not a result folder, is not finished, or its files are damaged.
    """
    folder = Path(folder)
    absent = [name for name in FILES if not (folder / name).is_file()]
    if len(absent) == len(FILES):
        raise _not_a_result(folder)
    if absent:
        raise _unusable(folder, f"is not finished: it has no {' and no '.join(absent)}")
    record = _read_record(folder, METRICS, Metrics)
    manifest = _read_record(folder, MANIFEST, Manifest)
    try:
        result = SavedResult(folder, record, manifest, *_read_per_query(folder / PER_QUERY))
    except (ValueError, csv.Error) as error:
        raise _unusable(folder, f"is damaged: {PER_QUERY}: {error}") from None
    if problem := _disagreement(result):
        raise _unusable(folder, f"is damaged: {problem}")
    return result


def _read_record(folder: Path, name: str, record: type[R]) -> R:
    """One of the JSON files of a result folder.

    Raises:
        InputError: It is not JSON, lacks a key, or has a value of another type.
    """
    try:
        return record.model_validate_json((folder / name).read_bytes(), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    if not first["loc"]:
        raise _unusable(folder, f"is damaged: {name} is not a JSON object ({first['msg']})")
    where = ".".join(map(str, first["loc"]))
    raise _unusable(folder, f"is damaged: '{where}' in {name}: {first['msg']}")


def _read_per_query(path: Path) -> tuple[list[str], list[str], Float64]:
    """The query ids, the measures and float64 [queries, measures] of a `per_query.csv`.

    Raises:
        ValueError: It is not such a table.
    """
    import numpy as np

    with open(path, encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    if len(lines) < 2 or any(len(line) != len(lines[0]) for line in lines):
        raise ValueError("the file is cut short")
    values = np.array([line[1:] for line in lines[1:]], dtype=np.float64)
    return [line[0] for line in lines[1:]], lines[0][1:], values


def _disagreement(result: SavedResult) -> str:
    """How metrics.json and per_query.csv contradict each other; "" where they do not."""
    queries = result.record.queries
    rows = len(result.query_ids)
    distinct = len(set(result.query_ids))
    if not queries == rows == distinct:
        return f"{METRICS} counts {queries} queries, {PER_QUERY} has {distinct} in {rows} rows"
    written = result.record.metrics
    means = dict(zip(result.measures, result.values.mean(axis=0).tolist(), strict=True))
    if means.keys() != written.keys():
        return f"{METRICS} and {PER_QUERY} have other measures"
    wrong = [name for name, mean in means.items() if not abs(mean - written[name]) <= ROUNDING]
    return f"the mean of {wrong[0]} is not that of {PER_QUERY}" if wrong else ""


def _not_a_result(folder: Path) -> InputError:
    """The error for a path without a result, which names the results in the folders below it."""
    below = sorted(path.parent.name for path in folder.glob(f"*/{METRICS}"))
    if folder.is_dir():
        found = "is not a result folder"
    else:
        found = "is not a folder" if folder.exists() else "does not exist"
    return InputError(
        f"{folder} {found}",
        allowed="a folder that benchmarco run wrote, such as results/quickstart",
        fix=f"name those in it: {', '.join(below)}" if below else "check the path",
    )


def _unusable(folder: Path, what: str) -> InputError:
    return InputError(
        f"result folder {folder} {what}",
        allowed=f"a complete one: {', '.join(FILES)}",
        fix="run its config again; what is in the cache is not computed again",
    )
