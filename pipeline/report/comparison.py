"""Comparisons of results as terminal tables, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pipeline.core.display import counted, interval, p, rate, rounded, signed, size
from pipeline.metrics.statistics import PERMUTATIONS
from pipeline.report.table import became, fitting_tables, plain_table
from pipeline.results.comparison import Comparison, Entry, Pair

Rows = list[tuple[str, ...]]

SCORE_COLUMNS = ("result", "mean", "95% interval", "group")
COST_COLUMNS = ("passages/s", "queries/s", "index", "seconds")
PAIR_COLUMNS = ("a - b", "difference [95%]", "t-test", "randomization", "Holm", "w/t/l")
WRAPPED = {"result": 8, "a - b": 13}
"""Columns that wrap in a narrow terminal, with their minimum width in characters."""


def summary_tables(metrics: Sequence[Mapping[str, Any]], total: int, width: int) -> list[Table]:
    """One row per finished benchmark: the mean of every measure, and the time it took.

    Args:
        metrics: The content of each `metrics.json`.
        total: Number of benchmarks that were started.
        width: Characters per line; columns that do not fit go into further tables.
    """
    names = [each["name"] for each in metrics]
    columns = {
        name: [rounded(each["metrics"].get(name)) for each in metrics]
        for name in dict.fromkeys(name for each in metrics for name in each["metrics"])
    }
    columns["seconds"] = [f"{sum(row['seconds'] or 0 for row in each['stages']):,.1f}" for each in metrics]
    columns["computed"] = [
        f"{sum(became(row) == 'made' for row in each['stages'])} of {len(each['stages'])}" for each in metrics
    ]
    title = f"{len(metrics):,} of {total:,} benchmarks finished"
    left = width - max(map(len, ["result", *names])) - 4
    return fitting_tables(_table, title, "result", names, columns, left)


def comparison_tables(comparison: Comparison, width: int) -> list[Table]:
    """Tables of the scores, of the costs and, for several results, of the pairs.

    Args:
        comparison: The results to show.
        width: Characters per line. If the table of pairs is wider, its intervals go below the differences,
            and columns that still do not fit go into further tables.
    """
    queries = comparison.results[0].queries
    scores = _table(f"{comparison.measure} over {counted(queries, 'query', 'queries')}", SCORE_COLUMNS)
    cost = _table("cost", ("result", *COST_COLUMNS))
    for row in result_rows(comparison):
        scores.add_row(*row[: len(SCORE_COLUMNS)])
        cost.add_row(row[0], *row[len(SCORE_COLUMNS) :])
    if not comparison.pairs:
        return [scores, cost]
    names, differences, *rest = zip(*pair_rows(comparison), strict=True)
    if sum(max(map(len, column)) + 3 for column in (names, differences, *rest)) >= width:
        differences = tuple(cell.replace(" ", "\n") for cell in differences)
    columns = dict(zip(map(_hyphenated, PAIR_COLUMNS[1:]), (differences, *rest), strict=True))
    title = pairs_title(comparison)
    left = width - WRAPPED["a - b"] - 4
    return [scores, cost, *fitting_tables(_table, title, "a - b", names, columns, left)]


def pairs_title(comparison: Comparison) -> str:
    """Title of the table of pairs."""
    return f"differences in {comparison.measure}, query by query"


def legend(comparison: Comparison) -> list[str]:
    """Explanations of the columns, and notes on whether the results are comparable."""
    return [*((GROUPS, TESTS) if comparison.pairs else ()), *(f"Note: {note}." for note in comparison.notes)]


GROUPS = "Results that share a letter under 'group' were not shown to differ."
TESTS = (
    f"The p-values are two-sided and paired: of the t-test, of {PERMUTATIONS:,} randomizations, and of the "
    "t-test with Holm's correction for the number of pairs. * marks a difference shown at 5%, both by Holm's "
    "p and by the randomization test's. w/t/l counts the queries where a wins, ties and loses."
)


def as_csv(comparison: Comparison) -> str:
    """One table: a row per result, and a row per pair, whose second result is in the column `against`.

    The column `value` holds the mean of a result, or the difference of a pair.
    """
    renamed = {"mean": "value", "difference": "value", "a": "name", "b": "against"}
    every: list[Entry | Pair] = [*comparison.results, *comparison.pairs]
    rows = [
        {"measure": comparison.measure}
        | {renamed.get(name, name): cell for name, cell in asdict(one).items()}
        for one in every
    ]
    columns = dict.fromkeys(["measure", "name", "against", *(name for row in rows for name in row)])
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(comparison: Comparison) -> str:
    """Tables in GitHub's Markdown, followed by the legend."""
    parts = [_markdown(_header(comparison), result_rows(comparison))]
    if comparison.pairs:
        parts.append(_markdown(PAIR_COLUMNS, pair_rows(comparison)))
    return "\n\n".join([*parts, *map(_literal, legend(comparison))]) + "\n"


