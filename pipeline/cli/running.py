"""What is run, and what would be? `run`, `plan` and `data`: the commands that take a config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.cli.options import Configs, Json, Sets, load
from pipeline.cli.terminal import print_each, progress, report_failure, show, width

if TYPE_CHECKING:
    from pipeline.config import Config


def run(
    configs: Configs,
    settings: Sets = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of result folders, instead of the config's.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make every artifact anew.")] = False,
) -> None:
    """Run benchmarks, and reuse what is already there. Load, encode, index, search, evaluate."""
    from pipeline.api import run_benchmark

    loaded = load(configs, settings)
    if len(loaded) > 1:
        _run_all(loaded, output, fresh)
        return
    result = run_benchmark(loaded[0], output=output, fresh=fresh, progress=progress)
    from pipeline.report.table import result_tables
    from pipeline.report.tradeoff import tradeoff_tables, tradeoffs

    show(*result_tables(result.metrics, width()), *tradeoff_tables(tradeoffs([result.metrics]), width()))
    if reused := result.reused:
        print(f"reused: {', '.join(reused)}; their figures are of the run that made them")
    print(f"written to {result.folder}")


def _run_all(configs: list[Config], output: Path | None, fresh: bool) -> None:
    """Run several benchmarks, say what became of each, and end with the exit code that all of it means."""
    from pipeline.api import run_benchmarks

    done, codes = [], []
    for outcome in run_benchmarks(configs, output=output, fresh=fresh, progress=progress):
        if outcome.result:
            done.append(outcome.result)
        elif outcome.error:
            codes.append(report_failure(outcome.config.name, outcome.error))
    from pipeline.report.comparison import summary_tables

    if done:
        show(*summary_tables([result.metrics for result in done], len(configs), width()))
    _show_tradeoff([result.metrics for result in done], [result.folder.parent for result in done])
    for result in done:
        print(f"written to {result.folder}")
    if len(done) > 1:
        print(f"side by side: benchmarco compare {' '.join(str(result.folder) for result in done)}")
    if codes:
        raise typer.Exit(max(codes))


def _show_tradeoff(results: list[dict[str, Any]], folders: list[Path]) -> None:
    """A table and a plot of the approximate indexes among several results."""
    from pipeline.report.tradeoff import draw_tradeoffs, tradeoff_tables, tradeoffs

    if found := tradeoffs(results):
        path = folders[0] / "tradeoff.svg"
        show(*tradeoff_tables(found, width()))
        draw_tradeoffs(found, path)
        print(f"plot written to {path}")


def plan(configs: Configs, settings: Sets = None, as_json: Json = False) -> None:
    """Show each stage's key and whether it is there; compute nothing."""
    from pipeline.runner import several

    benchmarks = several(load(configs, settings))
    plans = {benchmark.config.name: benchmark.plan() for benchmark in benchmarks}
    if as_json:
        print_each([{"name": name, "stages": stages} for name, stages in plans.items()])
        return
    from pipeline.report.table import plan_table

    show(*(plan_table(name, stages) for name, stages in plans.items()))


def data(configs: Configs, settings: Sets = None, as_json: Json = False) -> None:
    """Show what a collection holds, before anything is computed."""
    from pipeline.api import describe_data

    described = describe_data(load(configs, settings), progress)
    if as_json:
        print_each([{"name": name, **description} for name, description in described.items()])
        return
    from pipeline.report.collection import collection_view

    for name, description in described.items():
        show(*collection_view(name, description))
