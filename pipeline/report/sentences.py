"""How does a page say it? The sentences that sum up a comparison, and figures as only a page writes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from pipeline.core import display
from pipeline.report.evidence import PASSAGE_LENGTH, Evidence, relevance_level
from pipeline.results.comparison import Comparison


def signed(value: float) -> str:
    """A difference, with a minus as wide as the plus: +0.0021, −0.0104."""
    return display.signed(value).replace("-", "−")


def seconds(value: float | None) -> str:
    """A time: 0.42 s, 73.0 s, 730 s, 12 min, 3.5 h."""
    if value is None:
        return ""
    if value < 100:
        return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"
    return (
        f"{value:,.0f} s"
        if value < 1000
        else f"{value / 60:.0f} min"
        if value < 6000
        else f"{value / 3600:.1f} h"
    )


def breakable(label: str) -> str:
    """A label that may go on in a second line before its cutoff, its unit or the next part of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=...)(?=[@/._])", label))


FILTERS: dict[str, Callable[..., Any]] = {
    "breakable": breakable,
    "counted": display.counted,
    "rounded": display.rounded,
    "signed": signed,
    "p": display.p,
    "seconds": seconds,
    "size": display.size,
}
"""For the templates, by name."""


def verdict(comparison: Comparison) -> str:
    """Which result leads, by how much, and from which others it was not shown to differ."""
    ordered = sorted(comparison.results, key=lambda entry: -entry.mean)
    best, rest = ordered[0], ordered[1:]
    interval = f"{display.rounded(best.mean)}, 95% interval {display.interval(best.ci_low, best.ci_high)}"
    if not rest:
        queries = display.counted(best.queries, "query", "queries")
        return f"Mean {comparison.measure} over {queries} is {interval}."
    shown = {
        name
        for pair in comparison.pairs
        if pair.shown and best.name in (pair.a, pair.b)
        for name in (pair.a, pair.b)
    }
    worse = [entry.name for entry in rest if entry.name in shown]
    alike = [entry.name for entry in rest if entry.name not in shown]
    told = [f"{best.name} has the highest mean {comparison.measure}: {interval}."]
    if worse:
        told.append(f"It is better than {_listed(worse)} by more than chance explains.")
    if alike:
        told.append(f"No difference from {_listed(alike)} is shown.")
    return " ".join(told)


def _listed(names: list[str]) -> str:
    if len(names) > 6:
        return f"{len(names)} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def facts(comparison: Comparison) -> list[tuple[str, str]]:
    """What the page is about, in a few terms."""
    first = comparison.sources[0]
    data = first.manifest.config.get("data", {})
    where = str(data.get("path") or "").rstrip("/").rpartition("/")[2]
    passages = sorted({source.record.passages for source in comparison.sources})
    hardware = first.manifest.hardware
    cores = hardware.cores or "?"
    processor = f"{hardware.cpu}, {cores} core{'' if cores == 1 else 's'}"
    gpus = Counter(hardware.gpus)
    told = [
        ("collection", where or ("sample" if data.get("source") == "sample" else "")),
        ("queries", f"{len(comparison.query_ids):,}"),
        ("passages", " to ".join(f"{number:,}" for number in {passages[0]: 0, passages[-1]: 0})),
        ("measure", comparison.measure),
        ("processor", processor if hardware.found() else ""),
        ("GPU", ", ".join(f"{number} × {name}" for name, number in gpus.items())),
    ]
    return [(term, value) for term, value in told if value]


def guide(comparison: Comparison, evidence: Evidence) -> str:
    """How to read the list of queries."""
    several = len(comparison.results) > 1
    told = [
        "Each query opens to what ranks first, what relevant passages are missed, and why."
        if evidence.chosen
        else "Ids and values only: the collection is not in the cache."
    ]
    if evidence.chosen:
        level = relevance_level(comparison)
        told.append(f"Relevant is a grade of {level} or more.")
    if 0 < len(evidence.chosen) < len(comparison.query_ids):
        what = "where results differ most or do worst" if several else "with the lowest values"
        told.append(f"Passages are in this file for {len(evidence.chosen)} queries, those {what}.")
    if evidence.chosen:
        told.append(f"Texts are cut at {PASSAGE_LENGTH} characters.")
    return " ".join(told)