def as_latex(comparison: Comparison) -> str:
    r"""Tables for the package booktabs, the highest mean in bold, with the legend as comments."""
    best = rounded(max(entry.mean for entry in comparison.results))
    rows = [[*map(_escaped, row)] for row in result_rows(comparison)]
    bold = [[name, rf"\textbf{{{mean}}}" if mean == best else mean, *rest] for name, mean, *rest in rows]
    parts = [_latex(_header(comparison), bold)]
    if comparison.pairs:
        parts.append(_latex(PAIR_COLUMNS, [[*map(_escaped, row)] for row in pair_rows(comparison)]))
    return "\n".join([*(f"% {line}" for line in legend(comparison)), *parts]) + "\n"


def _header(comparison: Comparison) -> tuple[str, ...]:
    return (SCORE_COLUMNS[0], comparison.measure, *SCORE_COLUMNS[2:], *COST_COLUMNS)


def result_rows(comparison: Comparison) -> Rows:
    """The cells of each result, by `SCORE_COLUMNS` and then `COST_COLUMNS`."""
    return [
        (
            entry.name,
            rounded(entry.mean),
            interval(entry.ci_low, entry.ci_high),
            entry.letters,
            rate(entry.passages_per_second),
            rate(entry.queries_per_second),
            size(entry.index_bytes),
            "" if entry.seconds is None else f"{entry.seconds:,.1f}",
        )
        for entry in comparison.results
    ]


def pair_rows(comparison: Comparison) -> Rows:
    """The cells of each pair, by `PAIR_COLUMNS`."""
    return [
        (
            f"{pair.a} - {pair.b}",
            f"{signed(pair.difference)} [{signed(pair.ci_low)},{signed(pair.ci_high)}]",
            p(pair.p_ttest),
            p(pair.p_randomization),
            p(pair.p_holm) + (" *" if pair.shown else ""),
            f"{pair.wins:,}/{pair.ties:,}/{pair.losses:,}",
        )
        for pair in comparison.pairs
    ]


def _table(title: str, header: tuple[str, ...]) -> Table:
    """A table whose text columns wrap in a narrow terminal, and whose numbers do not."""
    left = {"result", "a - b", "group"}
    table = plain_table(
        title, map(_hyphenated, header), [i for i, name in enumerate(header) if name not in left]
    )
    for column, name in zip(table.columns, header, strict=True):
        column.no_wrap = name not in WRAPPED
        column.min_width = WRAPPED.get(name)
    return table


def _hyphenated(name: str) -> str:
    return name.replace("randomization", "random-\nization")


def _markdown(header: Sequence[str], rows: Rows) -> str:
    named = [(_literal(name), *figures) for name, *figures in rows]
    lines = [header, ["---"] * len(header), *named]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _literal(text: str) -> str:
    """Text with the special characters of GitHub's Markdown escaped."""
    return re.sub(r"[\\`*_~|<>\[\]&$]", r"\\\g<0>", text)


_SPECIAL = str.maketrans(
    {c: rf"\{c}" for c in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
    }
)
"""Characters that are special in LaTeX, or print differently in its OT1 font encoding."""


def _escaped(cell: str) -> str:
    """Text with the special characters of LaTeX escaped."""
    text = re.sub("-(?=-)", "-{}", cell.translate(_SPECIAL))  # "--" would become a dash
    return "{}" + text if text.startswith(("[", "*")) else text  # not an argument of the command before


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of escaped cells below a header, which is escaped here."""
    alignment = "l" + "r" * (len(header) - 1)
    head, *body = [" & ".join(cells) + r" \\" for cells in ([*map(_escaped, header)], *rows)]
    begin = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", head, r"\midrule"]
    return "\n".join([*begin, *body, r"\bottomrule", r"\end{tabular}"])
