"""The writing of a result's folder."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from pipeline.config import FLAT
from pipeline.core import installation, machine
from pipeline.core.errors import InputError
from pipeline.core.plugins import packages_of
from pipeline.core.records import Facts
from pipeline.core.result_records import without_part
from pipeline.encoders.opener import Opener, TextOpener
from pipeline.metrics.presentation import read_per_query
from pipeline.results.folder import FILES, CollectionResult
from pipeline.results.published import check_expected
from pipeline.results.records import Manifest, Metrics
from pipeline.results.result import Result
from pipeline.run.benchmark import Benchmark
from pipeline.run.plan import CONTENTS, REPORTED, SCORES
from pipeline.storage import whole_files
from pipeline.storage.store import hold
from pipeline.storage.whole_files import CHECKSUMS, MANIFEST, METRICS, PER_QUERY, RANKING, RESULT_FILES, SUITE

log = logging.getLogger(__name__)


def write_result(folder: Path, benchmark: Benchmark, scores: Facts) -> Result:
    """Write the result folder of a benchmark, whose `run` gave the scores.

    If settings or data differ, the old result is kept as `NAME~1`.
    """
    artifacts, stages = benchmark.stage_rows(used=True)
    if benchmark.config.index.factory != FLAT:
        from pipeline.run.exact_twin import losses

        scores = scores | losses(benchmark)
    models, model_settings = describe_models(benchmark)
    rows = [stage.model_dump(mode="json", exclude_unset=True) for stage in stages]
    metrics = {
        "name": benchmark.config.name,
        **{key: scores[key] for key in REPORTED},
        "models": models,
        "stages": [row for row in rows if row["stage"] == without_part(row["stage"])],
    }
    metrics |= {key: value for key, value in scores.items() if key not in (*REPORTED, CONTENTS)}
    metrics |= benchmark.retriever.report(artifacts, scores, rows)
    if benchmark.config.expected:
        checks = check_expected(benchmark.config, metrics["metrics"])
        metrics["expected"] = [check.model_dump(mode="json") for check in checks]
    values = read_per_query(artifacts[SCORES].folder / PER_QUERY)
    recipes = {name: {"key": recipe.key, **recipe.plain} for name, recipe in benchmark.recipes.items()}
    manifest = {
        "config": benchmark.resolved_config.model_dump(mode="json"),
        "cache": str(benchmark.store.root.absolute()),
        "recipes": recipes,
        "contents": scores[CONTENTS],
        "models": model_settings,
        "versions": installation.versions() | packages_of(recipes),
        "hardware": machine.hardware(),
        "wall_seconds": round(benchmark.seconds, 3),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    check_folder(folder)
    ranking = artifacts[benchmark.retriever.ranking].folder / RANKING
    _write_files(folder, metrics, manifest, [artifacts[SCORES].folder / PER_QUERY, ranking])
    record, measured_by = Metrics.model_validate(metrics), Manifest.model_validate(manifest)
    scored = CollectionResult(folder, record, measured_by, *values, metrics, clusters=record.clusters)
    return Result(folder, [scored])


def describe_models(benchmark: Benchmark) -> tuple[list[Facts], list[Facts]]:
    """What runs each model, whether that was left to `auto`, and what had to be guessed of it.

    And of each model for texts its settings, their sources, and how its rows were compared.
    """
    used, settings = [], []
    for source in benchmark.retriever.sources:
        if not isinstance(source, Opener):
            continue
        section, model = source.settings, source.model
        facts = {"name": section.label, "backend": section.backend, "precision": model.precision}
        used.append({**facts, "auto": section.source_of("backend") == "auto"})
        if isinstance(source, TextOpener):
            if model.guessed:
                used[-1]["guessed"] = model.guessed
            decided = {name: value._asdict() for name, value in model.decided.items()}
            settings.append({"name": model.name, "settings": decided})
            if source.conversion and (compared := source.comparison(benchmark.store)):
                settings[-1]["comparison"] = compared
    return used, settings


def _write_files(folder: Path, metrics: Facts, manifest: Facts, copied: Sequence[Path]) -> None:
    """Write the files, their checksums last, while no other run writes to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if (lock := hold(folder, wait=False)) is None:
        log.warning("waiting: another run is writing %s", folder)
        lock = hold(folder)
    if (folder / MANIFEST).is_file():
        _keep_other(folder, manifest["recipes"])
    for left in folder.glob(f".*{whole_files.TEMPORARY}"):  # by a process that was killed
        left.unlink(missing_ok=True)
    before = whole_files.read_json_object(folder / CHECKSUMS) or {}  # with files that studies added
    for name in (CHECKSUMS, MANIFEST):
        (folder / name).unlink(missing_ok=True)
    whole_files.write_json(folder / METRICS, metrics)
    for source in copied:
        with whole_files.replacing(folder / source.name) as temporary:
            shutil.copyfile(source, temporary)
    whole_files.write_json(folder / MANIFEST, manifest)
    whole_files.write_checksums(folder, dict.fromkeys((*FILES, *before)))
    if lock:
        lock.release()


def _keep_other(folder: Path, recipes: Facts) -> None:
    """Keep a finished result that other settings or data led to: as `NAME~1`, or the next free number.

    Its files get a second name there before the new ones take their places, so none is ever absent. What
    studies added to it goes with it.
    """
    try:
        recipes_before = Manifest.model_validate_json((folder / MANIFEST).read_bytes()).recipes
    except (ValueError, OSError):  # it is damaged
        return
    if recipes_before.get(SCORES, {}).get("key") == recipes[SCORES]["key"]:
        return
    other = next(path for n in count(1) if not (path := folder.with_name(f"{folder.name}~{n}")).exists())
    other.mkdir()
    added = {*os.listdir(folder)} & {*(whole_files.read_json_object(folder / CHECKSUMS) or {})} - {*FILES}
    for name in (*FILES, *added, CHECKSUMS):  # these last: with them, the folder is complete
        if (folder / name).is_file():
            whole_files.link(folder / name, other / name)
    for name in added:
        (folder / name).unlink()
    log.warning("the result in %s had other settings or data; it is kept as %s", folder, other)


def check_folder(folder: Path, in_suite: bool = False) -> None:
    """Refuse the result folder of a collection that cannot be written, before anything is computed for it.

    Raises:
        InputError: It is a link, or protected, or a file or a result of the other kind is in the way, or its
            name is too long.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}"
    elif not existing.is_dir():
        what = "is not a folder" if existing == folder else f"cannot be made: {existing} is not a folder"
    elif any(len(os.fsencode(part)) > os.pathconf(existing, "PC_NAME_MAX") for part in folder.parts):
        what = "cannot be made: its name is too long"
    elif in_suite and (folder.parent / METRICS).exists():
        what = f"{folder.parent} holds a result of one collection, and this is one of a suite"
    elif (folder / SUITE).exists():
        what = "holds a result of a suite, and this is one of one collection"
    elif existing == folder and (foreign := [n for n in RESULT_FILES if whole_files.is_foreign(folder / n)]):
        raise InputError(
            f"result folder {folder}: benchmarco did not write its {' and '.join(foreign)}",
            allowed="a new folder, or that of a result",
            fix="name another with --output DIR, or add --force to overwrite them",
        )
    else:
        try:
            os.rmdir(tempfile.mkdtemp(dir=existing))
            return
        except OSError as error:
            what = f"cannot be written: {existing} takes no new folder ({error.strerror})"
    raise InputError(
        f"result folder {folder}: {what}",
        allowed="a folder that can be written, or a name that is free",
        fix="name another with --output DIR, or change the config's name",
    )
