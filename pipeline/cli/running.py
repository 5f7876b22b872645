"""The commands that take a config: `run` and `plan`."""

from __future__ import annotations

import contextlib
import logging
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli import line
from pipeline.core.display import counted, silent
from pipeline.core.errors import InputError
from pipeline.core.installation import DISTRIBUTION
from pipeline.report.listings import forecast_table, plan_table
from pipeline.studies.study import NextStep, StudyOptions
from pipeline.studies.table import all_studies
from pipeline.terminal import (
    Json,
    Sets,
    Verbose,
    option,
    print_each,
    print_json,
    progress,
    report_failure,
    show,
    show_measures_as,
)

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.results.result import Result

log = logging.getLogger(__name__)


def load_line(
    configs: list[Path] | None,
    models: list[str] | None,
    data: list[str] | None,
    settings: Sequence[str],
    look_only: bool = False,
) -> list[Config]:
    """The benchmarks of config files, or those that `--model` and `--data` name."""
    from pipeline.config.files import load_configs

    if configs and not (models or data):
        return load_configs(configs, settings)
    content = line.line_config(configs, models, data, settings, look_only)
    return load_configs(line.PLACE, settings, content)


def run(
    configs: line.Configs = None,
    model: line.Models = None,
    data: line.Data = None,
    settings: Sets = None,
    output: Annotated[
        Path | None, option("Write results to DIR/NAME instead of results/NAME.", "DIR")
    ] = None,
    fresh: Annotated[bool, option("Ignore the cache and recompute everything.", flags="--fresh")] = False,
    quiet: Annotated[
        bool, option("Show no progress on stderr, only warnings and errors.", flags="--quiet -q")
    ] = False,
    verbose: Verbose = False,
    as_json: Annotated[
        bool,
        option("Print metrics.json on stdout; a list for several benchmarks.", flags="--json", hidden=True),
    ] = False,
) -> None:
    """Run benchmarks: load, encode, index, search, evaluate. Cached stages are reused."""
    from pipeline.api import run_benchmarks

    loaded = load_line(configs, model, data, settings or ())
    if quiet:
        logging.getLogger("pipeline").setLevel(logging.WARNING)
    done: list[Result] = []
    codes: list[int] = []
    stopped: Exception | None = None
    for outcome in run_benchmarks(loaded, output=output, fresh=fresh, progress=silent if quiet else progress):
        if outcome.result:
            done.append(outcome.result)
            folder, errors = outcome.result.folder.name, outcome.result.errors
            codes += [report_failure(f"{folder}, {name}", error) for name, error in errors.items()]
        elif outcome.error and len(loaded) > 1:
            codes.append(report_failure(outcome.config.name, outcome.error))
        else:
            stopped = outcome.error
    if stopped:  # raised here, after the loop has closed its session
        raise stopped
    show_measures_as([measure for config in loaded for measure in config.evaluate.measures])
    comparable = False
    if as_json:
        documents = [result.document for result in done]
        print_json(documents[0] if len(loaded) == 1 else documents)
    elif len(loaded) == 1:
        _show_result(done[0], verbose)
    elif done:
        comparable = _show_summary(done, len(loaded), verbose)
    if done and not quiet and not as_json and (step := next_step(done, comparable)):
        print(step)
    if codes:
        raise typer.Exit(max(codes))


def _show_result(result: Result, verbose: bool) -> None:
    """Show one result, and which stages were computed or reused; `verbose` shows each, and more tables."""
    from pipeline.results.tables import result_table, section_tables, stage_table

    if result.suite:
        show(*result.tables(), verdict=result.verdict)
        return
    record, stages = result.record, result.record.all_stages
    show(result_table(record), verdict=result.verdict)
    if verbose:
        tables = section_tables({record.name: record}, next(iter(record.metrics), ""))
        show(stage_table(record), *chain(*tables.values()))
    reused = [row.stage for row in stages if row.reused]
    computed = [row for row in stages if row.outcome == "computed"]
    seconds = sum(row.seconds or 0 for row in computed)
    preparing = sum(row.preparing_seconds or 0 for row in computed)
    clauses = [f"computed {counted(len(computed), 'stage')} in {seconds:,.1f} s"] if computed else []
    clauses += [f"reused: {', '.join(reused)}"] if reused else []
    once = f". One-time model preparation: {preparing:,.1f} s" if preparing else ""
    print("; ".join(clauses) + once + ("" if verbose else " (-v: each stage)"))
    print(f"written to {result.folder}")


