"""The command `fuse`, which joins run files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

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
    from pipeline.config.fuse import METHODS, NORMALIZATIONS, MethodName, NormalizationName, check_fusion

    check_file(output, "--output")
    if len(runs) < 2:
        raise InputError("one run", allowed="two runs or more", fix="name another")
    _check_choice("--method", method, METHODS)
    if normalize is not None:
        _check_choice("--normalize", normalize, NORMALIZATIONS)
    if (tune is None) != (qrels is None):
        found = "--tune without --qrels" if tune else "--qrels without --tune"
        raise InputError(found, allowed="both or neither", fix="add the other")
    given = None if weights is None else _numbers(weights)
    name = cast("MethodName", method)
    try:
        check_fusion(name, normalize, len(runs), None if given is None else len(given), tune is not None)
    except ValueError as error:
        raise InputError(str(error)) from None
    from pipeline.metrics.names import parse_measure
    from pipeline.search.fused_runs import Tuning, fuse_files
    from pipeline.search.fusion import Fusion

    tuning = Tuning(parse_measure(tune), qrels, folds) if tune and qrels else None
    fusion = Fusion(name, cast("NormalizationName | None", normalize), k)
    facts = fuse_files(runs, output, fusion, given, depth, tuning, progress)
    if as_json:
        print_json({**facts, "output": str(output)})
        return
    _print_facts(len(runs), facts)
    print(f"written to {output}")


def _check_choice(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{option} {value}", allowed=", ".join(allowed), fix="choose one of them")


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
    from pipeline.results.records import FusionFacts

    queries = counted(facts["queries"], "query", "queries")
    print(f"{runs} runs joined: {queries}, {counted(facts['documents'], 'document')}")
    if facts["queries_not_in_all"]:
        print(f"{counted(facts['queries_not_in_all'], 'query', 'queries')} only in some of the runs")
    for sentence in weight_sentences(FusionFacts.model_validate(facts)):
        print(sentence)
