"""The command `export`, which writes results for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.results.folder import SavedResult

Results = Annotated[
    list[Path],
    typer.Argument(metavar="RESULT", help="A result folder, of a collection or of a suite."),
]


def export(
    results: Results,
    mteb: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write results in MTEB's format below this folder.")
    ] = None,
    model_index: Annotated[
        bool, typer.Option("--model-index", help="Print the model-index of a model card, as YAML.")
    ] = False,
) -> None:
    """Write results of one model for MTEB, or for its model card."""
    if (mteb is None) == (not model_index):
        raise InputError(
            "neither --mteb nor --model-index" if mteb is None else "--mteb and --model-index",
            allowed="one of them",
            fix="benchmarco export results/A --mteb FOLDER",
        )
    read = [each for folder in results for each in _read(folder)]
    if mteb:
        from pipeline.results.mteb_results import write_mteb

        for path in write_mteb(read, mteb):
            print(f"written to {path}")
        return
    import yaml

    from pipeline.results import model_card

    print("---")
    print(yaml.safe_dump(model_card.model_index(read), sort_keys=False, allow_unicode=True), end="")
    print("---")


def _read(folder: Path) -> list[SavedResult]:
    """The results in a folder: one, or those of a suite's collections."""
    from pipeline.config.suites import SUITE_FILE
    from pipeline.results.folder import read_result
    from pipeline.results.suite_folder import read_suite_result

    if (folder / SUITE_FILE).is_file():
        return list(read_suite_result(folder).results.values())
    return [read_result(folder)]