def _show_summary(done: list[Result], count: int, verbose: bool) -> bool:
    """Show the results of `count` benchmarks after what their comparison says; whether they compare."""
    from pipeline.comparison.notes import data_notes
    from pipeline.comparison.side_by_side import compare
    from pipeline.results.tables import section_tables, summary_table

    compared = None
    with contextlib.suppress(InputError):  # other queries, other kinds
        compared = compare(done)
    decided = not compared or not compared.pairs or any(pair.shown for pair in compared.pairs)
    records = [result.record for result in done]
    notes = [f"Note: {note}." for note in data_notes(compared.loaded)] if compared else []
    table = summary_table(records, count)
    table = replace(table, notes=[*table.notes, *notes])
    show(table, verdict=compared.verdict if compared else "", decided=decided)
    measure = next(iter(records[0].metrics), "")
    tables = section_tables({record.name: record for record in records}, measure) if verbose else {}
    show(*(each for each in chain(*tables.values()) if each.columns[0].name == "result"))
    for parent in dict.fromkeys(result.folder.parent for result in done):
        print(f"written to {parent}")
    return compared is not None


def plan(
    configs: line.Configs = None,
    model: line.Models = None,
    data: line.Data = None,
    settings: Sets = None,
    passages: Annotated[
        int | None, option("Estimate for N passages; the data need not be there.", "N", min=1)
    ] = None,
    probing: Annotated[
        bool, option("Run it on a part of the built-in sample first, to measure it.", flags="--probe")
    ] = False,
    as_json: Json = False,
    *,
    studies: StudyOptions,
) -> None:
    """Show what a run would compute, and what it takes.

    That includes downloads. Nothing is computed but what --probe measures.
    """
    from pipeline.api import forecast

    loaded = load_line(configs, model, data, settings or (), look_only=True)
    plans = studies.plans(loaded)
    alone = [name for name, each in plans.items() if each.alone]
    if passages and alone:
        raise InputError(f"--passages with --{alone[0]}", allowed="one of them", fix="call plan twice")
    forecasts = forecast(loaded, passages=passages, probing=probing)
    unseen = [each for each in forecasts if each.unknown and not each.stages]
    if unseen and not any(config.suite for config in loaded):  # a suite lists what its collections lack
        raise InputError(f"{unseen[0].name}: {unseen[0].unknown.removesuffix('.')}")
    if as_json:
        documents = [each.document() for each in forecasts]
        for document, (name, plan) in product(documents, plans.items()):
            document[name] = plan.document(document["queries"])
        print_each(documents)
    elif alone:
        sizes = {known.queries: known.name for known in forecasts}
        queries, of = next(iter(sizes.items())) if len(sizes) == 1 else (None, "")
        for name in alone:
            print(f"{name}: {plans[name].sentence(of, queries)}")
    else:
        if not any(config.suite for config in loaded):
            show(*(plan_table(each) for each in forecasts))
        if len(forecasts) > 1:
            show(forecast_table(forecasts))
        for name, each in plans.items():
            print(f"{name}: {each.sentence()}")


def next_step(results: Sequence[Result], comparable: bool) -> str:
    """A line with the command that suits what was run: a comparison if they compare, or what a study says.

    It has the program as it was called: by name, by path or as a module; quoted for a shell.
    """
    judged = bool(results[0].suite or results[0].record.metrics)
    steps = [study.next_step for study in all_studies().values()]
    step = next((step for step in steps if step and step.judged == judged), None)
    if len(results) > 1 and comparable:
        step = NextStep("side by side", "compare {folders}")
    if step is None:
        return ""
    called, installed = Path(sys.argv[0]), shutil.which(DISTRIBUTION)
    is_found = installed and Path(installed).resolve() == called.resolve()
    program = [DISTRIBUTION if is_found or called.name != DISTRIBUTION else sys.argv[0]]
    if called.parts[-2:] == ("pipeline", "__main__.py"):
        program = [sys.executable, "-m", "pipeline"]
    folders = [str(result.folder) for result in results]
    several = shlex.join(folders if len(folders) > 1 else [*folders, "OTHER"])
    first, name = map(shlex.quote, (folders[0], results[0].folder.name))
    arguments = step.arguments.format(folders=several, folder=first, name=name)
    return f"{step.sentence}: {shlex.join(program)} {arguments}"
