"""The command line: all commands, each with an example. The modules beside this one carry them out.

Commands of a study are in its `command.py`.
"""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from pipeline.cli import about, running, scoring
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import overwrites
from pipeline.studies.study import StudyOptions
from pipeline.studies.table import all_studies
from pipeline.terminal import guarded, option, progress, what_happened as what_happened

__all__ = ["COMMANDS", "app", "guarded", "main", "progress"]

HELP = "How well does an embedding model retrieve, and can you trust the number?"
OVERVIEW = """\
Try a model, on the built-in sample or on your own data:
  benchmarco run --model all-minilm-l6-v2 --data sample
  benchmarco example > mine.yaml      # then: benchmarco run mine.yaml
Compare two results, with significance tests:
  benchmarco compare results/A results/B
Score the run of any system:
  benchmarco evaluate --qrels qrels.tsv --run run.trec

All commands: benchmarco --help"""


class ExampleCommand(TyperCommand):
    """A command that shows its example where it lacks an argument."""

    @override
    def make_context(self, *called: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*called, **extra)
        except typer.BadParameter as error:
            error.message = error.message or self.epilog or ""
            raise


FIRST = (
    "run", "plan", "data", "compare", "gate", "verify", "evaluate", "fuse", "report", "cache", "doctor",
    "example",
)  # fmt: skip
"""The commands that the help explains."""
MORE: dict[str, Sequence[str]] = {
    "labels and judges": ("pool", "judge", "questions"),
    "exchange": ("export", "reproduce", "suites", "schema"),
}
"""Those that it only names, by what they are for."""


class GroupedHelp(TyperGroup):
    """A group whose help lists commands by what they are for."""

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, FIRST))
        with formatter.section("Commands"):
            rows = [(name, self.commands[name].get_short_help_str(width)) for name in FIRST if name in names]
            formatter.write_dl(rows, col_spacing=2)
        listed = {*FIRST, *chain.from_iterable(MORE.values())}
        more = MORE | {"further questions": [name for name in names if name not in listed]}
        with formatter.section("More, each with --help"):
            rows = [(of, ", ".join(name for name in group if name in names)) for of, group in more.items()]
            formatter.write_dl([row for row in rows if row[1]], col_spacing=2)


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "run": (running.run, "--model all-minilm-l6-v2 --data sample"),
    "plan": (running.plan, "mine.yaml"),
    "suites": (about.suites, ""),
    "evaluate": (scoring.evaluate, "--qrels qrels.tsv --run run.trec --measures 'ndcg@10,recall@100'"),
    "compare": (scoring.compare, "results/A results/B --measure ndcg@10"),
    "example": (about.example, "> mine.yaml"),
    "schema": (about.schema, "> schema.json"),
    "doctor": (about.doctor, "mine.yaml"),
}
"""Each command's function, and the arguments of its example; a name of two words is a command of a group."""
RESUMED = {"run"}
"""Commands that keep what they finished before an interrupt."""
GROUPS: dict[str, str] = {}
"""The help of each group of commands."""
for _study in all_studies().values():
    for _name, _new in _study.commands.items():
        COMMANDS[_name] = _new.function, _new.example
        GROUPS |= {_name.split()[0]: _study.question} if " " in _name else {}
        RESUMED |= {_name} if _new.resumes else set()

WRITTEN = {"cleaned", "export", "html", "mteb", "output", "per_query"}
"""Options of commands that name what they write."""
HELP_OPTIONS = {"help_option_names": ["--help", "-h"]}


def with_options(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """A command, guarded, with the options that several have.

    Those are: of studies, where it takes `studies`; `--format`, where it prints JSON; and `--force`, where it
    writes what the user names.
    """
    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    studies = all_studies() if parameters.pop("studies", None) else {}
    added: dict[str, Any] = {}  # the options by name, as annotations
    for study in studies.values():
        added |= study.plan_options if name == "plan" else study.options
        if name == "compare":
            added |= {file: output.option for file, output in study.outputs.items()}
    of_studies = list(added)
    flags = {form: f"as_{form}" for form in ("json", "markdown") if f"as_{form}" in parameters}
    has_format = "json" in flags and "form" not in parameters

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        token = overwrites.set(bool(arguments.pop("force", False)))
        again = "the same command again" + " without --fresh" * bool(arguments.get("fresh"))
        try:
            with guarded(f"; run {again} to go on where it stopped" if name in RESUMED else ""):
                if has_format:
                    form = arguments.pop("form")
                    asked = {form: f"--format {form}"} if form else {}
                    asked |= {each: f"--{each}" for each, flag in flags.items() if arguments[flag]}
                    if len(asked) > 1:
                        both = " and ".join(asked.values())
                        raise InputError(f"{both} are both given", fix="leave one out")
                    arguments |= {flag: each in asked for each, flag in flags.items()}
                if studies:
                    values = {each: arguments.pop(each) for each in of_studies}
                    arguments["studies"] = StudyOptions(studies, values)
                command(**arguments)
        finally:
            overwrites.reset(token)

    if has_format:  # beside the flag of each form
        choices: Any = Literal[("table", *flags)]
        added["form"] = Annotated[choices | None, option("Output format.", flags="--format")]
    if WRITTEN & {*parameters, *added}:
        text = "Also overwrite files that benchmarco did not write."
        added["force"] = Annotated[bool | None, option(text, flags="--force")]
    named = inspect.Parameter.KEYWORD_ONLY
    for each, annotation in added.items():
        parameters[each] = inspect.Parameter(each, named, default=None, annotation=annotation)
    if name == "compare":
        helps = filter(None, (study.compare_help for study in studies.values()))
        run.__doc__ = " ".join([(command.__doc__ or "").rstrip(), *helps])
    wrapped: Any = run
    wrapped.__annotations__ = {each: parameter.annotation for each, parameter in parameters.items()}
    wrapped.__signature__ = inspect.Signature(list(parameters.values()))
    return run


app = typer.Typer(
    name="benchmarco",
    cls=GroupedHelp,
    context_settings=HELP_OPTIONS,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_apps = {"": app}
for _name, _help in GROUPS.items():
    _apps[_name] = typer.Typer(
        help=_help, no_args_is_help=True, context_settings=HELP_OPTIONS, rich_markup_mode=None
    )
for _name, (_command, _example) in COMMANDS.items():
    _group, _, _last = _name.rpartition(" ")
    _epilog = f"Example: benchmarco {_name} {_example}".rstrip()
    _apps[_group].command(_last, cls=ExampleCommand, epilog=_epilog)(with_options(_name, _command))
for _name in GROUPS:
    app.add_typer(_apps[_name], name=_name)


@app.callback(invoke_without_command=True, help=HELP)
@guarded()
def overview(
    ctx: typer.Context,
    version: Annotated[bool, option("Print the version.", flags="--version")] = False,
) -> None:
    """Print an overview when no command is given."""
    if version:
        import pipeline

        print(f"benchmarco {pipeline.__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(f"{HELP}\n\n{OVERVIEW}")


def main() -> None:
    """Run the command line.

    The first Ctrl-C ends a command cleanly, and a second one at once, even while the first waits.
    """

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell ignores it
        signal.signal(signal.SIGINT, interrupt)
    with guarded():  # the commands are guarded already; this covers help and usage errors
        app()
