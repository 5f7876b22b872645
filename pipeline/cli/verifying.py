"""The command `verify`: published scores, and what explains a difference from them."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.terminal import Json, Sets, print_json, progress, show
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_output, write_whole

if TYPE_CHECKING:
    from pipeline.comparison.verify import Verification
    from pipeline.results.lint import Lint


def verify(
    targets: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONFIG|RESULT_DIR", help="Benchmarks to run, or results that are finished."),
    ] = None,
    expected: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Published scores; may be repeated. See docs/verify.md."),
    ] = None,
    run: Annotated[Path | None, typer.Option(metavar="FILE", help="A TREC run, with --qrels.")] = None,
    qrels: Annotated[Path | None, typer.Option(metavar="FILE", help="Its TREC or BEIR judgments.")] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Try what usually explains a score that is not reproduced.")
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="How long --why may take, for all together.")
    ] = 10.0,
    settings: Sets = None,
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    lint: Annotated[
        bool,
        typer.Option(
            "--lint", help="Check stored results for values that cannot be; no scores are computed."
        ),
    ] = False,
) -> None:
    """Compare measured with published scores.

    Exits with 0 if all are reproduced, 3 if one is not, 4 if the others cannot be compared.
    """
    if as_json and as_markdown:
        raise InputError("--json and --markdown", allowed="one of them", fix="leave one out")
    if lint:
        _lint(targets or [], as_json, as_markdown, others=[expected, run, qrels, why, settings, html])
        return
    if (run is None) != (qrels is None) or (run is None) == (not targets):
        raise InputError(
            "nothing to verify" if run is None and not targets else "--run, --qrels and other arguments",
            allowed="configs or result folders; or --run FILE --qrels FILE --expected FILE",
            fix="give one of the two",
        )
    if html:
        check_output(html, "--html", [*(targets or ()), *(expected or ())])
    from pipeline import api
    from pipeline.comparison.verify import EXIT_CODES

    made = api.verify(
        targets or (),
        expected=expected or (),
        run=run,
        qrels=qrels,
        why=why,
        minutes=minutes,
        overrides=settings or (),
        progress=progress,
    )
    options: list[tuple[str, Path | str]] = [("--expected", each) for each in expected or ()]
    options += [("--run", run), ("--qrels", qrels)] if run and qrels else []
    options += [("--set", each) for each in settings or ()]
    again = [*(targets or ()), *chain.from_iterable(options), *(["--why"] if why else [])]
    made = replace(made, command=shlex.join(map(str, ("benchmarco", "verify", *again))))
    _print(made, as_json, as_markdown)
    if html:
        write_whole(html, made.page().encode())
        print(f"page written to {html}", file=sys.stderr)
    if code := EXIT_CODES[made.verdict]:
        sys.stdout.flush()
        raise typer.Exit(code)


def _print(made: Verification | Lint, as_json: bool, as_markdown: bool) -> None:
    """Print JSON, Markdown or tables."""
    from pipeline.report.renderings import markdown

    if as_json:
        print_json(made.json())
    elif as_markdown:
        print(markdown(made.tables()), end="")
    else:
        show(*made.tables())


def _lint(files: list[Path], as_json: bool, as_markdown: bool, others: list[object]) -> None:
    """Print what contradicts itself in result files; exits with 3 if anything does."""
    if not files or any(others):
        raise InputError(
            "--lint " + ("with options of other checks" if files else "without a file"),
            allowed="verify --lint FILE... [--json] [--markdown]",
            fix="name files or folders, and leave other options out",
        )
    from pipeline.results.lint import lint

    found = lint(files)
    _print(found, as_json, as_markdown)
    if found.found:
        sys.stdout.flush()
        raise typer.Exit(3)
