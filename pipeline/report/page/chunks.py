"""The section "Quality against chunk size": results whose passages were cut, by the tokens of a chunk."""

from __future__ import annotations

from typing import Any

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import rounded
from pipeline.report.page.plots import Plot, SpeedPoint, draw_speeds
from pipeline.retrievers.texts import Chunking


def chunks_section(comparison: Comparison) -> dict[str, Any]:
    """A table of all results, and a plot of those with chunks of several sizes; empty if none has chunks."""
    measure = comparison.measure
    points = [
        SpeedPoint(entry.name, number, cut.tokens, entry.mean, entry.ci_low, entry.ci_high, 6)
        for number, (entry, source) in enumerate(zip(comparison.results, comparison.sources, strict=True))
        if (cut := source.record.section(Chunking))
    ]
    plots = []
    if len({point.speed for point in points}) > 1:
        figures = ", ".join(f"{point.name} {rounded(point.mean)} at {point.speed:,}" for point in points)
        title = f"{measure} against tokens of a chunk: {figures}"
        svg = draw_speeds(points, measure, "tokens", title, "most tokens of a chunk")
        plots = [Plot(svg, f"Bars are 95% intervals of {measure}.")]
    return {
        "chunk_table": comparison.chunk_table(),
        "chunk_marks": [[number] for number in range(len(comparison.results))],
        "chunk_plots": plots,
    }
