"""The command of the study, `report`, and the option `--html` of `compare`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_output
from pipeline.studies.study import Command, Findings, NextStep, Output, Study, StudyOptions
from pipeline.terminal import argument, option

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison


def report(
    folders: Annotated[list[Path], argument("Result folders.", "RESULT_DIR")],
    html: Annotated[Path, option("Write the page to this file.", "FILE")],
    measure: Annotated[
        str | None, option("Measure shown for each query; by default the result's first.")
    ] = None,
    baseline: Annotated[
        Path | None, option("Also show this result, and test the others against it.", "RESULT_DIR")
    ] = None,
    *,
    studies: StudyOptions,
) -> None:
    """Write results as a self-contained HTML page."""
    from pipeline.comparison.side_by_side import compare

    refuse(html, [*folders, *([baseline] if baseline else [])], [])
    comparison = studies.with_columns(compare(folders, measure, baseline))
    write(html, [comparison], [studies.findings(comparison, on_page=True)])
    print(f"page written to {html}", file=sys.stderr)


def refuse(file: Path, results: Sequence[Path], measures: Sequence[str]) -> None:
    """Refuse what a page cannot show: several measures, and run files without their collection."""
    check_output(file, "--html", results)
    if len(measures) > 1:
        raise InputError(
            f"--html with {len(measures)} measures",
            allowed="one measure; the page has the means of all",
            fix="write a page for each",
        )
    if files := [path for path in results if path.is_file()]:
        raise InputError(
            f"--html with the run file {files[0]}",
            allowed="result folders, which say where texts are",
            fix="leave out --html",
        )


def write(
    file: Path, compared: Sequence[Comparison], findings: Sequence[Mapping[str, Findings | None]]
) -> None:
    """Write a comparison with what studies say of it, or those of several collections."""
    from pipeline.studies.page.render import PagePart, write_board, write_page

    if compared[0].collection:
        write_board(compared, file)
        return
    parts = [
        PagePart(name, each.heading, each.tables(), each.plots())
        for name, each in findings[0].items()
        if each
    ]
    write_page(compared[0], file, parts)


Html = Annotated[Path | None, option("Write a self-contained page to this file.", "FILE", flags="--html")]
STUDY = Study(
    "What do results look like, down to each query and its passages?",
    {"report": Command(report, "results/A --html page.html")},
    outputs={"html": Output(Html, "--html FILE writes a page", refuse, write)},
    next_step=NextStep("HTML report", "report {folder} --html {name}.html"),
)
