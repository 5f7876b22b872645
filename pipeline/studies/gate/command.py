"""The command of the study: `gate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pipeline.studies.shared.printing import print_as, refuse_both
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, argument, end_with, option, show_measures_as


def gate(
    folder: Annotated[Path, argument("Result folder of the new version.", "RESULT_DIR")],
    baseline: Annotated[Path, option("Result folder of the version it may not fall behind.", "RESULT_DIR")],
    measures: Annotated[
        list[str] | None,
        option("Measure to check; may be repeated. By default the baseline's first.", flags="--measure"),
    ] = None,
    margin: Annotated[float, option("Largest acceptable loss of a mean.")] = 0.01,
    alpha: Annotated[float, option("Significance level: probability of passing a worse result.")] = 0.05,
    guarantee: Annotated[
        bool, option("Use bounds that are valid for any distribution of differences.", flags="--guarantee")
    ] = False,
    since: Annotated[
        Path | None,
        option("Result folder of a release of record, to be tested against as well.", "RESULT_DIR"),
    ] = None,
    since_margin: Annotated[
        float | None,
        option("Largest acceptable loss against that; by default the margin.", flags="--since-margin"),
    ] = None,
    other_data: Annotated[
        bool, option("Compare results of other passages, queries' texts or judgments.", flags="--other-data")
    ] = False,
    as_markdown: Annotated[bool, option("Print Markdown.", flags="--markdown")] = False,
    as_json: Json = False,
) -> None:
    """Test whether a result is as good as a baseline.

    The exit code is 0 if it is, 3 if it is worse, 4 if the queries are too few to decide.
    """
    refuse_both(as_json, as_markdown)
    from pipeline.studies.gate.gate import EXIT_CODES, gate_result

    show_measures_as(measures or ())
    verdicts = gate_result(
        folder, baseline, measures or (), margin, alpha, guarantee, since, since_margin, other_data
    )
    print_as(verdicts, as_json, as_markdown)
    end_with(EXIT_CODES[verdicts.verdict])


STUDY = Study(
    "Is a result as good as a baseline?",
    {"gate": Command(gate, "results/new --baseline results/released --margin 0.01")},
)
