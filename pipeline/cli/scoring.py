"""The commands on scores: `evaluate`, `compare`, `report`, `gate` and `verify`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.storage.whole_files import check_output
from pipeline.terminal import (
    Json,
    Verbose,
    print_each,
    show,
    show_verdict,
)

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison


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
