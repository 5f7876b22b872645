"""The command of the study: `verify`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_output
from pipeline.studies.shared.printing import print_as
from pipeline.studies.study import Command, Study
from pipeline.terminal import Json, Sets, argument, option, progress


def verify(
    targets: Annotated[
        list[Path] | None, argument("Configs to run, or finished results.", "CONFIG|RESULT_DIR")
    ] = None,
    expected: Annotated[
        list[Path] | None, option("Published scores (formats: docs/verify.md); may be repeated.", "FILE")
    ] = None,
    run: Annotated[Path | None, option("A TREC run, instead of configs or results.", "FILE")] = None,
    qrels: Annotated[Path | None, option("Qrels of --run.", "FILE")] = None,
    why: Annotated[
        bool, option("Try the usual causes of a score that is not reproduced.", flags="--why")
    ] = False,
    minutes: Annotated[float, option("Time limit of --why, for all scores together.", min=0.1)] = 10.0,
    settings: Sets = None,
    as_json: Json = False,
    as_markdown: Annotated[bool, option("Print Markdown.", flags="--markdown", hidden=True)] = False,
    html: Annotated[Path | None, option("Write an HTML page.", "FILE")] = None,
    lint: Annotated[
        bool, option("Only look for values in result files that contradict each other.", flags="--lint")
    ] = False,
) -> None:
    """Compare measured with published scores.

    The exit code is 0 if all are reproduced, 3 if one is not, 4 if none failed but some cannot be compared.
    """
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
    from pipeline.studies.verify import verification as scores

    verdicts = scores.verify(
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
    verdicts = replace(verdicts, command=shlex.join(map(str, ("benchmarco", "verify", *again))))
    print_as(verdicts, as_json, as_markdown, html, "Published scores")
    raise typer.Exit(scores.EXIT_CODES[verdicts.verdict])


def _lint(files: list[Path], as_json: bool, as_markdown: bool, others: list[object]) -> None:
    """Print what contradicts itself in result files; exits with 3 if anything does."""
    if not files or any(others):
        raise InputError(
            "--lint " + ("with options of other checks" if files else "without a file"),
            allowed="verify --lint FILE... [--json] [--markdown]",
            fix="name files or folders, and leave other options out",
        )
    from pipeline.studies.verify.contradictions import lint_files

    lint = lint_files(files)
    print_as(lint, as_json, as_markdown)
    raise typer.Exit(3 if lint.contradictions else 0)


STUDY = Study(
    "Are published scores reproduced, and if not, why?",
    {"verify": Command(verify, "mine.yaml --expected SciFact.json", resumes=True)},
)
