"""The command `gate`: is a result as good as a baseline?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, check_file
from pipeline.cli.terminal import print_json, show
from pipeline.core.errors import InputError


def gate(
    folder: Annotated[Path, typer.Argument(metavar="RESULT_DIR", help="A result's folder.")],
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="RESULT", help="A result's folder, or a file of --write-baseline."),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option("--measure", help="A measure; may be repeated. By default the baseline's first."),
    ] = None,
    margin: Annotated[float, typer.Option(help="How far below the baseline a mean may be.")] = 0.01,
    alpha: Annotated[float, typer.Option(help="The chance to pass a result that is worse.")] = 0.05,
    max_slowdown: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Fail if slower by more than this share, such as 0.1."),
    ] = None,
    written: Annotated[
        Path | None, typer.Option("--write-baseline", metavar="FILE", help="Keep the result as a baseline.")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a comment.")] = False,
    as_json: Json = False,
) -> None:
    """Exit 0 if as good as a baseline, 3 if worse, 4 if unclear."""
    if baseline is None and written is None:
        raise InputError(
            "neither --baseline nor --write-baseline",
            allowed="gate RESULT_DIR --baseline RESULT",
            fix="name what to compare with",
        )
    if as_json and as_markdown:
        raise InputError("--json and --markdown", allowed="one of them", fix="leave one out")
    if written:
        check_file(written, "--write-baseline")
    from pipeline.report.markup import markdown
    from pipeline.results import gate as gates
    from pipeline.results.baseline import read_baseline, write_baseline
    from pipeline.results.folder import read_result
    from pipeline.results.suite_folder import is_suite
    from pipeline.results.suite_gate import gate_suites, read_both

    def end(made: gates.Gate) -> int:
        if as_json:
            print_json(made.json())
        elif as_markdown:
            print(markdown(made.tables()), end="")
        else:
            show(*made.tables())
        return gates.EXIT_CODES[made.verdict]

    code = 0
    if is_suite(folder) or (baseline is not None and is_suite(baseline)):
        _refuse_for_suites(written, max_slowdown)
        suite, other = read_both(folder, baseline)
        assert other is not None
        code = end(gate_suites(suite, other, measures or (), margin, alpha))
    else:
        result = read_result(folder)
        if baseline is not None:
            before = read_baseline(baseline)
            code = end(gates.gate(result, before, measures or (), margin, alpha, max_slowdown))
    if written:
        names = [result.record.name] * 2
        kept = gates.choose_measures(result, result, measures, names) if measures else result.measures
        write_baseline(result, kept, written)
        print(f"baseline written to {written}", file=sys.stderr)
    if code:
        sys.stdout.flush()
        raise typer.Exit(code)


def _refuse_for_suites(written: Path | None, max_slowdown: float | None) -> None:
    """Refuse options that are for results of one collection."""
    for option, value in (("--write-baseline", written), ("--max-slowdown", max_slowdown)):
        if value is not None:
            raise InputError(
                f"{option} with a suite",
                allowed=f"{option} with a result of one collection",
                fix="leave it out; the folder of a suite is its own baseline",
            )
