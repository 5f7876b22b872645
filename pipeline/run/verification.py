"""Verification: benchmarks are run with what is published of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from pipeline.comparison.verify import Verification, cells_of_results, expected_of, some, verify_run
from pipeline.config import Config, of_each_collection
from pipeline.config.files import load_configs, make_config, refuse_unasked, with_overrides
from pipeline.core.display import Progress
from pipeline.core.errors import InputError
from pipeline.core.json_record import SUITE_FILE
from pipeline.formats.judgments import read_qrels
from pipeline.formats.runs import read_run
from pipeline.results.folder import METRICS
from pipeline.results.published import Cell, Published, cells_of, judge, read_published
from pipeline.run.benchmark import Session
from pipeline.run.causes import explain
from pipeline.run.evidence import Evidence, evidence_of
from pipeline.run.running import prepare, run_each
from pipeline.storage.whole_files import MANIFEST


@dataclass
class Measured:
    """The verdicts on the scores of one collection; config and result folder where it was run."""

    cells: list[Cell]
    config: Config | None = None
    folder: Path | None = None


def verify(
    targets: Sequence[Path],
    files: Sequence[Path],
    run: tuple[Path, Path] | None,
    minutes: float,
    overrides: Sequence[str],
    progress: Progress,
) -> Verification:
    """The verdicts on published scores; arguments as of `pipeline.api.verify`."""
    results = [each for each in targets if any((each / name).is_file() for name in (METRICS, SUITE_FILE))]
    if overrides and (run or (not minutes and len(results) == len(targets))):
        raise InputError(
            "--set, and nothing is run with settings",
            allowed="--set with a config, or with a result and --why",
            fix="leave --set out",
        )
    published = [each for file in files for each in read_published(file)]
    if run:
        if not published:
            raise InputError("--run without --expected", allowed="--expected FILE", fix="name the scores")
        made = verify_run(*run, published)
        if minutes:
            evidence = Evidence(read_run(run[0]), read_qrels(run[1]))
            made = Verification(explain(made.cells, evidence, None, minutes, progress))
        return made
    found: list[Measured] = []
    for target in targets:
        if target in results:
            for result, cells in cells_of_results(target, published):
                config = None
                if minutes:  # its settings are run
                    settings, manifest = deepcopy(result.manifest.config), result.folder / MANIFEST
                    refuse_unasked(settings, overrides, manifest)
                    config = make_config(with_overrides(settings, overrides), manifest)
                found.append(Measured(cells, config, result.folder))
        else:
            found += run_configs(load_configs(target, overrides), published, progress)
    if minutes:
        _explain_all(found, minutes, progress)
    return Verification([cell for each in found for cell in each.cells])


def run_configs(
    configs: Sequence[Config], published: Sequence[Published], progress: Progress
) -> list[Measured]:
    """Run each collection of configs that has published scores, and compare."""
    given = [
        expected_of(one, published, in_suite=bool(config.members))
        for config in configs
        for one in of_each_collection([config])
    ]
    some([each for config, others in given for each in (*config.expected, *others)], configs[0].name)
    measured = []
    with Session() as session:
        wanted = [_alone(config) for config, _ in given if config.expected]
        for outcome in run_each(prepare(wanted, None, progress, session), progress, session):
            if outcome.result:
                cells = cells_of(outcome.config, outcome.result.metrics["metrics"])
                measured.append(Measured(cells, outcome.config, outcome.result.folder))
            else:
                measured.append(Measured(_not_run(outcome.config, outcome.error)))
    return [*measured, *(Measured(others) for _, others in given if others)]


def _alone(config: Config) -> Config:
    """A collection of a suite, `SUITE/COLLECTION`, as a benchmark whose name is a folder's."""
    return config.model_copy(update={"name": config.name.rpartition("/")[2]})


def _not_run(config: Config, error: Exception | None) -> list[Cell]:
    """What was not measured, with what stopped it."""
    cells = [judge(each, None, "", config.label) for each in config.expected]
    return [cell.model_copy(update={"reason": str(error)}) for cell in cells]


def _explain_all(measured: Sequence[Measured], minutes: float, progress: Progress) -> None:
    """Explain what is not reproduced, one collection after the other.

    Each has an equal part of the time that is left, so that what one does not use goes to the next ones.
    """
    waiting = [each for each in measured if any(cell.verdict == "not reproduced" for cell in each.cells)]
    deadline = time.monotonic() + 60 * minutes
    for number, each in enumerate(waiting):
        if each.config and each.folder:
            share = (deadline - time.monotonic()) / 60 / (len(waiting) - number)
            evidence = evidence_of(each.config, each.folder)
            each.cells = explain(each.cells, evidence, each.config, share, progress)
