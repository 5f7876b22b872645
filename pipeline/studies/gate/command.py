"""The command of the study: `gate`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from pipeline.core.plugins import import_and_call
from pipeline.studies.shared.printing import print_as
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, argument, option, show_measures_as


def gate(
    folders: Annotated[list[Path], argument("Result folders of new versions.", "RESULT_DIR")],
    baseline: Annotated[Path, option("Result folder of the version they may not fall behind.", "RESULT_DIR")],
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
    corrected: Annotated[
        bool, option("Correct p for the number of results, too, by Holm.", flags="--holm")
    ] = False,
    other_data: Annotated[
        bool, option("Compare results of other passages, queries' texts or judgments.", flags="--other-data")
    ] = False,
    allow_undecided: Annotated[
        bool, option("Exit with 0 if the queries are too few to decide.", flags="--allow-undecided")
    ] = False,
    no_fragile: Annotated[
        bool,
        option("Take pass~, which one lost query more would undo, for undecided.", flags="--no-fragile"),
    ] = False,
    as_markdown: Annotated[bool, option("Print Markdown.", flags="--markdown", hidden=True)] = False,
    as_json: Json = False,
) -> None:
    """Test whether results are as good as a baseline.

    The exit code is 0 if all are, 3 if one is worse, else 4: the queries are too few to decide. About 5% of
    results that are worse by exactly the margin pass, if at least 10 queries differ. A loss that hits few
    queries may miss all of yours. pass~: one query more that loses everything would undo the pass. fail~:
    one that gains everything would undo the fail.
    """
    from pipeline.studies.gate.gate import gate_results

    show_measures_as(measures or ())
    settings = (margin, alpha, guarantee, since, other_data, corrected)
    gates = gate_results(folders, baseline, measures or (), *settings)
    print_as(gates, as_json, as_markdown)
    raise typer.Exit(gates.exit_code(allow_undecided, no_fragile))


Margin = Annotated[
    float | None,
    option("Also the gate's verdict on each against the first.", "DIFFERENCE", flags="--margin"),
]
STUDY = Study(
    "Are results as good as a baseline?",
    {"gate": Command(gate, "results/new --baseline results/released --margin 0.01")},
    options={"margin": Margin},
    columns=partial(import_and_call, "studies.gate.gate:margin_column"),
    csv=True,
)
