"""What can a user type? All commands, each with an example; the modules beside it do what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.cli import cache, running, scoring
from pipeline.cli.terminal import end_at_second_interrupt, guarded, open_closed_streams, print_json

HELP = "How well does an embedding model retrieve, and can you trust the number?"
OVERVIEW = """\
Try a model, on the built-in sample or on your own data:
  benchmarco example > mine.yaml
  benchmarco run mine.yaml
Compare two results, with significance tests:
  benchmarco compare results/A results/B
Score the run of any system:
  benchmarco evaluate --qrels qrels.tsv --run run.trec

All commands: benchmarco --help"""


class Commands(TyperGroup):
    """Commands that show their example where something is missing."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is named."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.ctx and not error.message:
                error.message = error.ctx.command.epilog or ""
            raise


def schema() -> None:
    """Print the config's JSON Schema, for editors."""
    from pipeline.config.sweep import file_schema

    print_json(file_schema())


def example() -> None:
    """Print a config that runs as it is, to start from."""
    print((Path(__file__).parents[1] / "example.yaml").read_text(encoding="utf-8"), end="")


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "run": (running.run, "mine.yaml; 'benchmarco example > mine.yaml' writes one"),
    "plan": (running.plan, "mine.yaml"),
    "data": (running.data, "mine.yaml"),
    "evaluate": (scoring.evaluate, "--qrels qrels.tsv --run run.trec --measures 'ndcg@10,recall@100'"),
    "compare": (scoring.compare, "results/A results/B --measure ndcg@10"),
    "report": (scoring.report, "results/A --html page.html"),
    "example": (example, "> mine.yaml"),
    "schema": (schema, "> schema.json"),
}
"""What each command does, and what may stand after its name."""
CACHE_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "list": (cache.list_artifacts, ""),
    "verify": (cache.verify, "--cache indexes"),
    "prune": (cache.prune, "--older-than 30d --yes"),
}

app = typer.Typer(
    name="benchmarco",
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(
    help="What is stored, whether it is intact, what can go.", no_args_is_help=True, rich_markup_mode=None
)
for _name, (_command, _words) in COMMANDS.items():
    app.command(_name, epilog=f"Example: benchmarco {_name} {_words}")(guarded(_command))
for _name, (_command, _words) in CACHE_COMMANDS.items():
    cache_app.command(_name, epilog=f"Example: benchmarco cache {_name} {_words}".rstrip())(guarded(_command))
app.add_typer(cache_app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        import pipeline

        print(f"benchmarco {pipeline.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True, help=HELP)
def overview(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Say what people do with it, to who types only its name."""
    if ctx.invoked_subcommand is None:
        print(f"{HELP}\n\n{OVERVIEW}")


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    end_at_second_interrupt()
    guarded(app)()  # once more, for what no command of its own prints, such as help
