"""The HTML report of one result or several: a single file that loads nothing.

write_page(compare(["results/fp32", "results/bf16"], "ndcg@10"), Path("report.html"))

Scores and statistics are those of the comparison; curves and passages need the cached collections.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipeline.comparison.side_by_side import Comparison
from pipeline.comparison.tables import each_collection, pair_table
from pipeline.core import display, installation
from pipeline.core.display import BYTES
from pipeline.core.records import JsonObject
from pipeline.core.table import Column, FilledColumn, Table, table_of
from pipeline.results.records import Manifest, compared_settings
from pipeline.results.tables import published_table, section_tables
from pipeline.storage import whole_files
from pipeline.studies.page.queries import (
    CURVES,
    PASSAGE_LENGTH,
    QueryData,
    ResultDetails,
    read_query_data,
)
from pipeline.studies.shared.plots import Handles, Plot, draw_svg, result_style, table_plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger(__name__)

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PagePart:
    """A section of the page."""

    target: str  # its id
    heading: str  # its heading
    tables: Sequence[Table]  # its tables
    plots: Sequence[Plot] = ()  # of the tables
    ordered_by: int = -1  # the column that the rows of the first table fall in; -1 for none
    names: Sequence[str] = ()  # of the results that have a colour each; empty for those of the page


def write_page(comparison: Comparison, file: Path, parts: Sequence[PagePart] = ()) -> None:
    """Write the report of one result or several, of one collection or of a suite; `file` is replaced.

    `parts` are further sections of the page of one collection.
    """
    whole_files.write_whole(file, render_page(comparison, parts).encode())


def render_page(comparison: Comparison, parts: Sequence[PagePart] = ()) -> str:
    """The report as HTML."""
    names = [entry.name for entry in comparison.results]
    head: JsonObject = {
        "title": " and ".join(names) if len(names) <= 2 else f"{len(names)} results by {comparison.measure}",
        "summary": f"{comparison.headline}.",
        "names": names,
    }
    if comparison.of_suites:
        return _render("suite.html.j2", ["sort.js"], head | _suite_context(comparison))
    data = read_query_data(comparison)
    for note in data.notes:
        log.warning("%s", note)
    board = comparison.board()
    before = [*_published_parts(comparison), *parts]
    after = []
    for heading, tables in section_tables(comparison.records, comparison.measure).items():
        target = re.sub(r"\W+", "-", heading.lower())
        drawn = [plot for table in tables for plot in table_plots(comparison, table)]
        after.append(PagePart(target, heading, tables, drawn))
    return _render(
        "page.html.j2",
        ["sort.js", "page.js"],
        head
        | _frame(comparison, data, before, after)
        | {"decisive": _decisive_plot(comparison, board), "hardest": _hardest_table(comparison, data)}
        | _quality_section(comparison, data, board)
        | {"before": before, "after": after}
        | _provenance_section(comparison)
        | {"comparison": comparison, "measure": comparison.measure, "data": data.json(comparison)},
    )


def write_board(comparisons: Sequence[Comparison], file: Path) -> None:
    """Write the page of the results of several collections, each side by side, with the history of names."""
    parts = [
        PagePart(
            f"board-{number}",
            f"{each.collection}: {each.verdict}.",
            each.tables(),
            names=[entry.name for entry in each.results],
        )
        for number, each in enumerate(comparisons)
    ]
    results = display.counted(sum(len(each.results) for each in comparisons), "result")
    collections = display.counted(len({each.collection for each in comparisons}), "collection")
    context: JsonObject = {"kind": "board", "title": f"{results} of {collections}", "parts": parts}
    whole_files.write_whole(file, _render("base.html.j2", ["sort.js"], context).encode())


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
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters.update(breakable=_breakable, counted=display.counted)
    environment.globals.update(marks_of=_marks_of, summary="", facts=(), notes=(), sections={}, names=())
    script = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts)
    page = environment.get_template(template).render(
        context,
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return display.visible(page)


def _marks_of(table: Table, names: Sequence[str]) -> list[list[int]]:
    """For each row, the positions in `names` of the results that it is about; a position has its own colour.

    The first column, or the column of pairs, names one result or two.
    """
    of_names = {name: [number] for number, name in enumerate(names)}
    pairs = {f"{a} - {b}": of_names[a] + of_names[b] for a in names for b in names if a != b}
    at = next((number for number, column in enumerate(table.columns) if column.name == "a - b"), 0)
    return [(of_names | pairs).get(row[at], []) for row in table.rows]


def _published_parts(comparison: Comparison) -> list[PagePart]:
    """The verdicts on published scores, a table for each result that gives some."""
    tables = [
        published_table(scores, entry.name)
        for entry, loaded in zip(comparison.results, comparison.loaded, strict=True)
        if (scores := [score for result in loaded.collections for score in result.record.expected])
    ]
    return [PagePart("published", "Published scores", tables)] if tables else []


def _frame(
    comparison: Comparison, data: QueryData, before: Sequence[PagePart], after: Sequence[PagePart]
) -> JsonObject:
    """The head of the page and the headings of its sections."""
    several, settings = len(comparison.results) > 1, comparison.sources[0].manifest.config.get("data", {})
    folder = str(settings.get("path") or "").rstrip("/").rpartition("/")[2]
    passages = sorted({source.record.passages for source in comparison.sources})
    days = sorted({(source.manifest.created or "")[:10] for source in comparison.sources} - {""})
    facts = {
        "collection": folder or ("sample" if settings.get("source") == "sample" else ""),
        "queries": f"{len(comparison.query_ids):,}",
        "passages": " to ".join(f"{number:,}" for number in dict.fromkeys((passages[0], passages[-1]))),
        "measure": comparison.measure,
        "run on": " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "",
    }
    sections = {
        "leaderboard": "Leaderboard" if several else "Scores",
        "pairs": "Pairs" if several else None,
        "curves": "Quality by cutoff",
        **{part.target: part.heading for part in before},
        "queries": "Query by query",
        **{part.target: part.heading for part in after},
        "provenance": "What was run",
    }
    return {
        "kind": "comparison" if several else "result",
        "several": several,
        "facts": [(term, value) for term, value in facts.items() if value],
        "notes": [note + "." for note in comparison.notes] + data.notes,
        "sections": {target: heading for target, heading in sections.items() if heading},
        "passage_length": PASSAGE_LENGTH,
        "version": installation.versions().get("benchmarco", ""),
    }


def _decisive_plot(comparison: Comparison, board: Table) -> list[Plot]:
    """Quality against the cost that matters: a measured latency, else bytes a passage, else time."""
    measure = comparison.measure
    columns = [replace(each, name=measure) if each.name == "mean" else each for each in board.columns]
    cells = zip(*board.rows, strict=True)
    of_all = [column.name for column, each in zip(columns, cells, strict=True) if all(each)]
    costs = [column.name for column, _ in comparison.columns if column.name != "p50 ms"]
    for cost in (*costs, BYTES, "seconds"):
        table = replace(board, columns=columns, plots=[(cost, measure)] if cost in of_all else [])
        if drawn := list(table_plots(comparison, table, front=True)):
            return drawn
    return []


HARDEST = 5
"""Queries that the page opens with."""
FIRST_WORDS = 90
"""Characters of a text that stand for it."""


def _hardest_table(comparison: Comparison, data: QueryData) -> Table:
    """The queries that the winner loses most by, or that a result alone is worst at, by their first words."""
    values, results = comparison.values, comparison.results
    winner = max(range(len(results)), key=lambda number: results[number].mean)
    others = np.delete(values, winner, axis=1)
    lost = (others.max(axis=1) if others.size else np.ones(len(values))) - values[:, winner]
    rows = [row for row in np.argsort(-lost, kind="stable")[:HARDEST].tolist() if lost[row] > 0]
    ids = [comparison.query_ids[row] for row in rows]
    details = data.details[winner]
    first = [details.queries[each].top[:1] if details and each in details.queries else [] for each in ids]
    columns: list[FilledColumn] = [
        (Column("query"), [display.cut(data.queries.get(each) or each, FIRST_WORDS) for each in ids]),
        (Column(results[winner].name, "right"), values[rows, winner].tolist()),
    ]
    if others.size:
        names = [entry.name for number, entry in enumerate(results) if number != winner]
        by = [names[number] for number in others[rows].argmax(axis=1).tolist()]
        best = Column("best other" if len(names) > 1 else names[0], "right")
        columns.append((best, others[rows].max(axis=1).tolist()))
        columns += [(Column("by"), by)] if len(names) > 1 else []
    hits = [display.cut(data.passages.get(hit[0].passage, ""), FIRST_WORDS) if hit else "" for hit in first]
    columns.append((Column(f"first hit of {results[winner].name}"), hits))
    what = f"{results[winner].name} loses most by" if others.size else f"{results[winner].name} is worst at"
    return table_of(f"Queries that {what}", columns)


def _quality_section(comparison: Comparison, data: QueryData, board: Table) -> JsonObject:
    """The leaderboard, the pairs, and the plots by cutoff."""
    results = comparison.results
    order = sorted(range(len(results)), key=lambda number: -results[number].mean)
    spans = []
    for entry in (results[number] for number in order):
        ends = (entry.ci_low, entry.mean, entry.ci_high)
        spans.append([entry.mean if end is None else end for end in ends])
    low, high = min(map(min, spans)), max(map(max, spans))
    percent = 100 / ((high - low) or 1)
    examined = [
        (entry.name, number, details)
        for number, (entry, details) in enumerate(zip(results, data.details, strict=True))
        if details
    ]
    return {
        "leaderboard": _with_measures(board, comparison, data, order),
        "whiskers_after": 3 if any(entry.ci_low is not None for entry in results) else 0,
        "whiskers": [[round(percent * (value - low), 2) for value in span] for span in spans],
        "axis": (display.figure(low), display.figure(high)),
        "pairs": pair_table(comparison.measure, comparison.pairs),
        "cutoff_plots": [_draw_curves(measure, examined) for measure in CURVES] if examined else [],
    }


def _draw_curves(measure: str, examined: Sequence[tuple[str, int, ResultDetails]]) -> Plot:
    """A measure by cutoff, with a line for each result: its name, number and details."""
    deepest = max(details.cutoffs[-1] for *_, details in examined)

    def draw(axes: Axes) -> Handles:
        drawn = []
        for _, number, details in examined:  # a curve shows through one that hides it
            drawn += axes.plot(details.cutoffs, details.curves[measure], alpha=0.8, **result_style(number))
        ticks = [k for k in (1, 3, 10, 30, 100, 300, 1000) if k <= deepest]
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(ticks, [f"{k:,}" for k in ticks])
        axes.set(xlabel="cutoff k", ylabel=f"{measure}@k", ylim=(None, min(1.02, axes.get_ylim()[1])))
        return drawn

    ends = ", ".join(f"{name} {display.figure(details.curves[measure][-1])}" for name, _, details in examined)
    title = f"{measure} by cutoff k; at the largest: {ends}"
    svg = draw_svg(draw, [name for name, *_ in examined], f"curve {measure}", title)
    return Plot(svg, f"{measure}@k for k = 1 to {deepest:,}, mean over all queries.")


def _with_measures(board: Table, comparison: Comparison, data: QueryData, order: Sequence[int]) -> Table:
    """The leaderboard with columns for the other measures and for judged passages, before the costs."""
    sources, details = comparison.sources, data.details
    columns = list(zip(board.columns, zip(*board.rows, strict=True), strict=True))
    added: list[FilledColumn] = [
        (Column(name, "right"), [sources[number].record.metrics[name] for number in order])
        for name in comparison.measures
        if name != comparison.measure
    ]
    notes = list(board.notes)
    if JUDGED.name not in comparison.measures:
        examined = (details[number] for number in order)
        added.append((JUDGED, [each.judged if each else None for each in examined]))
        notes.append(f"{JUDGED.name}: {JUDGED.hint}.")
    first_cost = sum(not column.section for column in board.columns)
    return table_of(board.title, [*columns[:first_cost], *added, *columns[first_cost:]], notes)


JUDGED = Column("judged@10", "right", hint="share of the top 10 that has a grade")


def _suite_context(comparison: Comparison) -> JsonObject:
    """What the template of a suite's page shows."""
    measure, pairs = comparison.measure, comparison.pairs
    parts = [PagePart("leaderboard", "Macro means", [comparison.board()], ordered_by=1)]
    if pairs:
        compared = [pair_table(measure, pairs), each_collection(measure, pairs)]
        parts.append(PagePart("pairs", "Pairs", compared))
    tables = []
    for result in comparison.loaded:
        table = result.tables()[0]  # below the collections it has the macro means, which stand above
        rows = table.rows[: len(result.collections)]
        tables.append(replace(table, title=result.name, rows=rows, notes=[]))
    parts.append(PagePart("collections", "Collection by collection", tables))
    size = display.counted(len(comparison.loaded[0].collections), "collection")
    return {
        "kind": "suite",
        "facts": [
            ("suite of", size),
            ("queries", f"{comparison.results[0].queries:,}"),
            ("measure", measure),
        ],
        "notes": [f"{note}." for note in comparison.notes],
        "parts": [*parts, *_published_parts(comparison)],
        "configs": [  # that of the first collection, from which others differ in their data alone
            (f"{entry.name}, {source.name}", _indented(source.manifest.config))
            for entry, source in zip(comparison.results, comparison.sources, strict=True)
        ],
    }


