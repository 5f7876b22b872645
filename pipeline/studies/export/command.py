"""The command of the study: `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pipeline.core.errors import InputError
from pipeline.core.installation import require
from pipeline.studies.study import Command, Study
from pipeline.terminal import argument, option


def export(
    results: Annotated[list[Path], argument("A result folder.", "RESULT")],
    mteb: Annotated[Path | None, option("Write MTEB result files to this folder.", "FOLDER")] = None,
    model_index: Annotated[
        bool, option("Print YAML for a model card: the model-index.", flags="--model-index")
    ] = False,
    tracker: Annotated[
        Literal["wandb", "mlflow", "tensorboard"] | None,
        option("Write to an experiment tracker (an extra).", flags="--track"),
    ] = None,
) -> None:
    """Write results for MTEB, a model card or a tracker."""
    targets = {"--mteb": mteb, "--model-index": model_index, "--track": tracker}
    given = [flag for flag, value in targets.items() if value]
    if len(given) != 1:
        raise InputError(
            " and ".join(given) or "neither --mteb nor --model-index nor --track",
            allowed="--mteb FOLDER, --model-index or --track NAME",
            fix="name one of them",
        )
    from pipeline.results.result import read_result

    if tracker:
        require(tracker, tracker, f"--track {tracker}")
        from pipeline.studies.export.tracking import track

        for result in map(read_result, results):
            track(result, tracker)
        return

    read = []
    for result in map(read_result, results):
        if result.suite and result.suite.failed:
            raise InputError(
                f"{result.folder} is not complete: {', '.join(result.suite.failed)} failed",
                allowed="results that are complete",
                fix="run its config again, which does only what is missing; or export single collections",
            )
        read += result.collections
    if mteb:
        from pipeline.studies.export.exchange import write_mteb

        for path in write_mteb(read, mteb):
            print(f"written to {path}")
        return
    import yaml

    from pipeline.studies.export.exchange import model_index as index_of

    print("---")
    print(yaml.safe_dump(index_of(read), sort_keys=False, allow_unicode=True), end="")
    print("---")


STUDY = Study(
    "How do other tools read these results?", {"export": Command(export, "results/A --mteb exported")}
)
