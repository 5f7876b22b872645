"""How is a result shown on a page? One HTML file that loads nothing: tables, plots, every query.

write_page(compare(["results/fp32", "results/bf16"], "ndcg@10"), Path("report.html"))

Scores and statistics are those of `comparison`; curves and passages need the cached collection (`failures`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import disk, machine
from pipeline.comparison import Comparison
from pipeline.config import STAGES
from pipeline.report import failures, plots, words
from pipeline.report.evidence import Evidence, gather
from pipeline.report.origin import origin


@dataclass(frozen=True)
class Cost:
    """A column of the leaderboard: an attribute of an entry, its label, what it means, how it is written."""

    name: str
    label: str
    hint: str
    shown: Callable[[Any], str]


@dataclass(frozen=True)
class Plot:
    """A plot of the page: an `<svg>` element and its caption."""

    svg: str
    caption: str


TEMPLATES = Path(__file__).parent / "templates"
COSTS = (
    Cost(
        "passages_per_second", "passages/s", "encoded and indexed, loading a model not counted", words.count
    ),
    Cost("queries_per_second", "queries/s", "encoded and searched", words.count),
    Cost("index_bytes", "index", "size on disk", words.storage),
    Cost("seconds", "time", "of all stages, with an empty cache", words.seconds),
)


def write_page(comparison: Comparison, file: Path) -> None:
    """Write the report; one result or several.

    Args:
        comparison: What to show.
        file: Overwritten, and never half written.
    """
    disk.write_whole(file, page(comparison).encode())


def page(comparison: Comparison) -> str:
    """The report as HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(words.FILTERS)
    evidence = gather(comparison)
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    parts = (
        _quality(comparison, evidence) | _cost(comparison) | origin(comparison) | _frame(comparison, evidence)
    )
    return environment.get_template("page.html.j2").render(
        parts,
        comparison=comparison,
        measure=comparison.measure,
        several=len(comparison.results) > 1,
        style=_raw((TEMPLATES / "page.css").read_text(encoding="utf-8")),
        script=_raw(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=_raw(_json(evidence.view(comparison))),
    )


def _frame(comparison: Comparison, evidence: Evidence) -> dict[str, Any]:
    """What stands at the head of the page and between its tables."""
    results = comparison.results
    names = [entry.name for entry in results]
    several = len(names) > 1
    sections = {
        "leaderboard": "Leaderboard" if several else "Scores",
        "pairs": "Pairs",
        "curves": "Cutoffs",
        "queries": "Queries",
    }
    sections |= {"cost": "Speed", "time": "Time", "origin": "What was run"}
    if not several:
        del sections["pairs"], sections["cost"]
    return {
        "title": " and ".join(names) if len(names) <= 2 else f"{len(names)} results by {comparison.measure}",
        "verdict": words.verdict(comparison),
        "facts": words.facts(comparison),
        "notes": [note + "." for note in comparison.notes] + evidence.notes,
        "sections": sections.items(),
        "guide": words.guide(comparison, evidence),
        "absent": "Curves need the judgments, which are not there.",
        "version": machine.versions().get("benchmarco", ""),
    }


def _quality(comparison: Comparison, evidence: Evidence) -> dict[str, Any]:
    """The leaderboard, best first, and the curves."""
    results = comparison.results
    low, high = min(entry.ci_low for entry in results), max(entry.ci_high for entry in results)
    span = (high - low) or 1.0
    others = [name for name in comparison.measures if name != comparison.measure]
    rows = [
        {
            "number": number,
            "entry": entry,
            "low": round(100 * (entry.ci_low - low) / span, 2),
            "mean": round(100 * (entry.mean - low) / span, 2),
            "high": round(100 * (entry.ci_high - low) / span, 2),
            "others": [source.metrics["metrics"][name] for name in others],
            "judged": examined.judged if examined else None,
        }
        for number, (entry, source, examined) in enumerate(
            zip(results, comparison.sources, evidence.examined, strict=True)
        )
    ]
    return {
        "board": sorted(rows, key=lambda row: -row["entry"].mean),
        "numbers": {entry.name: number for number, entry in enumerate(results)},
        "other_measures": others,
        "n_queries": len(comparison.query_ids),
        "costs": [cost for cost in COSTS if any(getattr(entry, cost.name) is not None for entry in results)],
        "axis": (f"{low:.3f}", f"{high:.3f}"),
        "has_evidence": any(evidence.examined),
        "curves": _curves(comparison, evidence),
    }


def _curves(comparison: Comparison, evidence: Evidence) -> list[Plot]:
    """Each measure of `failures.CURVES` over the cutoff, for the results whose judgments are there."""
    made = []
    for measure in failures.CURVES:
        lines = [
            plots.Curve(entry.name, number, examined.cutoffs, examined.curves[measure])
            for number, (entry, examined) in enumerate(
                zip(comparison.results, evidence.examined, strict=True)
            )
            if examined
        ]
        if lines:
            ends = ", ".join(f"{line.name} {line.y[-1]:.4f}" for line in lines)
            caption = f"{measure}@k from k = 1 to {lines[0].x[-1]:,}, mean over all queries."
            svg = plots.curves(lines, measure, f"{measure} over the cutoff k; at the last: {ends}")
            made.append(Plot(_raw(svg), caption))
    return made


def _cost(comparison: Comparison) -> dict[str, Any]:
    """Quality against speed, and the seconds of each stage."""
    times: list[dict[str, Any]] = []
    for number, (entry, source) in enumerate(zip(comparison.results, comparison.sources, strict=True)):
        rows = {row["stage"]: row for row in source.metrics["stages"]}
        seconds = [rows.get(stage, {}).get("seconds") for stage in STAGES]
        peak = max((row.get("peak_rss_mb") or 0 for row in rows.values()), default=0)
        total = sum(value or 0 for value in seconds)
        times.append(
            {"number": number, "name": entry.name, "seconds": seconds, "total": total, "peak": peak or None}
        )
    longest = max(row["total"] for row in times) or 1
    for row in times:
        row["widths"] = [round(100 * (value or 0) / longest, 2) for value in row["seconds"]]
    return {"times": times, "stage_names": STAGES, "speeds": _speeds(comparison)}


def _speeds(comparison: Comparison) -> list[Plot]:
    made = []
    for unit, what in (("passages", "encoded and indexed"), ("queries", "encoded and searched")):
        points = [
            plots.Point(entry.name, number, speed, entry.mean, entry.ci_low, entry.ci_high)
            for number, entry in enumerate(comparison.results)
            if (speed := getattr(entry, f"{unit}_per_second"))
        ]
        if points:
            told = ", ".join(f"{point.name} {point.mean:.4f} at {point.speed:,.0f}" for point in points)
            svg = plots.speeds(
                points, comparison.measure, unit, f"{comparison.measure} against {unit} per second: {told}"
            )
            caption = (
                f"{unit.capitalize()} {what} per second; bars are 95% intervals of {comparison.measure}."
            )
            made.append(Plot(_raw(svg), caption))
    return made


def _json(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _raw(text: str) -> Any:
    """Text that is markup already."""
    from markupsafe import Markup

    return Markup(text)
