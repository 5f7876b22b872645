"""The section "Quality against size": forms of vectors, by bytes of a passage, speed and quality."""

from __future__ import annotations

import math
from typing import Any

from pipeline.comparison.side_by_side import Comparison
from pipeline.core.display import rate, rounded
from pipeline.core.table import Cell, Column, table_of
from pipeline.report.page.plots import Plot, SpeedPoint, draw_speeds
from pipeline.retrievers.dense import VectorsCost

LEAST, MOST = 4.0, 14.0  # widths of the markers of the slowest and the fastest search, in points


def forms_section(comparison: Comparison) -> dict[str, Any]:
    """A table and a plot of the results whose vectors' forms differ in size; empty if all are alike."""
    chosen = [
        (number, entry, vectors, source.record.stage("search").items_per_second)
        for number, (entry, source) in enumerate(zip(comparison.results, comparison.sources, strict=True))
        if (vectors := source.record.section(VectorsCost))
    ]
    if len({vectors.bytes for _, _, vectors, _ in chosen}) < 2:
        return {"form_table": None, "form_marks": [], "form_plots": []}
    measure = comparison.measure
    table = table_of(
        "forms of vectors",
        [
            (Column("result"), [entry.name for _, entry, _, _ in chosen]),
            (Column("form"), [vectors.label for _, _, vectors, _ in chosen]),
            (
                Column("bytes a passage", "right"),
                [Cell(f"{vectors.bytes:,}", vectors.bytes) for _, _, vectors, _ in chosen],
            ),
            (Column("queries/s", "right"), [Cell(rate(speed), speed) for *_, speed in chosen]),
            (Column(measure, "right"), [Cell(rounded(entry.mean), entry.mean) for _, entry, _, _ in chosen]),
        ],
        [NOTE],
    )
    speeds = [speed for *_, speed in chosen if speed]
    points = [
        SpeedPoint(
            entry.name, number, vectors.bytes, entry.mean, entry.ci_low, entry.ci_high, _width(speed, speeds)
        )
        for number, entry, vectors, speed in chosen
    ]
    figures = ", ".join(f"{point.name} {rounded(point.mean)} at {point.speed:,} bytes" for point in points)
    title = f"{measure} against bytes of a passage: {figures}"
    svg = draw_speeds(points, measure, "bytes", title, "bytes of a passage's vector")
    return {
        "form_table": table,
        "form_marks": [[number] for number, *_ in chosen],
        "form_plots": [Plot(svg, f"Bars are 95% intervals of {measure}. A larger mark is a faster search.")],
    }


NOTE = "Bytes are those of one vector in this form; queries per second are those of the search alone."


def _width(speed: float | None, speeds: list[float]) -> float:
    """The width of a mark, by the logarithm of its speed among all."""
    if not speed or min(speeds) == max(speeds):
        return 6
    share = math.log(speed / min(speeds)) / math.log(max(speeds) / min(speeds))
    return round(LEAST + share * (MOST - LEAST), 2)
