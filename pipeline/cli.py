"""What can a user type? The commands; the only code that composes, prints, and maps errors to exit codes."""

from __future__ import annotations

import errno
import functools
import json
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.config import Config
    from pipeline.progress import Bar

app = typer.Typer(
    name="benchmarco",
    help="How well does an embedding model retrieve, and can you trust the number?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

Configs = Annotated[list[Path], typer.Argument(metavar="CONFIG...", help="A benchmark's YAML file.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="key.path=value", help="Change a setting of the config.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


def main() -> None:
    """Run the command line."""
    app()


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Map what a command raises to one message on stderr and its exit code."""

    @functools.wraps(command)
    def guarded(*args: Any, **kwargs: Any) -> None:
        logging.basicConfig(format="benchmarco: %(message)s", stream=sys.stderr)
        logging.getLogger("pipeline").setLevel(logging.INFO)
        try:
            command(*args, **kwargs)
        except InputError as error:
            _stop(str(error), BAD_INPUT)
        except KeyboardInterrupt:
            _stop("interrupted; run the same command again to go on where it stopped", INTERRUPTED)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            remedy = _REMEDIES.get(error.errno or 0, "what was finished is kept")
            _stop(f"{where}{error.strerror or error}; {remedy}", FAILED)

    return guarded


_ELSEWHERE = "name a folder that can be written with --set cache=DIR and --output DIR"
_REMEDIES = {
    errno.ENOSPC: "make room and run the same command again; what was finished is kept",
    errno.EDQUOT: "make room and run the same command again; what was finished is kept",
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.ENOTDIR: _ELSEWHERE,
    errno.EEXIST: _ELSEWHERE,
}
"""What to do about what a disk refuses."""


def _stop(message: str, code: int) -> None:
    print(f"benchmarco: {message}", file=sys.stderr)
    raise typer.Exit(code)


@app.command()
@_guarded
def run(
    configs: Configs,
    settings: Sets = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of result folders, instead of the config's.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make every artifact anew.")] = False,
) -> None:
    """Run benchmarks: load, encode, index, search, evaluate; reuse what is already there."""
    from pipeline.api import run_benchmark
    from pipeline.benchmark import Benchmark

    loaded = _load(configs, settings)
    for config in loaded:  # all of them are checked before the first is run
        Benchmark(config, _store(config)).check()
    for config in loaded:
        result = run_benchmark(config, output=output, fresh=fresh, progress=_progress)
        from pipeline.report.table import result_tables

        _show(*result_tables(result.metrics))
        print(f"written to {result.folder}")


@app.command()
@_guarded
def plan(configs: Configs, settings: Sets = None, as_json: Json = False) -> None:
    """Show each stage's key and whether its artifact is there; compute nothing."""
    from pipeline.benchmark import Benchmark

    loaded = _load(configs, settings)
    plans = {config.name: Benchmark(config, _store(config)).plan() for config in loaded}
    if as_json:
        _print_each([{"name": name, "stages": stages} for name, stages in plans.items()])
        return
    from pipeline.report.table import plan_table

    _show(*(plan_table(name, stages) for name, stages in plans.items()))


@app.command()
@_guarded
def evaluate(
    qrels: Annotated[Path, typer.Option(help="TREC or BEIR judgments; .gz is accepted.")],
    run: Annotated[Path, typer.Option(help="TREC run; .gz is accepted.")],
    measures: Annotated[
        str, typer.Option(help="Measures, separated by commas.")
    ] = "ndcg@10,mrr@10,recall@100,map@1000,precision@10",
    per_query: Annotated[Path | None, typer.Option(help="Write each query's values to this CSV.")] = None,
    ignore_identical_ids: Annotated[
        bool, typer.Option("--ignore-identical-ids", help="Drop documents whose id is the query's own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score any TREC run with any TREC or BEIR qrels, as trec_eval -c does."""
    from pipeline import api
    from pipeline.metrics.evaluation import write_per_query

    scored = api.evaluate(qrels, run, measures, ignore_identical_ids=ignore_identical_ids)
    names = [str(measure) for measure in scored.measures]
    means = dict(zip(names, scored.means.tolist(), strict=True))
    intervals = dict(
        zip(names, zip(scored.ci_low.tolist(), scored.ci_high.tolist(), strict=True), strict=True)
    )
    if per_query:
        with open(per_query, "w", encoding="utf-8", newline="") as file:
            write_per_query(file, scored.query_ids, scored.measures, scored.values)
    counts = {"queries": len(scored.query_ids), "missing": scored.missing, "unjudged": scored.unjudged}
    if as_json:
        _print_json({**counts, "metrics": means, "intervals": intervals})
        return
    from pipeline.report.table import measure_table

    title = (
        f"{run.name}: {counts['queries']:,} judged queries, {scored.missing:,} not in the run (score 0), "
        f"{scored.unjudged:,} queries of the run not judged (left out)"
    )
    _show(measure_table(title, means, intervals))


@app.command()
@_guarded
def data(configs: Configs, settings: Sets = None, as_json: Json = False) -> None:
    """Show what a collection holds, before anything is computed from it."""
    from pipeline.api import describe_data

    described = {config.name: describe_data(config, _progress) for config in _load(configs, settings)}
    if as_json:
        _print_each([{"name": name, **description} for name, description in described.items()])
        return
    from pipeline.report.collection import collection_view

    for name, description in described.items():
        _show(*collection_view(name, description))


@app.command()
@_guarded
def schema() -> None:
    """Print the config's JSON Schema, for editors."""
    from pipeline.config import json_schema

    _print_json(json_schema())


def _load(paths: list[Path], settings: list[str] | None) -> list[Config]:
    from pipeline.config import load_config

    loaded = [load_config(path, settings or ()) for path in paths]
    names = [config.name for config in loaded]
    for config, path in zip(loaded, paths, strict=True):
        if names.count(config.name) > 1:
            raise InputError(
                f"config {path}: another config is named '{config.name}' too",
                allowed="a name of its own for each: it names the result folder",
                fix="change one name",
            )
    return loaded


def _store(config: Config) -> Any:
    from pipeline.artifacts import Store

    return Store(Path(config.cache))


def _progress(label: str, total: int | None, unit: str) -> AbstractContextManager[Bar]:
    from tqdm import tqdm

    return tqdm(total=total, desc=label, unit=f" {unit}", file=sys.stderr, disable=None)


def _show(*parts: RenderableType) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    for part in parts:
        console.print(part)


def _print_each(documents: list[dict[str, Any]]) -> None:
    """One JSON document: the only one, or a list of several."""
    _print_json(documents[0] if len(documents) == 1 else documents)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
