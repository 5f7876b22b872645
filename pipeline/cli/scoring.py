"""The commands on scores: `evaluate`, `compare` and `report`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.table import stacked
from pipeline.storage.whole_files import check_output
from pipeline.studies.study import TabularPart
from pipeline.studies.table import add_columns, all_studies
from pipeline.terminal import (
    Json,
    Verbose,
    print_each,
    show,
    show_measures_as,
    show_verdict,
)

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.studies.study import Part


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
Options: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The values of the options of each study, by its name; None where an option is not given."""
MANY_MEASURES = (
    "{} measures: p is corrected for the pairs of one measure, and not for the number of measures. The more "
    "are looked at, the likelier one shows a difference by chance: decide on one beforehand."
)


def with_study_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of studies, which it takes as `options`."""
    studies = {name: study.options for name, study in all_studies().items() if study.options}

    @wraps(command)
    def run(**arguments: object) -> None:
        values = {
            study: {name: arguments.pop(name) for name in options} for study, options in studies.items()
        }
        command(**arguments, options=values)

    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    del parameters["options"]
    for name, annotation in chain.from_iterable(options.items() for options in studies.values()):
        parameters[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
        )
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    vars(run)["__signature__"] = inspect.Signature(list(parameters.values()))
    return run


def _parts(comparison: Comparison, options: Options, on_page: bool) -> dict[str, Part | None]:
    """What studies say of a comparison, by their names.

    Those without an option always do: None where they have nothing to say.
    """
    parts: dict[str, Part | None] = {}
    for name, study in all_studies().items():
        values = options.get(name, {})
        unasked = study.options and not _is_asked(options, name) and not on_page
        if study.part is None or unasked or False in values.values():
            continue
        part = study.part(comparison, values)
        if part is not None or not (study.options or comparison.of_suites):
            parts[name] = part
    return parts


def _flag(annotation: Any) -> str:
    """The flag of an annotated option: Typer keeps the first one as its default."""
    option = annotation.__metadata__[0]
    return next(str(each) for each in (option.default, *option.param_decls) if each).partition("/")[0]


def _is_asked(options: Options, study: str) -> bool:
    """Whether an option of a study asks for its part."""
    return any(options.get(study, {}).values())


def evaluate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[QRELS RUN...]", help="Qrels, then TREC runs: as --qrels QRELS --run RUN."),
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
    from pipeline.formats.columns import file_kind
    from pipeline.metrics.evaluation import runs_table, write_per_query
    from pipeline.metrics.names import split_names

    runs, files = [*(runs or [])], [*(files or [])]
    if qrels is None and files:
        judged = [file for file in files if file.is_file() and file_kind(file) == "judgments"]
        qrels = judged[0] if len(judged) == 1 else files[0]
        files.remove(qrels)
    runs += files
    if qrels is None or not runs:
        raise InputError(
            f"{counted(len(runs), 'run')} and {'no' if qrels is None else 'their'} judgments",
            allowed="evaluate QRELS RUN..., or --qrels QRELS --run RUN",
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
    show_measures_as(split_names(measures or ()))
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
        typer.Argument(
            metavar="RESULT_DIR|FOLDER",
            help="A result folder, or a folder of results. With --qrels, also a TREC run file.",
        ),
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
    detect: Annotated[
        float | None,
        typer.Option(metavar="DIFFERENCE", help="Show how many queries detect this difference of means."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
    *,
    options: Options,
) -> None:
    """Compare results: confidence intervals, paired tests, cost.

    In a difference a - b, a is the result named first. Of a folder of results, those of each collection are
    compared, and the history of each name is shown.
    """
    from pipeline.comparison import board, side_by_side

    if as_json and form is not Format.table:
        raise InputError(f"--json and --format {form} are both given", fix="leave one out")
    asked = [name for name in options if _is_asked(options, name)]
    if form is Format.csv and (refused := [name for name in asked if not all_studies()[name].csv]):
        option = _flag(next(iter(all_studies()[refused[0]].options.values())))
        raise InputError(
            f"{option} with --format csv",
            allowed=f"{option} with a table, markdown, latex or --json",
            fix="take another format",
        )
    chosen: Sequence[str | None] = measures or [None]
    show_measures_as(measures or ())
    if html:
        check_output(html, "--html", [*folders, *filter(None, (qrels, baseline))])
        _check_page(folders, measures)
    compared: list[Comparison] = []
    below = len(folders) == 1 and not qrels and board.holds_results(folders[0])
    for measure in chosen:
        if below:
            compared += map(add_columns, board.compare_below(folders[0], measure, baseline, detect))
        else:
            compared.append(add_columns(side_by_side.compare(folders, measure, baseline, qrels, detect)))
    short = form is Format.table and not verbose
    whole = html or as_json or not short
    parts = [_parts(each, options, bool(html)) if whole or asked else {} for each in compared]
    if html:
        from pipeline.report.page.board import write_board
        from pipeline.report.page.render import write_page

        if below:
            write_board(compared, html)
        else:
            write_page(compared[0], html, [part.page() for part in parts[0].values() if part])
    if as_json:
        documents = zip(compared, parts, strict=True)
        print_each(
            [
                each.json() | {name: part and part.json() for name, part in said.items()}
                for each, said in documents
            ]
        )
        return
    tables = []
    for each, said in zip(compared, parts, strict=True):
        tables += each.short_tables() if short else each.tables()
        for name, part in said.items():
            if part and (name in asked or not short):
                tables += part.tables()
    if len(chosen) > 1:
        tables[-1] = replace(tables[-1], notes=[*tables[-1].notes, MANY_MEASURES.format(len(chosen))])
    if form is Format.table:
        for each in compared:
            opening = f"{each.collection}: " if each.collection else ""
            show_verdict(opening + each.verdict, any(pair.shown for pair in each.pairs) or not each.pairs)
        show(*tables)
        if short:
            print("-v shows every test, cost and change of rankings; --html FILE writes a page")
    else:
        from pipeline.report import renderings

        write = {Format.markdown: renderings.markdown, Format.latex: renderings.latex}.get(form)
        columns = [
            dict(chain.from_iterable(part.figures().items() for part in said.values() if part))
            for said in parts
        ]
        figures = [each.figures(added) for each, added in zip(compared, columns, strict=True)]
        own = [part.csv() for said in parts for part in said.values() if isinstance(part, TabularPart)]
        print(write(tables) if write else renderings.csv_text(stacked(own or figures)), end="")
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
    *,
    options: Options,
) -> None:
    """Write one result as a self-contained HTML page."""
    from pipeline.comparison.side_by_side import compare
    from pipeline.report.page.render import write_page

    check_output(html, "--html", [folder, *([baseline] if baseline else [])])
    comparison = add_columns(compare([folder], measure, baseline))
    parts = _parts(comparison, options, on_page=True).values()
    write_page(comparison, html, [part.page() for part in parts if part])
    print(f"page written to {html}", file=sys.stderr)