def _breakable(label: str) -> str:
    """A label that may wrap before its cutoff, its unit or the next part of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=...)(?=[@/._])", label))


def _indented(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _model_settings(manifest: Manifest) -> dict[str, str]:
    """The models, those of parts and of a reranker; by setting what each used, and where that came from."""
    config = manifest.config
    sections = [part.get("model") or {} for part in (config.get("fuse") or {}).get("of") or [config]]
    sections.append(config.get("rerank") or {})
    names = [str(each.get("name") or each.get("backend") or "") for each in sections]
    found = {"model": [Path(name).name if Path(name).is_absolute() else name for name in names if name]}
    for model in manifest.models:
        for name, used in model.settings.items():
            found.setdefault(name, []).append(f"{used.value or 'none'} ({used.source})")
    return {name: "; ".join(dict.fromkeys(values)) for name, values in found.items()}


def _provenance_section(comparison: Comparison) -> JsonObject:
    """Models, settings that differ, artifact keys, versions and whole configs."""
    manifests = [source.manifest for source in comparison.sources]
    configs = [manifest.config for manifest in manifests]
    settings = [compared_settings(config) for config in configs]
    keys = [{row.stage: row.key for row in source.record.all_stages} for source in comparison.sources]
    versions = _grid([manifest.versions | manifest.hardware.found() for manifest in manifests])
    return {
        "models": _grid(list(map(_model_settings, manifests))),
        "settings": [row for row in _grid(settings) if not row["same"]],
        "keys": _grid(keys, short=12),
        "versions": [row for row in versions if not row["same"]],
        "shared": [row for row in versions if row["same"]],
        "configs": list(map(_indented, configs)),
    }


def _grid(columns: Sequence[Mapping[str, object]], short: int | None = None) -> list[JsonObject]:
    """A row for each key of any column, and a cell for each column, cut to `short` characters."""
    rows = []
    for label in dict.fromkeys(key for column in columns for key in column):
        texts = [display.as_text(column[label]) if label in column else "" for column in columns]
        cells = [{"text": text[:short], "whole": text if short else ""} for text in texts]
        rows.append({"label": label, "cells": cells, "same": len(set(texts)) == 1})
    return rows
