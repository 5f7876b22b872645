"""The commands on scores: `evaluate`, `compare`, `report`, `gate` and `verify`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.terminal import (
    Json,
    Sets,
    Verbose,
    end_with,
    print_each,
    print_json,
    progress,
    show,
    show_verdict,
)
from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_output, write_whole

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.gate.gate import Gate
    from pipeline.studies.verify.lint import Lint
    from pipeline.studies.verify.verification import Verification


class Format(StrEnum):
    """The forms in which `compare` prints."""

    table = "table"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"


Baseline = Annotated[
    Path | None,
    typer.Option(metavar="RESULT_DIR", help="Compare the others with this result only, not every pair."),
]
Groups = Annotated[
    bool | None,
    typer.Option(
        "--groups/--no-groups",
        help="Also compare within groups of queries. The default for a page of up to 2,000 queries.",
        show_default=False,
    ),
]
MANY_MEASURES = (
    "{} measures: p is corrected for the pairs of one measure, and not for the number of measures. The more "
    "are looked at, the likelier one shows a difference by chance: decide on one beforehand."
)
QUERIES_GROUPED = 2_000
"""Most queries that a page shows in groups unless it is told to."""


def _grouped(compared: Comparison, wanted: bool | None) -> Comparison:
    """The comparison with groups of queries, where they are wanted, or can be had soon for a page."""
    if wanted:
        return compared.with_groups()
    few = not compared.of_suites and len(compared.query_ids) <= QUERIES_GROUPED
    if wanted is None and few:
        try:
            return compared.with_groups()
        except InputError:  # without the collection; the page says so
            return compared
    return compared


def evaluate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN... QRELS]", help="TREC runs, then qrels: as --run RUN --qrels QRELS."),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Qrels, in TREC or BEIR format; may be .gz.", show_default=False)
    ] = None,
    runs: Annotated[
        list[Path] | None, typer.Option("--run", help="A TREC run; may be .gz, and repeated.")
    ] = None,
    measures: Annotated[
        str | None,
        typer.Option(help="Measures separated by commas: ndcg@10,mrr@10. By default as in run."),
    ] = None,
    per_query: Annotated[
        Path | None, typer.Option(help="Write the measures of each query to this CSV file.")
    ] = None,
    ignore_identical_ids: Annotated[
        bool, typer.Option("--ignore-identical-ids", help="Drop documents with the id of their query.")
    ] = False,
    single_precision: Annotated[
        bool,
        typer.Option("--single-precision", help="Compare scores in float32, as trec_eval did before 9.0.8."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Score TREC runs with TREC or BEIR qrels, like trec_eval."""
    from pipeline import api
    from pipeline.config import MEASURES
    from pipeline.metrics.evaluation import runs_table, write_per_query

    runs, files = [*(runs or [])], [*(files or [])]
    if qrels is None and files:
        qrels = files.pop()
    runs += files
    if qrels is None or not runs:
        raise InputError(
            f"{counted(len(runs), 'run')} and {'no' if qrels is None else 'their'} judgments",
            allowed="evaluate RUN... QRELS, or --run RUN --qrels QRELS",
        )
    if per_query:
        check_output(per_query, "--per-query", [qrels, *runs])
    if per_query and len(runs) > 1:
        raise InputError(f"--per-query with {len(runs)} runs", allowed="one run", fix="score each by itself")
    score = partial(
        api.evaluate,
        qrels,
        measures=MEASURES if measures is None else measures,
        ignore_identical_ids=ignore_identical_ids,
        single_precision=single_precision,
    )
    all_scored = list(map(score, runs))
    if as_json:
        documents = [scored.json() for scored in all_scored]
        print_each([{"run": str(run), **each} for run, each in zip(runs, documents, strict=True)])
    elif len(runs) > 1:
        show(runs_table(list(map(str, runs)), all_scored))
    else:
        show(*all_scored[0].tables())
    if per_query:
        (scored,) = all_scored
        with open(per_query, "w", encoding="utf-8", newline="") as file:
            write_per_query(file, scored.query_ids, scored.measures, scored.values)


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="RESULT_DIR", help="A result folder. With --qrels, also a TREC run file."),
    ],
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            help="Measure to compare; may be repeated. By default the first that all results have.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Qrels that score the run files; may be .gz.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained page to this file.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.table,
    baseline: Baseline = None,
    groups: Groups = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compare results: confidence intervals, paired tests, cost.

    In a difference a - b, a is the result named first.
    """
    from pipeline.comparison import side_by_side

    if as_json and form is not Format.table:
        raise InputError(f"--json and --format {form} are both given", fix="leave one out")
    if groups and form is Format.csv:
        raise InputError(
            "--groups with --format csv",
            allowed="--groups with a table, markdown, latex or --json",
            fix="take another format",
        )
    chosen: Sequence[str | None] = measures or [None]
    if html:
        check_output(html, "--html", [*folders, *filter(None, (qrels, baseline))])
        _check_page(folders, measures)
    made = [side_by_side.compare(folders, measure, baseline, qrels) for measure in chosen]
    compared = [_grouped(each, groups) for each in made] if groups or html else made
    if html:
        from pipeline.report.page.render import write_page

        write_page(compared[0], html)
    if as_json:
        print_each([each.json() for each in compared])
        return
    short = form is Format.table and not verbose
    tables = []
    for each in compared:
        tables += each.short_tables() if short else each.tables()
        if short and groups and each.groups:
            tables += each.groups.tables()
    if len(compared) > 1:
        tables[-1] = replace(tables[-1], notes=[*tables[-1].notes, MANY_MEASURES.format(len(compared))])
    if form is Format.table:
        for each in compared:
            show_verdict(each.verdict, any(pair.shown for pair in each.pairs) or not each.pairs)
        show(*tables)
        if short:
            print("-v shows every test, cost and change of rankings; --html FILE writes a page")
    else:
        from pipeline.report import renderings

        write = {Format.markdown: renderings.markdown, Format.latex: renderings.latex}.get(form)
        figures = [each.figures() for each in compared]
        whole = replace(figures[0], rows=[row for each in figures for row in each.rows])
        print(write(tables) if write else renderings.csv_text(whole), end="")
    if html:
        print(f"page written to {html}", file=sys.stderr)


def _check_page(results: Sequence[Path], measures: Sequence[str] | None) -> None:
    """Refuse what a page cannot show: several measures, and run files without their collection."""
    if measures and len(measures) > 1:
        raise InputError(
            f"--html with {len(measures)} measures",
            allowed="one measure; the page has the means of all",
            fix="write a page for each",
        )
    if files := [path for path in results if path.is_file()]:
        raise InputError(
            f"--html with the run file {files[0]}",
            allowed="result folders, which say where texts are",
            fix="leave out --html",
        )


def report(
    folder: Annotated[Path, typer.Argument(metavar="RESULT_DIR", help="A result folder.")],
    html: Annotated[Path, typer.Option(metavar="FILE", help="Write the page to this file.")],
    measure: Annotated[
        str | None,
        typer.Option(help="Measure shown for each query; by default the result's first."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="RESULT_DIR", help="Also show this result, and test the difference."),
    ] = None,
    groups: Groups = None,
) -> None:
    """Write one result as a self-contained HTML page."""
    from pipeline.comparison.side_by_side import compare
    from pipeline.report.page.render import write_page

    check_output(html, "--html", [folder, *([baseline] if baseline else [])])
    write_page(_grouped(compare([folder], measure, baseline), groups), html)
    print(f"page written to {html}", file=sys.stderr)


def gate(
    folder: Annotated[Path, typer.Argument(metavar="RESULT_DIR", help="Result folder of the new version.")],
    baseline: Annotated[
        Path, typer.Option(metavar="RESULT_DIR", help="Result folder of the version it may not fall behind.")
    ],
    measures: Annotated[
        list[str] | None,
        typer.Option("--measure", help="Measure to check; may be repeated. By default the baseline's first."),
    ] = None,
    margin: Annotated[float, typer.Option(help="Largest acceptable loss of a mean.")] = 0.01,
    alpha: Annotated[
        float, typer.Option(help="Significance level: probability of passing a worse result.")
    ] = 0.05,
    guarantee: Annotated[
        bool,
        typer.Option("--guarantee", help="Use bounds that are valid for any distribution of differences."),
    ] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: Json = False,
) -> None:
    """Test whether a result is as good as a baseline.

    The exit code is 0 if it is, 3 if it is worse, 4 if the queries are too few to decide.
    """
    _refuse_both(as_json, as_markdown)
    from pipeline.studies.gate import gate as gates

    made = gates.gate_result(folder, baseline, measures or (), margin, alpha, guarantee)
    _print(made, as_json, as_markdown)
    end_with(gates.EXIT_CODES[made.verdict])


def verify(
    targets: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONFIG|RESULT_DIR", help="Configs to run, or finished results."),
    ] = None,
    expected: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Published scores (formats: docs/verify.md); may be repeated."),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TREC run, instead of configs or results.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(metavar="FILE", help="Qrels of --run.")] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Try the usual causes of a score that is not reproduced.")
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Time limit of --why, for all scores together.")
    ] = 10.0,
    settings: Sets = None,
    as_json: Json = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    lint: Annotated[
        bool, typer.Option("--lint", help="Only look for values in result files that contradict each other.")
    ] = False,
) -> None:
    """Compare measured with published scores.

    The exit code is 0 if all are reproduced, 3 if one is not, 4 if none failed but some cannot be compared.
    """
    _refuse_both(as_json, as_markdown)
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
    from pipeline.studies.verify.verification import EXIT_CODES, verify as verify_scores

    made = verify_scores(
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
    end_with(EXIT_CODES[made.verdict])


def _refuse_both(as_json: bool, as_markdown: bool) -> None:
    if as_json and as_markdown:
        raise InputError("--json and --markdown are both given", fix="leave one out")


def _print(made: Gate | Verification | Lint, as_json: bool, as_markdown: bool) -> None:
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
    from pipeline.studies.verify.lint import lint_files

    found = lint_files(files)
    _print(found, as_json, as_markdown)
    end_with(3 if found.found else 0)
