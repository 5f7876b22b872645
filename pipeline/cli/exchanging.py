"""The commands that exchange results with others: `export` and `board`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.completing import complete_measure, complete_result
from pipeline.cli.options import Json
from pipeline.cli.terminal import print_json, show
from pipeline.core.errors import InputError

if TYPE_CHECKING:
    from pipeline.results.folder import SavedResult

Results = Annotated[
    list[Path],
    typer.Argument(
        metavar="RESULT",
        help="A result folder, of a collection or of a suite.",
        autocompletion=complete_result,
    ),
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


def board(
    results: Results,
    published: Annotated[
        list[Path], typer.Option(help="Results in MTEB's format: a file, or a folder; may be given again.")
    ],
    measure: Annotated[
        str, typer.Option(help="The measure that is shown.", autocompletion=complete_measure)
    ] = "ndcg@10",
    as_json: Json = False,
) -> None:
    """Show results beside published ones.

    Those are marked: no test is possible with them.
    """
    from pipeline.metrics.names import parse_measures
    from pipeline.results.board import make_board
    from pipeline.results.mteb_results import read_mteb

    (name,) = parse_measures([measure])
    models = [model for path in published for model in read_mteb(path)]
    made = make_board([_read(folder) for folder in results], models, str(name))
    if as_json:
        print_json(made.document())
    else:
        show(made.table())


def _read(folder: Path) -> list[SavedResult]:
    """The results in a folder: one, or those of a suite's collections."""
    from pipeline.config.suites import SUITE_FILE
    from pipeline.results.folder import read_result
    from pipeline.results.suite_folder import read_suite_result

    if (folder / SUITE_FILE).is_file():
        return list(read_suite_result(folder).results.values())
    return [read_result(folder)]
