"""What can a user type? The commands: the only code that composes, and with `terminal` all that prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.errors import InputError
from pipeline.terminal import FAILED, guarded, print_each, print_json, progress, show

if TYPE_CHECKING:
    from pipeline.config import Config

app = typer.Typer(
    name="benchmarco",
    help="How well does an embedding model retrieve, and can you trust the number?",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

cache = typer.Typer(
    help="What is stored, whether it is intact, what can go.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(cache, name="cache")

Configs = Annotated[list[Path], typer.Argument(metavar="CONFIG...", help="A benchmark's YAML file.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="key.path=value", help="Change a setting of the config.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
CacheFolder = Annotated[Path, typer.Option("--cache", metavar="DIR", help="Folder of artifacts.")]


def main() -> None:
    """Run the command line."""
    app()


@app.command()
@guarded
def run(
    configs: Configs,
    settings: Sets = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of result folders, instead of the config's.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make every artifact anew.")] = False,
) -> None:
    """Run benchmarks: load, encode, index, search, evaluate; reuse what is already there."""
    from pipeline.api import check_benchmark, run_benchmark

    loaded = _load(configs, settings)
    for config in loaded[1:]:  # before the first is run, which checks itself
        check_benchmark(config, output=output)
    for config in loaded:
        result = run_benchmark(config, output=output, fresh=fresh, progress=progress)
        from pipeline.report.table import result_tables

        show(*result_tables(result.metrics))
        print(f"written to {result.folder}")


@app.command()
@guarded
def plan(configs: Configs, settings: Sets = None, as_json: Json = False) -> None:
    """Show each stage's key and whether its artifact is there; compute nothing."""
    from pipeline.benchmark import Benchmark

    loaded = _load(configs, settings)
    plans = {config.name: Benchmark(config, _store(config)).plan() for config in loaded}
    if as_json:
        print_each([{"name": name, "stages": stages} for name, stages in plans.items()])
        return
    from pipeline.report.table import plan_table

    show(*(plan_table(name, stages) for name, stages in plans.items()))


@app.command()
@guarded
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

    if per_query:
        _check_file(per_query, "--per-query")
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
        print_json({**counts, "metrics": means, "intervals": intervals})
        return
    from pipeline.report.table import measure_table

    title = (
        f"{run.name}: {counts['queries']:,} judged queries, {scored.missing:,} not in the run (score 0), "
        f"{scored.unjudged:,} queries of the run not judged (left out)"
    )
    show(measure_table(title, means, intervals))


@app.command()
@guarded
def data(configs: Configs, settings: Sets = None, as_json: Json = False) -> None:
    """Show what a collection holds, before anything is computed from it."""
    from pipeline.api import describe_data

    described = {config.name: describe_data(config, progress) for config in _load(configs, settings)}
    if as_json:
        print_each([{"name": name, **description} for name, description in described.items()])
        return
    from pipeline.report.collection import collection_view

    for name, description in described.items():
        show(*collection_view(name, description))


@app.command()
@guarded
def schema() -> None:
    """Print the config's JSON Schema, for editors."""
    from pipeline.config import json_schema

    print_json(json_schema())


@cache.command("list")
@guarded
def cache_list(folder: CacheFolder = Path("indexes"), as_json: Json = False) -> None:
    """Show each artifact's size and age, what it was made from and what uses it."""
    from pipeline.cache import listing

    rows = listing(folder)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
        return
    from pipeline.report.table import cache_table

    show(cache_table(str(folder), rows))


@cache.command("verify")
@guarded
def cache_verify(folder: CacheFolder = Path("indexes"), as_json: Json = False) -> None:
    """Compare every byte with its checksum; exit code 1 if anything is damaged."""
    from pipeline.cache import verify

    rows = verify(folder)
    damaged = sum(row["state"] == "damaged" for row in rows)
    if as_json:
        print_json({"cache": str(folder), "damaged": damaged, "artifacts": rows})
    else:
        from pipeline.report.table import verify_table

        show(verify_table(str(folder), rows))
    if damaged:
        raise typer.Exit(FAILED)


@cache.command("prune")
@guarded
def cache_prune(
    configs: Annotated[
        list[Path] | None, typer.Argument(metavar="[CONFIG]...", help="What these use is kept.")
    ] = None,
    settings: Sets = None,
    unused: Annotated[
        bool, typer.Option("--unused", help="All that no CONFIG given uses may go.", show_default=False)
    ] = False,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="What no run used for so long may go: 12h, 30d, 8w.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The least recently used may go until this is left: 10GB."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it, instead of only saying what would go.")
    ] = False,
    folder: CacheFolder = Path("indexes"),
    as_json: Json = False,
) -> None:
    """Say what of the cache can go, and with --yes remove it; what a running process uses stays."""
    from pipeline.benchmark import Benchmark
    from pipeline.cache import Limits, parse_age, parse_size, prune

    if (unused and not configs) or not (unused or older_than or size):
        raise InputError(
            "cache prune: " + ("--unused without a config" if unused else "what may go is not said"),
            allowed="--older-than AGE, --size SIZE, or --unused with the configs whose artifacts stay",
            fix="name at least one of them",
        )
    recipes = [
        recipe
        for config in _load(configs or [], settings)
        for recipe in Benchmark(config, _store(config)).recipes.values()
    ]
    limits = Limits(unused, parse_age(older_than) if older_than else None, parse_size(size) if size else None)
    rows = prune(folder, recipes, limits, dry=not yes)
    if as_json:
        print_json({"cache": str(folder), "bytes": sum(row["bytes"] for row in rows), "artifacts": rows})
        return
    from pipeline.report.table import prune_table

    show(prune_table(str(folder), rows, dry=not yes))


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


def _check_file(path: Path, option: str) -> None:
    """Refuse a file that cannot be written, before the work that it is for."""
    if path.is_dir() or not path.parent.is_dir():
        found = "is a folder" if path.is_dir() else f"no folder {path.parent}"
        raise InputError(
            f"{option} {path}: {found}", allowed="a file in a folder that is there", fix="name another"
        )


def _store(config: Config) -> Any:
    from pipeline.artifacts import Store

    return Store(Path(config.cache))
