"""The section "Against exact search": what approximate indexes lose, what they cost, and plots of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pipeline.comparison.side_by_side import Comparison
from pipeline.report.page.plots import Plot, SpeedPoint, speed_plot
from pipeline.report.tradeoff import Tradeoff, cutoffs, loss_tables, tradeoffs


def exact_section(comparison: Comparison) -> dict[str, Any]:
    """Tables and plots of the results that were measured against exact search; empty if there are none."""
    measured = {
        number: replace(tradeoff, name=comparison.results[number].name)
        for number, source in enumerate(comparison.sources)
        for tradeoff in tradeoffs([source.record])
    }
    return {
        "index_tables": loss_tables(list(measured.values())),
        "index_marks": [[number] for number in measured],
        "loss_plots": list(_plots(comparison, measured)) if len(measured) > 1 else [],
    }


def _plots(comparison: Comparison, measured: Mapping[int, Tradeoff]) -> Iterator[Plot]:
    """The hits of exact search that are found, and the change of the measure, against search speed."""
    measure, cutoff = comparison.measure, cutoffs(measured.values())[0]
    overlaps, changes = [], []
    for number, tradeoff in measured.items():
        name, speed, exact = tradeoff.name, tradeoff.index.queries_per_second, tradeoff.exact
        if cutoff in exact.overlap:
            overlaps.append(SpeedPoint(name, number, speed, *[exact.overlap[cutoff]] * 3))
        if change := exact.change.get(measure):
            points = change.difference, change.ci_low, change.ci_high
            changes.append(SpeedPoint(name, number, speed, *points))
    speeds = "against queries searched per second on all threads."
    if overlaps:
        caption = f"Share of the hits of exact search that the index finds, {speeds}"
        yield speed_plot(overlaps, f"overlap@{cutoff}", "queries", caption)
    if changes:
        caption = f"Change of {measure} with its 95% interval, {speeds}"
        yield speed_plot(changes, f"change of {measure}", "queries", caption)
