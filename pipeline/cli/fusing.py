"""The command `fuse`, which joins run files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline.cli.options import Json, check_file
from pipeline.cli.terminal import print_json, progress
from pipeline.core.errors import InputError


def fuse(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="TREC runs, two or more; .gz too.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="The run to write.")],
    method: Annotated[str, typer.Option(help="rrf, combsum, combmnz, weighted or interpolation.")] = "rrf",
    normalize: Annotated[
        str | None, typer.Option(help="Of scores: none, min_max, max, sum, z_score or rank.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="LIST", help="One for each run, separated by commas.")
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="rrf only: added to every rank.")] = 60,
    depth: Annotated[int | None, typer.Option(min=1, help="Documents kept for each query.")] = None,
    tune: Annotated[
        str | None, typer.Option(metavar="MEASURE", help="Tune weights for it by cross-validation.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgments for --tune.")] = None,
    folds: Annotated[int, typer.Option(min=2, help="Parts of the queries for --tune.")] = 5,
    as_json: Json = False,
) -> None:
    """Join TREC runs of any systems into one."""
    from pipeline import api

    check_file(output, "--output")
    facts = api.fuse(
        runs,
        output,
        method=method,
        normalize=normalize,
        weights=None if weights is None else _numbers(weights),
        k=k,
        depth=depth,
        tune=tune,
        qrels=qrels,
        folds=folds,
        progress=progress,
    )
    if as_json:
        print_json({**facts, "output": str(output)})
        return
    _print_facts(len(runs), facts)
    print(f"written to {output}")


def _numbers(weights: str) -> list[float]:
    """The numbers of a list that is separated by commas."""
    try:
        return [float(part) for part in weights.split(",")]
    except ValueError:
        raise InputError(
            f"--weights {weights}", allowed="numbers separated by commas, such as 0.3,0.7", fix="correct it"
        ) from None


def _print_facts(runs: int, facts: dict[str, Any]) -> None:
    from pipeline.core.display import counted
    from pipeline.report.composition import weight_sentences
    from pipeline.retrievers.fused import FusionFacts

    queries = counted(facts["queries"], "query", "queries")
    print(f"{runs} runs joined: {queries}, {counted(facts['documents'], 'document')}")
    if facts["queries_not_in_all"]:
        print(f"{counted(facts['queries_not_in_all'], 'query', 'queries')} only in some of the runs")
    for sentence in weight_sentences(FusionFacts.model_validate(facts)):
        print(sentence)
