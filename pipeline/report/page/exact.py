"""The section "Against exact search": what approximate indexes lose, what they cost, and plots of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.report.page.plots import Plot, SpeedPoint, speed_plot
from pipeline.report.tradeoff import Columns, Tradeoff, costs, cutoffs, losses, tradeoffs
from pipeline.results.comparison import Comparison


def exact_section(comparison: Comparison) -> dict[str, Any]:
    """Tables and plots of the results that were measured against exact search; empty if there are none."""
    measured = {
        number: tradeoff
        for number, source in enumerate(comparison.sources)
        for tradeoff in tradeoffs([source.metrics])
    }
    found = list(measured.values())
    return {
        "indexes": {number: comparison.results[number].name for number in measured},
        "index_losses": _table(losses(found)),
        "index_costs": _table(costs(found)),
        "loss_plots": list(_plots(comparison, measured)) if len(measured) > 1 else [],
    }


def _table(columns: Columns) -> dict[str, Any]:
    """Titles, each with the kind of its column, and rows of cells."""
    header = {
        title: "text" if any(isinstance(value, str) for value, _ in cells) else "number"
        for title, cells in columns.items()
    }
    return {"header": header, "rows": list(zip(*columns.values(), strict=True))}


def _plots(comparison: Comparison, measured: Mapping[int, Tradeoff]) -> Iterator[Plot]:
    """The hits of exact search that are found, and the change of the measure, against search speed."""
    measure, cutoff = comparison.measure, cutoffs(measured.values())[0]
    overlaps, changes = [], []
    for number, tradeoff in measured.items():
        name, speed = comparison.results[number].name, tradeoff.index["queries_per_second"]
        if cutoff in tradeoff.overlap:
            overlaps.append(SpeedPoint(name, number, speed, *[tradeoff.overlap[cutoff]] * 3))
        if change := tradeoff.change.get(measure):
            ends = change["ci_low"], change["ci_high"]
            changes.append(SpeedPoint(name, number, speed, change["difference"], *ends))
    speeds = "against queries searched per second on all threads."
    if overlaps:
        caption = f"Share of the hits of exact search that the index finds, {speeds}"
        yield speed_plot(overlaps, f"overlap@{cutoff}", "queries", caption)
    if changes:
        caption = f"Change of {measure} with its 95% interval, {speeds}"
        yield speed_plot(changes, f"change of {measure}", "queries", caption)
