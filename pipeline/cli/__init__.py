"""The command line: all commands, each with an example. The modules beside this one carry them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.cli import about, cache, exchange, running, scoring
from pipeline.cli.terminal import end_at_second_interrupt, guarded, open_closed_streams
from pipeline.core import removed

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
    """A group of commands; one that lacks an argument shows its example."""

    def invoke(self, ctx: Any) -> object:
        """Run the named command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.ctx and not error.message:
                error.message = error.ctx.command.epilog or ""
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command by its name; refuse commands and options of earlier releases."""
        command, *given = args
        if command in removed.COMMANDS:
            ctx.fail(f"the command '{command}' no longer exists: {removed.COMMANDS[command]}.")
        for (name, option), instead in removed.OPTIONS.items():
            if name == command and any(each.partition("=")[0] == option for each in given):
                ctx.fail(f"{option} of '{command}' no longer exists: {instead}.")
        return super().resolve_command(ctx, args)


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "run": (running.run, "mine.yaml; 'benchmarco example > mine.yaml' writes one"),
    "plan": (running.plan, "mine.yaml"),
    "data": (running.data, "mine.yaml"),
    "suites": (about.suites, ""),
    "evaluate": (scoring.evaluate, "--qrels qrels.tsv --run run.trec --measures 'ndcg@10,recall@100'"),
    "compare": (scoring.compare, "results/A results/B --measure ndcg@10"),
    "export": (exchange.export, "results/A --mteb exported"),
    "gate": (scoring.gate, "results/new --baseline results/released --margin 0.01"),
    "pool": (exchange.pool, "results/A results/B --output pool.tsv --depth 10"),
    "reproduce": (exchange.reproduce, "results/A"),
    "report": (scoring.report, "results/A --html page.html"),
    "fuse": (exchange.fuse, "a.trec b.trec --output fused.trec --method rrf"),
    "example": (about.example, "> mine.yaml"),
    "schema": (about.schema, "> schema.json"),
    "doctor": (about.doctor, ""),
}
"""Each command's function, and the arguments of its example."""
CACHE_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "list": (cache.list_artifacts, ""),
    "verify": (cache.verify, "--cache indexes"),
    "prune": (cache.prune, "--older-than 30d --yes"),
}

HELP_OPTIONS = {"help_option_names": ["--help", "-h"]}

app = typer.Typer(
    name="benchmarco",
    cls=Commands,
    context_settings=HELP_OPTIONS,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cache_app = typer.Typer(
    help="List, check and prune stored artifacts.",
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
    rich_markup_mode=None,
)
for _name, (_command, _example) in COMMANDS.items():
    app.command(_name, epilog=f"Example: benchmarco {_name} {_example}".rstrip())(guarded(_command))
for _name, (_command, _example) in CACHE_COMMANDS.items():
    cache_app.command(_name, epilog=f"Example: benchmarco cache {_name} {_example}".rstrip())(
        guarded(_command)
    )
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
    """Print an overview when no command is given."""
    if ctx.invoked_subcommand is None:
        print(f"{HELP}\n\n{OVERVIEW}")


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    end_at_second_interrupt()
    guarded(app)()  # the commands are guarded already; this covers help and usage errors
