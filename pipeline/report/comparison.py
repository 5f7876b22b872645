"""How is a comparison shown? In the terminal, as CSV, as Markdown, as LaTeX."""

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

SCORES = ("result", "mean", "95% interval", "group")
COST = ("passages/s", "queries/s", "index", "seconds")
PAIRS = ("a - b", "difference [95%]", "t-test", "randomization", "Holm", "w/t/l")
WRAPPED = {"result": 8, "a - b": 13}
"""Columns that wrap in a narrow terminal, and the letters that they keep; all others are numbers."""


def summary_tables(metrics: Sequence[Mapping[str, Any]], total: int, width: int) -> list[Table]:
    """A finished benchmark a row: every measure's mean, and what it took.

    Args:
        metrics: The content of each `metrics.json`.
        total: How many were to be run.
        width: Letters that fit beside each other; columns that do not come in another table.
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
    """How good the results are, what they cost, and, if there are several, their pairs.

    Args:
        comparison: What to show.
        width: Letters that fit beside each other; where they do not, an interval stands below its difference,
            and columns come in another table.
    """
    queries = comparison.results[0].queries
    scores = _table(f"{comparison.measure} over {counted(queries, 'query', 'queries')}", SCORES)
    cost = _table("cost", ("result", *COST))
    for row in _result_rows(comparison):
        scores.add_row(*row[: len(SCORES)])
        cost.add_row(row[0], *row[len(SCORES) :])
    if not comparison.pairs:
        return [scores, cost]
    names, differences, *rest = zip(*_pair_rows(comparison), strict=True)
    if sum(max(map(len, column)) + 3 for column in (names, differences, *rest)) >= width:
        differences = tuple(cell.replace(" ", "\n") for cell in differences)
    columns = dict(zip(map(_broken, PAIRS[1:]), (differences, *rest), strict=True))
    title = f"differences in {comparison.measure}, query by query"
    left = width - WRAPPED["a - b"] - 4
    return [scores, cost, *fitting_tables(_table, title, "a - b", names, columns, left)]


def legend(comparison: Comparison) -> list[str]:
    """What the columns mean, and what to know before believing them, a sentence each."""
    return [*(_MEANING if comparison.pairs else ()), *(f"Note: {note}." for note in comparison.notes)]


_MEANING = (
    "Group: results that share a letter were not shown to differ. * marks a difference shown at 5%, both by "
    "Holm's p and by the randomization test's.",
    f"Two-sided, paired p-values: of the t-test; of {PERMUTATIONS:,} randomizations; of the t-test "
    "corrected by Holm for the number of pairs. w/t/l: queries where a wins, ties, loses.",
)


def as_csv(comparison: Comparison) -> str:
    """One table: a row per result, and a row per pair, which has something in the column `against`.

    The column `value` holds a result's mean, or a pair's difference.
    """
    renamed = {"mean": "value", "difference": "value", "a": "name", "b": "against"}
    every: list[Entry | Pair] = [*comparison.results, *comparison.pairs]
    rows = [
        {
            "measure": comparison.measure,
            **{renamed.get(name, name): cell for name, cell in asdict(one).items()},
        }
        for one in every
    ]
    columns = dict.fromkeys(["measure", "name", "against", *(name for row in rows for name in row)])
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_markdown(comparison: Comparison) -> str:
    """Tables in GitHub's Markdown, with the legend below them."""
    parts = [_markdown(_header(comparison), _result_rows(comparison))]
    if comparison.pairs:
        parts.append(_markdown(PAIRS, _pair_rows(comparison)))
    return "\n\n".join([*parts, *map(_literal, legend(comparison))]) + "\n"


def as_latex(comparison: Comparison) -> str:
    r"""Tables for the package booktabs, the highest mean in bold, with the legend as comments."""
    best = rounded(max(entry.mean for entry in comparison.results))
    rows = [[*map(_escaped, row)] for row in _result_rows(comparison)]
    bold = [[name, rf"\textbf{{{mean}}}" if mean == best else mean, *rest] for name, mean, *rest in rows]
    parts = [_latex(_header(comparison), bold)]
    if comparison.pairs:
        parts.append(_latex(PAIRS, [[*map(_escaped, row)] for row in _pair_rows(comparison)]))
    return "\n".join([*(f"% {line}" for line in legend(comparison)), *parts]) + "\n"


def _header(comparison: Comparison) -> tuple[str, ...]:
    return (SCORES[0], comparison.measure, *SCORES[2:], *COST)


def _result_rows(comparison: Comparison) -> Rows:
    return [_result_row(entry) for entry in comparison.results]


def _result_row(entry: Entry) -> tuple[str, ...]:
    return (
        entry.name,
        rounded(entry.mean),
        interval(entry.ci_low, entry.ci_high),
        entry.letters,
        rate(entry.passages_per_second),
        rate(entry.queries_per_second),
        size(entry.index_bytes),
        "" if entry.seconds is None else f"{entry.seconds:,.1f}",
    )


def _pair_rows(comparison: Comparison) -> Rows:
    return [_pair_row(pair) for pair in comparison.pairs]


def _pair_row(pair: Pair) -> tuple[str, ...]:
    return (
        f"{pair.a} - {pair.b}",
        f"{signed(pair.difference)} [{signed(pair.ci_low)},{signed(pair.ci_high)}]",
        p(pair.p_ttest),
        p(pair.p_randomization),
        p(pair.p_holm) + (" *" if pair.shown else ""),
        f"{pair.wins:,}/{pair.ties:,}/{pair.losses:,}",
    )


def _table(title: str, header: tuple[str, ...]) -> Table:
    """A table whose words wrap where the terminal is narrow, and whose numbers do not."""
    left = {"result", "a - b", "group"}
    table = plain_table(title, map(_broken, header), [i for i, name in enumerate(header) if name not in left])
    for column, name in zip(table.columns, header, strict=True):
        column.no_wrap, column.min_width = name not in WRAPPED, WRAPPED.get(name)
    return table


def _broken(name: str) -> str:
    return name.replace("randomization", "random-\nization")


def _markdown(header: Sequence[str], rows: Rows) -> str:
    named = [(_literal(name), *figures) for name, *figures in rows]
    lines = [header, ["---"] * len(header), *named]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _literal(text: str) -> str:
    """Text whose letters mean nothing to GitHub's Markdown."""
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
"""What means something to LaTeX, or prints as something else in its oldest font encoding."""


def _escaped(cell: str) -> str:
    text = re.sub("-(?=-)", "-{}", cell.translate(_SPECIAL))  # two of them would make a dash
    return "{}" + text if text.startswith(("[", "*")) else text  # an argument of the rule or line before


def _latex(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are escaped already, below a header that is not."""
    alignment = "l" + "r" * (len(header) - 1)
    lines = [" & ".join(cells) + r" \\" for cells in ([*map(_escaped, header)], *rows)]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )
