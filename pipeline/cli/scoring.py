"""The commands on scores: `evaluate` and `compare`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pipeline.core.display import counted
from pipeline.core.errors import InputError
from pipeline.core.table import stacked
from pipeline.storage.whole_files import check_output, replacing
from pipeline.studies.study import StudyOptions
from pipeline.studies.table import all_studies
from pipeline.terminal import Json, Verbose, argument, option, print_each, show, show_measures_as

if TYPE_CHECKING:
    from pipeline.comparison.side_by_side import Comparison
    from pipeline.core.table import Table
    from pipeline.studies.study import Findings

Format = Literal["table", "json", "csv", "markdown", "latex"]
Baseline = Annotated[
    Path | None, option("Compare the others with this result only, not every pair.", "RESULT_DIR")
]
MANY_MEASURES = (
    "{} measures: p is corrected for the pairs of one measure, and not for the number of measures. The more "
    "are looked at, the likelier one shows a difference by chance: decide on one beforehand."
)


def evaluate(
    files: Annotated[
        list[Path] | None, argument("Qrels, then TREC runs: as --qrels QRELS --run RUN.", "[QRELS RUN...]")
    ] = None,
    qrels: Annotated[Path | None, option("Qrels, in TREC or BEIR format; may be .gz.")] = None,
    runs: Annotated[list[Path] | None, option("A TREC run; may be .gz, and repeated.", flags="--run")] = None,
    measures: Annotated[
        str | None, option("Measures separated by commas: ndcg@10,mrr@10. By default as in run.")
    ] = None,
    per_query: Annotated[Path | None, option("Write the measures of each query to this CSV file.")] = None,
    ignore_identical_ids: Annotated[
        bool, option("Drop documents with the id of their query.", flags="--ignore-identical-ids")
    ] = False,
    single_precision: Annotated[
        bool, option("Compare scores in float32, as trec_eval did before 9.0.8.", flags="--single-precision")
    ] = False,
    as_json: Json = False,
) -> None:
    """Score TREC runs with TREC or BEIR qrels, like trec_eval."""
    from pipeline.config import MEASURES
    from pipeline.formats.columns import file_kind
    from pipeline.metrics import evaluation, presentation
    from pipeline.metrics.definitions import split_names

    runs, files = [*(runs or [])], [*(files or [])]
    if qrels is None and files:
        judged = [file for file in files if file.is_file() and file_kind(file) == "judgments"]
        qrels = judged[0] if len(judged) == 1 else files[0]
        swapped = files[0] != qrels
        files.remove(qrels)
        if swapped:
            print(
                f"benchmarco: taken as: judgments {qrels}, run {', '.join(map(str, files))}", file=sys.stderr
            )
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
    named = MEASURES if measures is None else split_names(measures)
    all_scored = [
        evaluation.evaluate(
            qrels, run, named, ignore_identical_ids=ignore_identical_ids, single_precision=single_precision
        )
        for run in runs
    ]
    show_measures_as(named)
    if as_json:
        documents = [scored.json() for scored in all_scored]
        print_each([{"run": str(run), **each} for run, each in zip(runs, documents, strict=True)])
    elif len(runs) > 1:
        show(evaluation.runs_table([*map(str, runs)], all_scored))
    else:
        show(*all_scored[0].tables())
    if per_query:
        (scored,) = all_scored
        with replacing(per_query) as path, open(path, "w", encoding="utf-8", newline="") as file:
            presentation.write_per_query(file, scored.query_ids, scored.measures, scored.values)


def compare(
    folders: Annotated[
        list[Path],
        argument(
            "A result folder. With --qrels, also a TREC run file.",
            "RESULT_DIR|FOLDER",
        ),
    ],
    measures: Annotated[
        list[str] | None,
        option(
            "Measure to compare; may be repeated. By default the first that all results have.",
            flags="--measure",
        ),
    ] = None,
    qrels: Annotated[Path | None, option("Qrels that score the run files; may be .gz.", "FILE")] = None,
    form: Annotated[Format, option("Output format.", flags="--format")] = "table",
    baseline: Baseline = None,
    detect: Annotated[
        float | None, option("Show how many queries detect this difference of means.", "DIFFERENCE")
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
    *,
    studies: StudyOptions,
) -> None:
    """Compare results: confidence intervals, paired tests, cost.

    In a difference a - b, a has the higher mean; with --baseline, b is the baseline.
    """
    from pipeline.comparison import side_by_side

    as_json = as_json or form == "json"
    if as_json and form not in ("table", "json"):
        raise InputError(f"--json and --format {form} are both given", fix="leave one out")
    asked = studies.asked
    if form == "csv":
        _refuse_without_csv(asked)
    chosen: Sequence[str | None] = measures or [None]
    show_measures_as(measures or ())
    outputs = list(studies.outputs)
    for _, output, file in outputs:
        output.refuse(file, [*folders, *filter(None, (qrels, baseline))], measures or ())
    compared: list[Comparison] = []
    for measure in chosen:
        below = [] if len(folders) > 1 or qrels else studies.below(folders[0], measure, baseline, detect)
        compared += map(
            studies.with_columns,
            below or [side_by_side.compare(folders, measure, baseline, qrels, detect)],
        )
    short = form == "table" and not verbose
    whole = outputs or as_json or not short
    findings = [studies.findings(each, bool(outputs)) if whole or asked else {} for each in compared]
    for _, output, file in outputs:
        output.write(file, compared, findings)
    if as_json:
        print_each(
            [
                each.json() | {name: found and found.json() for name, found in said.items()}
                for each, said in zip(compared, findings, strict=True)
            ]
        )
        return
    shown = [
        [finding for name, finding in said.items() if finding and (name in asked or not short)]
        for said in findings
    ]
    if form == "csv":
        print(_csv(compared, shown), end="")
    else:
        tables = list(_tables(compared, shown, form, short))
        if len(chosen) > 1:
            tables[-1] = replace(tables[-1], notes=[*tables[-1].notes, MANY_MEASURES.format(len(chosen))])
        if form == "table":
            _show_verdicts(compared, shown)
            show(*tables)
        else:
            from pipeline.report import renderings

            write = renderings.markdown if form == "markdown" else renderings.latex
            print(write(tables), end="")
    if short:
        hints = [output.hint for study in all_studies().values() for output in study.outputs.values()]
        print("; ".join(["-v shows every test and cost", *hints]))
    for name, _, file in outputs:
        print(f"{name} written to {file}", file=sys.stderr)


def _tables(
    compared: Sequence[Comparison], findings: Sequence[Sequence[Findings]], form: Format, short: bool
) -> Iterator[Table]:
    """The tables of comparisons, each before those of what studies say of it."""
    for comparison, said in zip(compared, findings, strict=True):
        yield from comparison.short_tables() if short else comparison.tables()
        for finding in said:
            first, *others = finding.tables()
            title = finding.heading if finding.verdict and form == "table" else first.title
            yield from (replace(first, title=title), *others)


def _show_verdicts(compared: Sequence[Comparison], findings: Sequence[Sequence[Findings]]) -> None:
    """Show the verdict on each comparison, and those of studies."""
    for comparison, said in zip(compared, findings, strict=True):
        opening = f"{comparison.collection}: " if comparison.collection else ""
        decided = any(pair.shown for pair in comparison.pairs) or not comparison.pairs
        show(verdict=opening + comparison.verdict, decided=decided)
        for finding in said:
            if finding.verdict:
                show(verdict=opening + finding.verdict)


def _csv(compared: Sequence[Comparison], findings: Sequence[Sequence[Findings]]) -> str:
    """CSV: the tables that studies have for it, or else every figure of the comparisons."""
    from pipeline.report.renderings import csv_text

    own = [table for said in findings for finding in said if (table := finding.csv())]
    figures = [
        comparison.figures(dict(chain.from_iterable(finding.figures().items() for finding in said)))
        for comparison, said in zip(compared, findings, strict=True)
    ]
    return csv_text(stacked(own or figures))


def _refuse_without_csv(asked: Sequence[str]) -> None:
    """Refuse options of studies that have no table for CSV."""
    for name in asked:
        if not all_studies()[name].csv:
            raise InputError(
                f"--format csv, which has no table of '{name}'",
                allowed="a table, markdown, latex or --json",
                fix="take another format",
            )
