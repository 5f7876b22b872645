"""How good is it? `evaluate`, `compare` and `report`: the commands that take what was computed already."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.options import Json, check_file
from pipeline.cli.terminal import print_json, show, width
from pipeline.core.errors import InputError


class Format(StrEnum):
    """How a comparison is printed."""

    table = "table"
    csv = "csv"
    markdown = "markdown"
    latex = "latex"


def evaluate(
    qrels: Annotated[Path, typer.Option(help="TREC or BEIR judgments; .gz is accepted.")],
    run: Annotated[Path, typer.Option(help="TREC run; .gz is accepted.")],
    measures: Annotated[
        str | None, typer.Option(help="Measures, separated by commas; a config's default ones, if not given.")
    ] = None,
    per_query: Annotated[Path | None, typer.Option(help="Write each query's values to this CSV.")] = None,
    ignore_identical_ids: Annotated[
        bool, typer.Option("--ignore-identical-ids", help="Drop documents whose id is the query's own.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score any TREC run with any TREC or BEIR qrels. As trec_eval -c does."""
    from pipeline import api
    from pipeline.config import MEASURES
    from pipeline.metrics.evaluation import write_per_query

    if per_query:
        check_file(per_query, "--per-query")
    wanted = MEASURES if measures is None else measures
    scored = api.evaluate(qrels, run, wanted, ignore_identical_ids=ignore_identical_ids)
    names = [str(measure) for measure in scored.measures]
    means = dict(zip(names, scored.means.tolist(), strict=True))
    intervals = dict(
        zip(names, zip(scored.ci_low.tolist(), scored.ci_high.tolist(), strict=True), strict=True)
    )
    if per_query:
        with open(per_query, "w", encoding="utf-8", newline="") as file:
            write_per_query(file, scored.query_ids, scored.measures, scored.values)
    counts = {
        "queries": len(scored.query_ids),
        "missing": scored.missing,
        "unjudged": scored.unjudged,
        "repeated_judgments": scored.repeated,
    }
    if as_json:
        print_json({**counts, "metrics": means, "intervals": intervals})
        return
    from pipeline.report.table import measure_table

    show(measure_table(f"{run.name}: {scored.summary}", means, intervals))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RESULT_DIR", help="A result's folder.")],
    measure: Annotated[
        str | None, typer.Option(help="What to compare by; the first that all have, if not given.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained page to this file.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.table,
    as_json: Json = False,
) -> None:
    """Set results side by side: intervals, paired tests, cost. The first is `a` of its pairs."""
    from pipeline.results import comparison

    if as_json and form is not Format.table:
        raise InputError(f"--json and --format {form}", allowed="one of them", fix="leave one out")
    if html:
        check_file(html, "--html")
    compared = comparison.compare(folders, measure)
    if html:
        from pipeline.report.page.render import write_page

        write_page(compared, html)
    if as_json:
        print_json(compared.json())
        return
    from pipeline.report import comparison as forms

    if form is Format.table:
        show(*forms.comparison_tables(compared, width()), *forms.legend(compared))
    else:
        printed = {"csv": forms.as_csv, "markdown": forms.as_markdown, "latex": forms.as_latex}
        print(printed[form](compared), end="")
    if html:
        print(f"page written to {html}", file=sys.stderr)


def report(
    folder: Annotated[Path, typer.Argument(metavar="RESULT_DIR", help="A result's folder.")],
    html: Annotated[Path, typer.Option(metavar="FILE", help="Write the page to this file.")],
    measure: Annotated[
        str | None, typer.Option(help="What to show by query; the result's first, if not given.")
    ] = None,
) -> None:
    """Write one result as a self-contained page. Scores, curves, and why a query failed."""
    from pipeline.report.page.render import write_page
    from pipeline.results.comparison import compare

    check_file(html, "--html")
    write_page(compare([folder], measure), html)
    print(f"page written to {html}", file=sys.stderr)
