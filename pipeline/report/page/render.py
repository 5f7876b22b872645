"""The HTML report of one result or several: a single file that loads nothing.

write_page(compare(["results/fp32", "results/bf16"], "ndcg@10"), Path("report.html"))

Scores and statistics are those of the comparison; curves and passages need the cached collections.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from pipeline.config import STAGES
from pipeline.core import display, machine
from pipeline.report import comparison as tables
from pipeline.report.page import plots, sentences
from pipeline.report.page.exact import exact_section
from pipeline.report.page.provenance import provenance_section
from pipeline.report.page.queries import QueryData, read_query_data
from pipeline.report.tradeoff import Columns, tradeoffs
from pipeline.results.comparison import Comparison
from pipeline.storage import whole_files

TEMPLATES = Path(__file__).parent / "templates"
COST_ATTRIBUTES = ("passages_per_second", "queries_per_second", "index_bytes", "seconds")
"""The attributes of an entry that `COST_COLUMNS` shows."""
HINTS = {
    "judged@10": "share of the top 10 passages that are judged",
    "passages/s": "passages encoded and indexed per second, without the time to load the model",
    "queries/s": "queries encoded and searched per second",
    "index": "size on disk",
    "seconds": "time of all stages, each in the run that completed it",
}
"""What a column of the leaderboard means, by its title."""


def write_page(comparison: Comparison, file: Path) -> None:
    """Write the report.

    Args:
        comparison: One result or several.
        file: The file to write; it is replaced as a whole.
    """
    whole_files.write_whole(file, render_page(comparison).encode())


def render_page(comparison: Comparison) -> str:
    """The report as HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(breakable=_breakable, counted=display.counted)
    data = read_query_data(comparison)
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html.j2").render(
        _frame(comparison, data)
        | _quality_section(comparison, data)
        | exact_section(comparison)
        | _cost_section(comparison)
        | provenance_section(comparison),
        comparison=comparison,
        measure=comparison.measure,
        several=len(comparison.results) > 1,
        style=_markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        script=_markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=_markup(_json(data.json(comparison))),
    )


def _frame(comparison: Comparison, data: QueryData) -> dict[str, Any]:
    """The head of the page and the headings of its sections."""
    names = [entry.name for entry in comparison.results]
    several = len(names) > 1
    measured = tradeoffs(source.metrics for source in comparison.sources)
    sections = {
        "leaderboard": "Leaderboard" if several else "Scores",
        "pairs": "Pairs" if several else None,
        "curves": "Quality by cutoff",
        "queries": "Query by query",
        "exact": "Against exact search" if measured else None,
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


def _quality_section(comparison: Comparison, data: QueryData) -> dict[str, Any]:
    """The leaderboard, best result first, the pairs, and the plots by cutoff."""
    results = comparison.results
    low = min(entry.ci_low for entry in results)
    high = max(entry.ci_high for entry in results)

    def percent(value: float) -> float:
        """Position on the axis of the intervals."""
        return round(100 * (value - low) / ((high - low) or 1), 2)

    columns = _leaderboard_columns(comparison, data)
    rows = [
        {
            "number": number,
            "entry": entry,
            "texts": texts,
            "whisker": (percent(entry.ci_low), percent(entry.mean), percent(entry.ci_high)),
            "cells": [cells[number] for cells in columns.values()],
        }
        for number, (entry, texts) in enumerate(zip(results, tables.result_rows(comparison), strict=True))
    ]
    return {
        "leaderboard": sorted(rows, key=lambda row: -row["entry"].mean),
        "leaderboard_columns": {title: HINTS.get(title, "") for title in columns},
        "axis": (display.rounded(low), display.rounded(high)),
        "groups_meaning": tables.GROUPS,
        "pairs": _pairs(comparison),
        "pair_columns": tables.PAIR_COLUMNS,
        "pairs_title": tables.pairs_title(comparison),
        "tests_meaning": tables.TESTS,
        "cutoff_plots": plots.cutoff_plots(comparison, data),
    }


def _leaderboard_columns(comparison: Comparison, data: QueryData) -> Columns:
    """The columns after the group: other measures, judged passages and costs; none that is empty."""
    columns: Columns = {}
    for name in comparison.measures:
        if name != comparison.measure:
            means = [source.metrics["metrics"][name] for source in comparison.sources]
            columns[name] = [(mean, display.rounded(mean)) for mean in means]
    judged = [details.judged if details else None for details in data.details]
    columns["judged@10"] = [(share, display.rounded(share)) for share in judged]
    texts = list(zip(*tables.result_rows(comparison), strict=True))[len(tables.SCORE_COLUMNS) :]
    for title, attribute, column in zip(tables.COST_COLUMNS, COST_ATTRIBUTES, texts, strict=True):
        values = [getattr(entry, attribute) for entry in comparison.results]
        columns[title] = list(zip(values, column, strict=True))
    return {title: cells for title, cells in columns.items() if any(value is not None for value, _ in cells)}


def _pairs(comparison: Comparison) -> list[dict[str, Any]]:
    """The pairs: each result with its number, and the other cells with the values to sort by."""
    numbers = {entry.name: number for number, entry in enumerate(comparison.results)}
    rows = []
    for pair, (_, *texts) in zip(comparison.pairs, tables.pair_rows(comparison), strict=True):
        values = (pair.difference, pair.p_ttest, pair.p_randomization, pair.p_holm, pair.wins)
        named = [(numbers[name], name) for name in (pair.a, pair.b)]
        rows.append({"results": named, "cells": list(zip(values, texts, strict=True))})
    return rows


def _cost_section(comparison: Comparison) -> dict[str, Any]:
    """Quality against speed, and the seconds of each stage."""
    times: list[dict[str, Any]] = []
    for number, (entry, source) in enumerate(zip(comparison.results, comparison.sources, strict=True)):
        rows = {row["stage"]: row for row in source.metrics["stages"]}
        seconds = [rows.get(stage, {}).get("seconds") for stage in STAGES]
        peak = max((row.get("peak_rss_mb") or 0 for row in rows.values()), default=0)
        total = sum(value or 0 for value in seconds)
        times.append({"number": number, "name": entry.name, "seconds": seconds, "total": total, "peak": peak})
    longest = max(row["total"] for row in times) or 1
    for row in times:
        row["widths"] = [round(100 * (value or 0) / longest, 2) for value in row["seconds"]]
    return {"times": times, "stage_names": STAGES, "speed_plots": plots.speed_plots(comparison)}


def _breakable(label: str) -> str:
    """A label that may wrap before its cutoff, its unit or the next part of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=...)(?=[@/._])", label))


def _json(value: Any) -> str:
    """JSON that is safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _markup(text: str) -> Any:
    """Text that is inserted without escaping."""
    from markupsafe import Markup

    return Markup(text)
