"""The command of the study: `batches`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pipeline.core.errors import InputError
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, Sets, argument, load, print_json, progress, show


def batches(
    config: Annotated[Path, argument("A YAML file of one benchmark.", "CONFIG")],
    settings: Sets = None,
    as_json: Json = False,
) -> None:
    """Check whether a text's vector depends on its batch."""
    from pipeline.studies.batches.batch_check import check_batches

    configs = load([config], settings)
    if len(configs) > 1:
        raise InputError(
            f"{config}: {len(configs)} benchmarks", allowed="one benchmark", fix="set one value of each list"
        )
    dependence = check_batches(configs[0], progress)
    if as_json:
        print_json(asdict(dependence))
    else:
        show(dependence.table())


STUDY = Study(
    "Does the vector of a text depend on the texts in its batch?",
    {"batches": Command(batches, "mine.yaml --set model.backend=flag")},
)
