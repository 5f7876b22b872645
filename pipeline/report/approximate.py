"""What does a page show of approximate indexes? What they lose against exact search, and what they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.report import tradeoff
from pipeline.report.plots import Plot, Point, speed_plot
from pipeline.results.comparison import Comparison


def approximate(comparison: Comparison) -> dict[str, Any]:
    """Tables and plots of the results that were measured against exact search; of none, empty ones."""
    measured = {
        number: point
        for number, source in enumerate(comparison.sources)
        for point in tradeoff.points([source.record])
    }
    found = list(measured.values())
    cutoffs, measures, costs = tradeoff.cutoffs(found), tradeoff.measures(found), tradeoff.costs(found)
    indexes = [
        {
            "number": number,
            "name": comparison.results[number].name,
            "index": tradeoff.label(point),
            "overlaps": [point.overlap.get(cutoff) for cutoff in cutoffs],
            "changes": [point.change.get(measure) for measure in measures],
            "costs": cells,
        }
        for (number, point), cells in zip(measured.items(), zip(*costs.values(), strict=True), strict=True)
    ]
    return {
        "indexes": indexes,
        "overlap_columns": [f"overlap@{cutoff}" for cutoff in cutoffs],
        "change_columns": [f"change of {measure}" for measure in measures],
        "index_costs": list(costs),
        "losses": _plots(comparison, measured) if len(measured) > 1 else [],
    }


def _plots(comparison: Comparison, measured: Mapping[int, tradeoff.Point]) -> list[Plot]:
    """Hits of exact search, and the page's measure, against the speed of the search alone."""
    measure, cutoff = comparison.measure, tradeoff.cutoffs(measured.values())[0]
    overlaps, changes = [], []
    for number, point in measured.items():
        name, speed = comparison.results[number].name, point.index.queries_per_second
        if cutoff in point.overlap:
            overlaps.append(Point(name, number, speed, *[point.overlap[cutoff]] * 3))
        if change := point.change.get(measure):
            ends = change.ci_low, change.ci_high
            changes.append(Point(name, number, speed, change.difference, *ends))
    searched = "queries searched per second on all threads"
    told = (
        (overlaps, f"overlap@{cutoff}", f"Share of exact search's hits that were found, and {searched}."),
        (changes, f"change of {measure}", f"Change of {measure}, with its 95% interval, and {searched}."),
    )
    return [speed_plot(points, what, "queries", caption) for points, what, caption in told if points]
