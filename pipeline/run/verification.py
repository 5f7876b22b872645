"""Verification: benchmarks are run with what is published of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.comparison.verify import Verification, expected_of, verify_result, verify_run
from pipeline.config import Config, of_each_collection
from pipeline.config.files import load_configs, make_config, refuse_unasked, with_overrides
from pipeline.core.display import Progress
from pipeline.core.errors import InputError
from pipeline.core.json_record import SUITE_FILE
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.results.folder import METRICS, read_record
from pipeline.results.published import Cell, Published, cells_of, judge, read_published
from pipeline.results.records import Manifest
from pipeline.run.benchmark import Session
from pipeline.run.causes import Evidence, evidence_of, explain
from pipeline.run.running import prepare, run_each
from pipeline.storage.artifacts import MANIFEST


def verify(
    targets: Sequence[Path],
    files: Sequence[Path],
    run: tuple[Path, Path] | None,
    minutes: float,
    overrides: Sequence[str],
    progress: Progress,
) -> Verification:
    """The verdicts on published scores; arguments as of `pipeline.api.verify`."""
    published = [each for file in files for each in read_published(file)]
    if run:
        if not published:
            raise InputError("--run without --expected", allowed="--expected FILE", fix="name the scores")
        made = verify_run(*run, published)
        if minutes:
            made = Verification(
                explain(made.cells, Evidence(read_run(run[0]), read_qrels(run[1])), None, minutes, progress)
            )
        return made
    cells: list[Cell] = []
    for target in targets:
        if any((target / name).is_file() for name in (METRICS, SUITE_FILE)):
            found = verify_result(target, published).cells
            if minutes and (target / METRICS).is_file():
                settings = read_record(target, MANIFEST, Manifest).config
                refuse_unasked(settings, overrides, target / MANIFEST)
                config = make_config(with_overrides(settings, overrides), target / MANIFEST)
                found = _explained(found, config, target, minutes, progress)
            cells += found
        else:
            cells += run_configs(load_configs(target, overrides), published, minutes, progress)
    return Verification(cells)


def run_configs(
    configs: Sequence[Config], published: Sequence[Published], minutes: float, progress: Progress
) -> list[Cell]:
    """Run each collection of configs that has published scores, and compare."""
    given = [expected_of(config, published) for config in of_each_collection(configs)]
    if not any(config.expected or others for config, others in given):
        raise InputError(
            f"{configs[0].name}: no published score to compare with",
            allowed="scores from --expected FILE, or the section 'expected' of a config",
            fix="add --expected FILE",
        )
    cells = []
    with Session() as session:
        wanted = [_alone(config) for config, _ in given if config.expected]
        for outcome in run_each(prepare(wanted, None, progress, session), progress, session):
            if outcome.result:
                found = cells_of(outcome.config, outcome.result.metrics["metrics"])
                cells += _explained(found, outcome.config, outcome.result.folder, minutes, progress)
            else:
                cells += _not_run(outcome.config, outcome.error)
    return cells + [cell for _, others in given for cell in others]


def _alone(config: Config) -> Config:
    """A collection of a suite, `SUITE/COLLECTION`, as a benchmark whose name is a folder's."""
    return config.model_copy(update={"name": config.name.rpartition("/")[2]})


def _not_run(config: Config, error: Exception | None) -> list[Cell]:
    """What was not measured, with what stopped it."""
    cells = [judge(each, None, "", config.label) for each in config.expected]
    return [cell.model_copy(update={"reason": str(error)}) for cell in cells]


def _explained(
    cells: list[Cell], config: Config, folder: Path, minutes: float, progress: Progress
) -> list[Cell]:
    if not minutes or all(cell.verdict != "not reproduced" for cell in cells):
        return cells
    return explain(cells, evidence_of(config, folder), config, minutes, progress)
