"""Comparison of result folders, of one collection or of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.results import comparison
from pipeline.results.comparison import Comparison
from pipeline.results.correction import Correction
from pipeline.results.suite_comparison import SuiteComparison, compare_suites
from pipeline.results.suite_folder import is_suite, read_suite_result


def compare(
    folders: Sequence[Path | str],
    measure: str | None = None,
    baseline: Path | str | None = None,
    correction: Correction = Correction.both,
    margin: float | None = None,
    qrels: Path | str | None = None,
) -> Comparison | SuiteComparison:
    """Compare finished results.

    Args:
        folders: Result folders or TREC run files of one collection, or folders of one suite; one or more.
        measure: A measure that all of them have; None takes the first one's first such.
        baseline: The result that the others are tested against, and only against it: one of the folders, or
            another, which is put before them, or the name of one of the results. None tests every pair.
        correction: What decides which differences are shown.
        margin: Within which two results count as equally good; None tests none.
        qrels: The file of judgments that run files are scored by. Not of suites.

    Returns:
        Of suites a comparison of their macro means, and of each collection; see docs/suites.md.

    Raises:
        InputError: A folder has no complete result, the results were scored on different queries or by
            different judgments, the measure is not in all of them, or some are suites and some are not.
    """
    is_folder = baseline is not None and Path(baseline).exists()
    every = [*folders, *([baseline] if baseline is not None and is_folder else [])]
    suites = [is_suite(folder) for folder in every]
    if not any(suites):
        return comparison.compare(folders, measure, baseline, correction, margin, qrels)
    if not all(suites):
        single = every[suites.index(False)]
        raise InputError(
            f"{every[suites.index(True)]} is of a suite, and {single} is not",
            allowed="results of one suite, or results of one collection",
            fix="name the folder of a collection inside the suite",
        )
    if qrels is not None:
        raise InputError(f"--qrels {qrels} with suites", allowed="--qrels with run files", fix="leave it out")
    read = [read_suite_result(folder) for folder in folders]
    place = None
    if baseline is not None:
        place = comparison.position_among(read, baseline)
        if place is None:
            place = 0
            read.insert(0, read_suite_result(baseline))
    return compare_suites(read, measure, place, correction, margin)
