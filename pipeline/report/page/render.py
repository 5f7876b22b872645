"""The HTML report of one result or several: a single file that loads nothing.

write_page(compare(["results/fp32", "results/bf16"], "ndcg@10"), Path("report.html"))

Scores and statistics are those of the comparison; curves and passages need the cached collections.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.comparison.pairs import Pair
from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import each_collection, leaderboard, pair_table
from pipeline.core import display, machine
from pipeline.core.records import JsonObject
from pipeline.core.table import Column, FilledColumn, Table, table_of
from pipeline.report.page import plots, sentences
from pipeline.report.page.queries import QueryData, read_query_data
from pipeline.results.tables import published_table, section_tables, time_table
from pipeline.storage import whole_files

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
MOST_PLOTS = 12
"""Pairs of suites with a plot; the tables have all."""


def write_page(comparison: Comparison, file: Path) -> None:
    """Write the report.

    Args:
        comparison: One result or several, of one collection or of a suite.
        file: The file to write; it is replaced as a whole.
    """
    whole_files.write_whole(file, render_page(comparison).encode())


def render_page(comparison: Comparison) -> str:
    """The report as HTML."""
    if comparison.of_suites:
        return _render("suite.html.j2", ["sort.js"], _suite_context(comparison))
    data = read_query_data(comparison)
    before = [*_published_parts(comparison), *_churn_parts(comparison), *_group_parts(comparison)]
    after = _section_parts(comparison)
    return _render(
        "page.html.j2",
        ["sort.js", "page.js"],
        _frame(comparison, data, before, after)
        | _quality_section(comparison, data)
        | {"before": before, "after": after}
        | _cost_section(comparison)
        | sentences.provenance_section(comparison)
        | {
            "comparison": comparison,
            "measure": comparison.measure,
            "several": len(comparison.results) > 1,
            "data": _markup(_json(data.json(comparison))),
        },
    )


def _render(template: str, scripts: Sequence[str], context: JsonObject) -> str:
    """A template with the style of the page and one script, made of several files."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(breakable=_breakable, counted=display.counted)
    script = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)
    return environment.get_template(template).render(
        context,
        style=_markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        script=_markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


@dataclass(frozen=True)
class _Part:
    """A section of the page that is made of tables and their plots.

    Attributes:
        target: Its id.
        heading: Its heading.
        tables: Each with the numbers of the results that each of its rows is about.
        plots: Of the tables.
    """

    target: str
    heading: str
    tables: list[tuple[Table, list[list[int]]]]
    plots: list[plots.Plot] = field(default_factory=list)


def _published_parts(comparison: Comparison) -> list[_Part]:
    """The verdicts on published scores, a table for each result that gives some."""
    tables: list[tuple[Table, list[list[int]]]] = []
    for number, suite in enumerate(comparison.suites):
        scores = [score for result in suite.results.values() for score in result.record.expected]
        if scores:
            table = published_table(scores, comparison.results[number].name)
            tables.append((table, [[number] for _ in scores]))
    return [_Part("published", "Published scores", tables)] if tables else []


def _churn_parts(comparison: Comparison) -> list[_Part]:
    """What changes from one of two results to the other."""
    if comparison.churn is None:
        return []
    return [_Part("churn", "If you switch", [(comparison.churn.table(), [[0, 1]])])]


def _section_parts(comparison: Comparison) -> list[_Part]:
    """What only some kinds of retrievers report, a part for each heading."""
    numbers = {entry.name: number for number, entry in enumerate(comparison.results)}

    def marks(table: Table) -> list[list[int]]:
        """A row is about the result that it names, or else about the one that the title begins with."""
        owners = [number for name, number in numbers.items() if table.title.startswith(f"{name}: ")]
        return [[numbers[row[0]]] if row[0] in numbers else owners for row in table.rows]

    parts = []
    for heading, tables in section_tables(comparison.records, comparison.measure).items():
        target = re.sub(r"\W+", "-", heading.lower())
        drawn = [plot for table in tables for plot in plots.table_plots(comparison, table)]
        parts.append(_Part(target, heading, [(table, marks(table)) for table in tables], drawn))
    return parts


def _frame(
    comparison: Comparison, data: QueryData, before: Sequence[_Part], after: Sequence[_Part]
) -> JsonObject:
    """The head of the page and the headings of its sections."""
    names = [entry.name for entry in comparison.results]
    several = len(names) > 1
    sections = {
        "leaderboard": "Leaderboard" if several else "Scores",
        "pairs": "Pairs" if several else None,
        "curves": "Quality by cutoff",
        **{part.target: part.heading for part in before},
        "queries": "Query by query",
        **{part.target: part.heading for part in after},
        "cost": "Quality against speed" if several else None,
        "time": "Time by stage",
        "provenance": "What was run",
    }
    return {
        "title": " and ".join(names) if len(names) <= 2 else f"{len(names)} results by {comparison.measure}",
        "summary": sentences.summary(comparison),
        "facts": sentences.facts(comparison),
        "notes": [note + "." for note in comparison.notes] + data.notes,
        "sections": {target: heading for target, heading in sections.items() if heading},
        "guide": sentences.guide(comparison, data),
        "version": machine.versions().get("benchmarco", ""),
    }


def _quality_section(comparison: Comparison, data: QueryData) -> JsonObject:
    """The leaderboard, best result first, the pairs, and the plots by cutoff."""
    results = comparison.results
    order = sorted(range(len(results)), key=lambda number: -results[number].mean)
    low = min(entry.mean if entry.ci_low is None else entry.ci_low for entry in results)
    high = max(entry.mean if entry.ci_high is None else entry.ci_high for entry in results)

    def percent(value: float | None, mean: float) -> float:
        """Position on the axis of the intervals; without one, that of the mean."""
        return round(100 * ((mean if value is None else value) - low) / ((high - low) or 1), 2)

    table = _leaderboard(comparison, data)
    intervals = [(results[i].ci_low, results[i].mean, results[i].ci_high) for i in order]
    numbers = {entry.name: number for number, entry in enumerate(results)}
    return {
        "leaderboard": replace(table, rows=[table.rows[number] for number in order]),
        "leaderboard_marks": [[number] for number in order],
        "whiskers_after": 3 if any(entry.ci_low is not None for entry in results) else 2,
        "whiskers": [[percent(value, ends[1]) for value in ends] for ends in intervals],
        "axis": (display.figure(low), display.figure(high)),
        "pairs": pair_table(comparison.measure, comparison.pairs, comparison.correction),
        "pair_marks": [[numbers[pair.a], numbers[pair.b]] for pair in comparison.pairs],
        "cutoff_plots": plots.cutoff_plots(comparison, data),
    }


def _leaderboard(comparison: Comparison, data: QueryData) -> Table:
    """The leaderboard with columns for the other measures and for judged passages, before the costs."""
    table = leaderboard(comparison.measure, comparison.results, {})
    columns = list(zip(table.columns, zip(*table.rows, strict=True), strict=True))
    added: list[FilledColumn] = [
        (Column(name, "right"), [source.record.metrics[name] for source in comparison.sources])
        for name in comparison.measures
        if name != comparison.measure
    ]
    if JUDGED.name not in comparison.measures:
        added.append((JUDGED, [details.judged if details else None for details in data.details]))
    first_cost = sum(not column.section for column in table.columns)
    return table_of(table.title, [*columns[:first_cost], *added, *columns[first_cost:]], table.notes)


JUDGED = Column("judged@10", "right", hint="share of the top 10 passages that are judged")


def _group_parts(comparison: Comparison) -> list[_Part]:
    """The tables of groups of queries, if there are any."""
    if comparison.groups is None:
        return []
    numbers = {entry.name: number for number, entry in enumerate(comparison.results)}
    means, *differences = comparison.groups.tables()
    tables: list[tuple[Table, list[list[int]]]] = [(means, [[] for _ in means.rows])]
    for table in differences:  # a pair a row, or a row that says that there is none
        marks = [[numbers[pair.a], numbers[pair.b]] for _, pair in comparison.groups.found]
        tables.append((table, marks or [[] for _ in table.rows]))
    heading = "Where they differ" if len(numbers) > 1 else "Where it is weak"
    return [_Part("groups", heading, tables)]


def _cost_section(comparison: Comparison) -> JsonObject:
    """Quality against speed, and the seconds of each stage."""
    names = [entry.name for entry in comparison.results]
    table = time_table(names, [source.record for source in comparison.sources])
    stages = len(table.columns) - 3  # beside the name, the total and the memory
    seconds = [[getattr(cell, "value", None) or 0 for cell in row[1 : stages + 1]] for row in table.rows]
    longest = max(map(sum, seconds)) or 1
    return {
        "times": table,
        "time_marks": [[number] for number in range(len(names))],
        "stages": stages,
        "bars": [[round(100 * value / longest, 2) for value in row] for row in seconds],
        "speed_plots": plots.speed_plots(comparison),
    }


def _suite_context(comparison: Comparison) -> JsonObject:
    """What the template of a suite's page shows."""
    measure, results, pairs = comparison.measure, comparison.results, comparison.pairs
    numbers = {entry.name: number for number, entry in enumerate(results)}
    order = sorted(range(len(results)), key=lambda number: -results[number].mean)
    board = leaderboard(measure, results, comparison.suites[0].groups)
    names = [entry.name for entry in results]
    size = display.counted(len(comparison.collections), "collection")
    marks = [[numbers[pair.a], numbers[pair.b]] for pair in pairs]
    return {
        "title": " and ".join(names) if len(names) <= 2 else f"{len(names)} results by {measure}",
        "summary": sentences.summary(comparison),
        "facts": [("suite of", size), ("queries", f"{results[0].queries:,}"), ("measure", measure)],
        "notes": [f"{note}." for note in comparison.notes],
        "board": table_of(
            board.title,
            [(column, [board.rows[i][n] for i in order]) for n, column in enumerate(board.columns)],
            board.notes,
        ),
        "board_marks": [[number] for number in order],
        "pairs": pair_table(measure, pairs, comparison.correction) if pairs else None,
        "pair_marks": marks,
        "each": each_collection(measure, pairs) if pairs else None,
        "measures": list(_measure_tables(comparison)),
        "published": _published_parts(comparison),
        "result_marks": [[number] for number in range(len(results))],
        "plots": [_forest(measure, pair) for pair in pairs[:MOST_PLOTS]],
        "configs": [  # that of the first collection, from which others differ in their data alone
            (f"{entry.name}, {comparison.collections[0]}", _indented(source.manifest.config))
            for entry, source in zip(results, comparison.sources, strict=True)
        ],
    }


def _measure_tables(comparison: Comparison) -> Iterator[Table]:
    """For each result its means of every measure on every collection."""
    for suite, entry in zip(comparison.suites, comparison.results, strict=True):
        results = suite.results.values()
        columns: list[FilledColumn] = [
            (Column("collection"), list(comparison.collections)),
            (Column("queries", "right", form=","), [each.record.queries for each in results]),
            (Column("passages", "right", form=","), [each.record.passages for each in results]),
        ]
        for measure in comparison.measures:
            means = [float(each.values[:, each.measures.index(measure)].mean()) for each in results]
            columns.append((Column(measure, "right"), means))
        yield table_of(entry.name, columns)


def _forest(measure: str, pair: Pair) -> plots.Plot:
    """The difference on each collection and that of the macro mean, with their intervals."""
    rows: list[plots.ForestRow] = [
        (each.collection, each.difference, each.ci_low, each.ci_high) for each in pair.collections
    ]
    rows.append(("macro mean", pair.difference, pair.ci_low, pair.ci_high))
    figures = "; ".join(
        f"{name} {display.figure(value, '+.4f')} {display.figure((low, high), '+.4f')}".rstrip()
        for name, value, low, high in rows
    )
    title = f"{pair.a} - {pair.b}, {measure}: {figures}"
    caption = f"{pair.a} - {pair.b}: differences in {measure} with their 95% intervals, each by itself."
    return plots.Plot(plots.draw_forest(rows, f"{pair.a} {pair.b} {measure}", title), caption)


def _breakable(label: str) -> str:
    """A label that may wrap before its cutoff, its unit or the next part of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=...)(?=[@/._])", label))


def _json(value: object) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _indented(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _markup(text: str) -> Markup:
    """Text that is inserted without escaping."""
    from markupsafe import Markup

    return Markup(text)
