"""Reproductions of results: their manifests are run again, from nothing, and compared with them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.config import Config
from pipeline.config.files import make_config, with_overrides
from pipeline.core.errors import InputError
from pipeline.core.progress import Progress, silent
from pipeline.results.folder import SavedResult, read_result
from pipeline.results.reproduction import Reproduction, SuiteReproduction, compare_with_original
from pipeline.results.running import prepare, result_folder, run_each
from pipeline.results.suite_folder import is_suite, read_suite_result
from pipeline.storage.artifacts import MANIFEST

WHOLE = ""
"""The name under which the only result of a folder of one collection goes."""
Results = dict[str, SavedResult]
"""The results in a folder by the names of their collections; `WHOLE` where it is none of a suite."""


def reproduce(
    folder: Path,
    against: Path | None = None,
    baseline: Path | None = None,
    overrides: Sequence[str] = (),
    output: Path | None = None,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Reproduction | SuiteReproduction:
    """Run a result again and compare; arguments as of `pipeline.api.reproduce`."""
    originals = _read(folder)
    baselines = None if baseline is None else _read(baseline)
    _check_alike(folder, originals, baseline, baselines)
    if against is not None:
        again = _read(against)
        _check_alike(folder, originals, against, again)
        return _compare(folder, originals, again, None if baselines is None else (baselines, baselines))
    with TemporaryDirectory(prefix="benchmarco-") as place:
        stored, written = str(cache or Path(place, "indexes")), output or Path(place, "results")
        again = _run(folder, originals, overrides, stored, written, progress)
        if baseline is None or baselines is None:
            return _compare(folder, originals, again, None)
        if baseline.resolve().name == folder.resolve().name:
            written = written / "baseline"
        baselines_again = _run(baseline, baselines, overrides, stored, written, progress)
        return _compare(folder, originals, again, (baselines, baselines_again))


def _check_alike(folder: Path, results: Results, other: Path | None, others: Results | None) -> None:
    """Refuse another folder's results if they are of other collections."""
    if others is not None and others.keys() != results.keys():
        raise InputError(
            f"{folder} and {other} are not of the same collections",
            allowed="results of one collection, or of one suite of which the same collections were run",
            fix="name another folder",
        )


def _read(folder: Path) -> Results:
    return dict(read_suite_result(folder).results) if is_suite(folder) else {WHOLE: read_result(folder)}


def _compare(
    folder: Path, originals: Results, again: Results, baselines: tuple[Results, Results] | None
) -> Reproduction | SuiteReproduction:
    found = {
        name: compare_with_original(
            result, again[name], (baselines[0][name], baselines[1][name]) if baselines else None
        )
        for name, result in originals.items()
    }
    return found[WHOLE] if WHOLE in found else SuiteReproduction(folder.resolve().name, found)


def _run(
    folder: Path, results: Results, overrides: Sequence[str], cache: str, output: Path, progress: Progress
) -> Results:
    """Run the manifests of results; those of a suite are written below its name."""
    parent = output if WHOLE in results else output / folder.resolve().name
    configs = {name: _config(result, overrides, cache, parent) for name, result in results.items()}
    for name, config in configs.items():
        _refuse_overwriting(results[name].folder, result_folder(config, None))
    again = {}
    runs = prepare([*configs.values()], None, progress, fresh=False)
    for name, outcome in zip(configs, run_each(runs, progress), strict=True):
        if outcome.result is None:
            raise outcome.error or RuntimeError(f"{outcome.config.name} was not run")
        again[name] = read_result(outcome.result.folder)
    return again


def _config(result: SavedResult, overrides: Sequence[str], cache: str, output: Path) -> Config:
    """The config of a result's manifest, changed by `key.path=value` strings."""
    raw = with_overrides(copy.deepcopy(result.manifest.config), overrides)
    config = make_config(raw, result.folder / MANIFEST)
    return config.model_copy(update={"cache": cache, "output": str(output)})


def _refuse_overwriting(original: Path, folder: Path) -> None:
    if original.resolve() == folder.resolve():
        raise InputError(
            f"output {folder.parent}: the result that is run again is there",
            allowed="another folder",
            fix="name one that does not hold it",
        )
