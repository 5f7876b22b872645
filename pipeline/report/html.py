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

from pipeline.config import STAGES
from pipeline.core import display, machine
from pipeline.report import plots, sentences, tradeoff
from pipeline.report.approximate import approximate
from pipeline.report.evidence import Evidence, gather
from pipeline.report.origin import origin
from pipeline.results.comparison import Comparison
from pipeline.storage import disk


@dataclass(frozen=True)
class Cost:
    """A column of the leaderboard: an attribute of an entry, its label, what it means, how it is written."""

    name: str
    label: str
    hint: str
    shown: Callable[[Any], str]


TEMPLATES = Path(__file__).parent / "templates"
COSTS = (
    Cost(
        "passages_per_second", "passages/s", "encoded and indexed, loading a model not counted", display.rate
    ),
    Cost("queries_per_second", "queries/s", "encoded and searched", display.rate),
    Cost("index_bytes", "index", "size on disk", display.size),
    Cost("seconds", "time", "of all stages, each in the run that finished it", sentences.seconds),
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
    environment.filters.update(sentences.FILTERS)
    evidence = gather(comparison)
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    parts = (
        _quality(comparison, evidence)
        | _cost(comparison)
        | approximate(comparison)
        | origin(comparison)
        | _frame(comparison, evidence)
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
    sections |= {"exact": "Exact search", "cost": "Speed", "time": "Time", "origin": "What was run"}
    if not several:
        del sections["pairs"], sections["cost"]
    if not tradeoff.points(source.record for source in comparison.sources):
        del sections["exact"]
    return {
        "title": " and ".join(names) if len(names) <= 2 else f"{len(names)} results by {comparison.measure}",
        "verdict": sentences.verdict(comparison),
        "facts": sentences.facts(comparison),
        "notes": [note + "." for note in comparison.notes] + evidence.notes,
        "sections": sections.items(),
        "guide": sentences.guide(comparison, evidence),
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
            "others": [source.record.metrics[name] for name in others],
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
        "curves": plots.over_cutoffs(comparison, evidence),
    }


def _cost(comparison: Comparison) -> dict[str, Any]:
    """Quality against speed, and the seconds of each stage."""
    times: list[dict[str, Any]] = []
    for number, (entry, source) in enumerate(zip(comparison.results, comparison.sources, strict=True)):
        seconds = [source.record.stage(stage).seconds for stage in STAGES]
        peak = 1e6 * max((row.peak_rss_mb or 0 for row in source.record.stages), default=0)
        total = sum(value or 0 for value in seconds)
        times.append(
            {"number": number, "name": entry.name, "seconds": seconds, "total": total, "peak": peak or None}
        )
    longest = max(row["total"] for row in times) or 1
    for row in times:
        row["widths"] = [round(100 * (value or 0) / longest, 2) for value in row["seconds"]]
    return {"times": times, "stage_names": STAGES, "speeds": plots.against_speed(comparison)}


def _json(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _raw(text: str) -> Any:
    """Text that is markup already."""
    from markupsafe import Markup

    return Markup(text)
