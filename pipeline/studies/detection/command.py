"""What the study adds to `plan`: the options `--detect` and `--spread`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pipeline.core.plugins import import_and_call
from pipeline.studies.study import Study
from pipeline.terminal import option

Detect = Annotated[
    float | None, option("Show how many queries detect this difference of means.", "DIFFERENCE")
]
Spread = Annotated[
    list[str] | None,
    option(
        "With --detect: standard deviation of differences between queries, or results that have it.",
        "NUMBER|RESULT_DIR",
    ),
]
STUDY = Study(
    "How many queries show a difference?",
    plan=partial(import_and_call, "studies.detection.detection:find_plan"),
    plan_options={"detect": Detect, "spread": Spread},
)
