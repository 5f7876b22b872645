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
    alpha: Annotated[
        float, typer.Option(help="Significance level: probability of passing a worse result.")
    ] = 0.05,
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
    from pipeline.comparison import gate as gates
    from pipeline.report.renderings import markdown
    from pipeline.results.suite_folder import read_suite_result

    result = read_suite_result(folder)
    code = 0
    if baseline is not None:
        made = gates.gate(result, gates.read_baseline(baseline), measures or (), margin, alpha)
        if as_json:
            print_json(made.json())
        elif as_markdown:
            print(markdown(made.tables()), end="")
        else:
            show(*made.tables())
        code = gates.EXIT_CODES[made.verdict]
    if written:
        gates.write_baseline(result, measures or (), written)
        print(f"baseline written to {written}", file=sys.stderr)
    if code:
        sys.stdout.flush()
        raise typer.Exit(code)
